# SPDX-License-Identifier: Apache-2.0
"""docker-compose.yml grants few capabilities; DOWNPOUR_TEST_CONTAINER=1 also runs it for real."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from common.places import PROGRAMS

ROOT = Path(__file__).resolve().parent.parent
DOCKERFILE = (ROOT / "Dockerfile").read_text()
SKIP = 77  # exit code of tests/container.sh where no engine can start


def services() -> dict[str, Any]:
    found: dict[str, Any] = YAML(typ="safe").load(ROOT / "docker-compose.yml")["services"]
    return found


def test_compose_v2_takes_the_file(tmp_path: Path) -> None:
    """docker compose validates by the Compose specification's schema, as this test does."""

    def check(path: Path) -> subprocess.CompletedProcess[str]:
        argv = ["check_jsonschema", "--builtin-schema", "vendor.compose-spec", str(path)]
        return subprocess.run([sys.executable, "-m", *argv], capture_output=True, text=True)

    good = ROOT / "docker-compose.yml"
    done = check(good)
    assert done.returncode == 0, done.stdout
    broken = tmp_path / "docker-compose.yml"
    broken.write_text(good.read_text().replace("stop_grace_period: 1m", "stop_grace_periods: 1m"))
    done = check(broken)
    assert done.returncode == 1 and "$.services.network" in done.stdout


def test_only_networks_have_capabilities_and_only_they_are_root() -> None:
    for name, service in services().items():
        assert service["cap_drop"] == ["ALL"], name
        assert not service.get("privileged"), name
        if name in ("emulation", "network"):
            assert "SYS_ADMIN" in service["cap_add"]
            assert "SYS_MODULE" not in service["cap_add"]
            continue
        assert "cap_add" not in service, name
        # ONOS's image has all files in root's home.
        assert name == "onos" or service["user"] not in ("root", "0"), name
        assert service["security_opt"] == ["no-new-privileges:true"], name


def test_every_capability_has_its_reason() -> None:
    """The reason is in the capability's line, or in the line before."""
    text = (ROOT / "docker-compose.yml").read_text().partition("cap_add:\n")[2]
    lines = text.partition("security_opt")[0].splitlines()
    reasons = [line.partition("#")[2].strip() for line in lines if line.strip().startswith("- ")]
    assert reasons[0] and all(a or b for a, b in zip(reasons, reasons[1:], strict=False)), reasons


def test_the_image_has_every_program(tmp_path: Path) -> None:
    """The image once lacked a preloaded library: every experiment in it ended with 1."""
    found = re.search(r"^RUN (set -eu; mkdir -p /out/build;.*?)(?=^FROM)", DOCKERFILE, re.M | re.S)
    assert found, "the Dockerfile no longer selects the programs"
    for name in PROGRAMS.values():
        file = tmp_path / "build" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile("/bin/true", file)
        file.chmod(0o644 if name.endswith(".o") else 0o755)
    script = found[1].replace("/out/build", f"{tmp_path}/out/build")
    done = subprocess.run(["sh", "-c", script], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    left_out = [n for n in PROGRAMS.values() if not (tmp_path / "out/build" / n).is_file()]
    assert not left_out


def test_the_kernel_is_built_from_few_files(tmp_path: Path) -> None:
    """Each file that the stage copies makes Docker compile the kernel again when it changes, which
    takes 10 minutes."""
    stage = DOCKERFILE.partition("AS kernel\n")[2].partition("\nFROM")[0]
    copies = [line.split()[1:] for line in stage.splitlines() if line.startswith("COPY ")]
    for *files, place in copies:
        for file in (found for pattern in files for found in ROOT.glob(pattern)):
            target = tmp_path / place.strip("/")
            if file.is_dir():
                shutil.copytree(file, target)
            else:
                target.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(file, target / file.name)
    copied = tmp_path / "downpour"
    assert not (copied / "common/contracts.py").exists()
    argv = [sys.executable, "-c", "from virtual.kernel_command import run"]
    done = subprocess.run(argv, cwd=copied, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.skipif(
    not os.environ.get("DOWNPOUR_TEST_CONTAINER"),
    reason="NOTHING of the container was run: `make test-container` does (10 minutes, an engine)",
)
def test_all_profiles_run() -> None:
    done = subprocess.run([ROOT / "tests/container.sh"], capture_output=True, text=True)
    if done.returncode == SKIP:
        pytest.skip(done.stdout.splitlines()[-1])
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]


REMOVE = """
set -e
source <(sed -n '/^unmount_below()/,/^}/p; /^remove()/,/^}/p' tests/container.sh)
mkdir -p "$DIRECTORY/exec/netns" "$DIRECTORY/data/a b"
touch "$DIRECTORY/exec/netns/default"
mount --bind /proc/self/ns/net "$DIRECTORY/exec/netns/default"
mount -t tmpfs none "$DIRECTORY/data/a b"
remove "$DIRECTORY"
test ! -e "$DIRECTORY"
"""


@pytest.mark.root
@pytest.mark.skipif(os.geteuid() != 0, reason="needs root: mounts")
def test_what_the_engine_left_mounted_is_removed(tmp_path: Path) -> None:
    """The engine once left a namespace mounted in its directory, which could not be removed."""
    done = subprocess.run(
        ["unshare", "--mount", "bash", "-c", REMOVE],
        cwd=ROOT,
        env={**os.environ, "DIRECTORY": str(tmp_path / "engine")},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert not (tmp_path / "engine").exists()


def test_cells_set_no_modes_of_the_hosts_files() -> None:
    """In a container Landlock alone protects the host's files. It does not cover chmod and utime,
    so the call filter refuses them."""
    cells = [ROOT / "experiments/cells", ROOT / "topologies/emulate", ROOT / "protocols"]
    sets = re.compile(r"shutil\.(copy|copy2|copytree|copymode|copystat)\(|os\.utime\(|\.chmod\(")
    found = [
        f"{file.relative_to(ROOT)}: {match[0]}"
        for place in cells
        for file in place.glob("*.py")
        for match in sets.finditer(file.read_text())
    ]
    assert not found
