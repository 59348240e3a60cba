# SPDX-License-Identifier: Apache-2.0
"""What the doctor reports about machines that lack various things."""

from __future__ import annotations

import dataclasses
import io
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from common.findings import (
    ADVICE,
    INSTEAD,
    MISSING,
    OK,
    ROOT_ONLY,
    Finding,
    Section,
    render,
    write,
)
from common.machine import machine_findings
from common.needs import NEEDS, Looked, Need, Use, findings, look, missing_modules, packages_of
from common.places import ROOT
from downpour.doctor import Look, Rights
from topologies.emulate.doctor import kernel_findings, native_findings
from topologies.emulate.facts import KernelFacts, parse_probe
from topologies.tests.test_facts import NO_MODULES

ALL = NO_MODULES + "netem=1\nvlan_8021q=1\nkernel_openvswitch=1\n"
NOBODY = 65534
ROOT_USER = Rights(root=True, sudo=True)


def facts(text: str) -> KernelFacts:
    return parse_probe(text, kernel="6.1.0", cores=2, memory_bytes=4 * 1024**3, ctcp_missing="")


def levels(found: list[Finding]) -> dict[str, str]:
    return {f.subject: f.level for f in found}


# --- the kernel's features ------------------------------------------------------------------------


def test_everything_here() -> None:
    assert set(levels(kernel_findings(facts(ALL))).values()) == {OK}


def test_replacements_are_named() -> None:
    found = {f.subject: f for f in kernel_findings(facts(NO_MODULES))}
    for subject, word in (
        ("kernel Open vSwitch", "modprobe openvswitch"),
        ("netem", "wire-relay delays and loses"),
        ("802.1Q interfaces", "edge switches tag"),
    ):
        assert found[subject].level == INSTEAD
        assert word in found[subject].text
    assert found["real-time priority"].level == OK


def test_missing_is_said_with_a_remedy() -> None:
    found = {f.subject: f for f in kernel_findings(facts(NO_MODULES.replace("htb=1\n", "")))}
    assert found["htb"] == Finding(
        MISSING, "htb", "a kernel with CONFIG_NET_SCH_HTB (modprobe sch_htb)"
    )


def test_missing_ctcp_says_what_takes_its_place() -> None:
    without = dataclasses.replace(facts(ALL), ctcp_missing="ctcp-load is not built")
    found = {f.subject: f for f in kernel_findings(without)}["Circuit TCP (ctcp)"]
    assert found.level == INSTEAD
    assert found.text.startswith("bbr takes its place") and "not built" in found.text


def test_without_root_it_says_what_root_would_add() -> None:
    (found,) = native_findings(is_root=False)
    assert found.level == ROOT_ONLY
    assert "native experiments need root; virtual time (CLOCK=virtual) needs none" in found.text


# --- the machine ----------------------------------------------------------------------------------


def played_machine(root: Path, *, load: str, available_kb: int) -> Path:
    (root / "etc").mkdir(parents=True)
    (root / "proc").mkdir()
    (root / "etc/os-release").write_text('ID=debian\nPRETTY_NAME="Debian GNU/Linux 12"\n')
    (root / "proc/loadavg").write_text(f"{load} 1.00 1.00 2/300 4242\n")
    (root / "proc/meminfo").write_text(
        f"MemTotal: 99999999 kB\nMemAvailable:   {available_kb} kB\n"
    )
    return root


def test_a_machine_with_room(tmp_path: Path) -> None:
    root = played_machine(tmp_path, load="0.50", available_kb=4 * 1024**2)
    found = {f.subject: f for f in machine_findings(tmp_path, root=root, cores=2, python=(3, 11))}
    assert found["system"].text.startswith("Debian GNU/Linux 12, Linux ")
    assert found["memory"] == Finding(OK, "memory", "4.0 GiB available")
    assert found["load"] == Finding(OK, "load", "0.5 on 2 cores")
    assert {f.level for f in found.values() if f.subject != "disk"} == {OK}


def test_a_small_busy_old_machine(tmp_path: Path) -> None:
    root = played_machine(tmp_path, load="18.20", available_kb=1024**2)
    found = {f.subject: f for f in machine_findings(tmp_path, root=root, cores=1, python=(3, 10))}
    assert found["Python"] == Finding(MISSING, "Python", "found 3.10; valid: 3.11 or later")
    assert (found["cores"].level, found["memory"].level) == (ADVICE, ADVICE)
    assert found["load"].level == ADVICE
    assert "18.2 on 1 core: a busy machine gives degraded native verdicts" in found["load"].text


def test_a_machine_that_says_nothing(tmp_path: Path) -> None:
    found = {f.subject: f for f in machine_findings(tmp_path / "none/yet", root=tmp_path, cores=2)}
    assert found["system"].text.startswith("unknown system, Linux ")
    assert found["load"] == Finding(OK, "load", "unknown")
    assert found["memory"].level == ADVICE


# --- what is needed -------------------------------------------------------------------------------


def test_needs_are_found_below_another_root(tmp_path: Path) -> None:
    for place, text in (
        ("usr/sbin/tool", "#!/bin/sh\necho tool, version 1.2.3-x >&2\n"),
        ("usr/bin/silent", "#!/bin/sh\nexit 1\n"),
        ("usr/include/x86_64-linux-gnu/a/b.h", ""),
    ):
        path = tmp_path / place
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        path.chmod(0o755)
    needs = [
        Need("tool", "p-tool", Use.NETWORKS, version=("--version",)),
        Need("silent", "p-silent", Use.NETWORKS, version=("--version",)),
        Need("library", "p-library", Use.COMPILE, header="a/b.h"),
        Need("gone", "p-gone", Use.NETWORKS),
        Need("other", "p-gone", Use.NETWORKS),
        Need("extra", "p-extra", Use.NETWORKS, necessary=False),
    ]
    looked = look(sys.executable, needs=needs, root=tmp_path)
    assert [one.version for one in looked] == ["1.2.3-x", "", "", None, None, None]
    assert packages_of(looked) == ["p-gone"]
    assert findings(looked) == [
        Finding(OK, "found", "tool 1.2.3-x, silent, library"),
        Finding(MISSING, "gone", "get it: apt install p-gone"),
        Finding(MISSING, "other", "get it: apt install p-gone"),
        Finding(ADVICE, "extra", "get it: apt install p-extra"),
    ]


def test_modules_are_looked_for_without_importing_them(tmp_path: Path) -> None:
    names = ["json", "no_such_module", "no_such.module", "antigravity"]
    assert missing_modules(sys.executable, names) == {"no_such_module", "no_such.module"}
    assert missing_modules(str(tmp_path / "python"), ["json"]) == {"json"}


# --- what works -----------------------------------------------------------------------------------


def look_at(*absent: str, rights: Rights = ROOT_USER, built: bool = True) -> Look:
    """Return a machine that has everything but the needs named `absent`."""
    return Look(
        rights=rights,
        machine=[Finding(OK, "system", "")],
        needs=[Looked(need, None if need.name in absent else "") for need in NEEDS],
        programs=Finding(OK if built else ADVICE, "C programs", ""),
        guest=[Finding(OK, "kernel", "Linux 7.3.4")],
        native=kernel_findings(facts(NO_MODULES))
        if rights.root
        else native_findings(is_root=False),
    )


def verdicts(found: Look) -> dict[str, Finding]:
    return {f.subject: f for f in found.verdicts()}


def test_all_of_it_works_for_root() -> None:
    assert levels(look_at().verdicts()) == {
        "virtual time": OK,
        "native": OK,
        "labs": OK,
        "development": OK,
    }


def test_a_user_without_root_has_virtual_time() -> None:
    found = verdicts(look_at(rights=Rights(root=False, sudo=False)))
    assert found["virtual time"].level == OK
    assert "CLOCK=virtual" in found["virtual time"].text
    assert found["native"] == Finding(ROOT_ONLY, "native", "needs root")


def test_one_command_gets_what_is_missing() -> None:
    found = verdicts(look_at("ip", "tc", "mnexec", "numpy", rights=Rights(root=False, sudo=False)))
    assert found["native"] == Finding(
        MISSING, "native", "get it: as root: apt install iproute2 mininet; then: make setup"
    )
    found = verdicts(look_at("ip", "numpy"))
    assert found["virtual time"] == Finding(MISSING, "virtual time", "get it: make setup")


def test_a_compiler_is_needed_only_where_nothing_is_built() -> None:
    assert verdicts(look_at("meson"))["virtual time"].level == OK
    assert verdicts(look_at("meson", built=False))["virtual time"].level == MISSING
    assert verdicts(look_at("meson"))["development"].level == MISSING


def test_what_is_only_nice_to_have_hinders_nothing() -> None:
    assert set(levels(look_at("tcpdump", "clang", "tshark").verdicts()).values()) == {OK}


def test_a_kernel_that_cannot_be_built_hinders_virtual_time() -> None:
    found = dataclasses.replace(
        look_at("flex"), guest=[Finding(MISSING, "kernel", "not built; to build it: …")]
    )
    assert levels(found.verdicts()) == {
        "virtual time": MISSING,
        "native": OK,
        "labs": MISSING,
        "development": MISSING,
    }


# --- the report -----------------------------------------------------------------------------------


def test_lines_fit_80_columns() -> None:
    absent = [need.name for need in NEEDS]
    for found in (look_at(), look_at(*absent, rights=Rights(root=False, sudo=False))):
        text = render(found.sections())
        assert max(map(len, text.splitlines())) <= 80
        assert text.isascii()


def test_a_long_path_has_its_own_line() -> None:
    path = f"/home/{'a' * 60}/build"
    found = [Finding(OK, "the programs of C", "built"), Finding(OK, "it", f"built {path} again")]
    assert render([Section("Title", tuple(found))]) == (
        "Title\n"
        "ok      the programs of C  built\n"
        "ok      it\n"
        f"        built\n        {path}\n        again\n"
    )


def test_a_stream_that_is_not_utf8_gets_replacements() -> None:
    raw = io.BytesIO()
    stream = io.TextIOWrapper(raw, encoding="latin-1")
    write(render([Section("Title", (Finding(OK, "disk", "below /tmp/…/ü"),))]), stream)
    assert raw.getvalue().decode("latin-1") == "Title\nok      disk  below /tmp/?/ü\n"


@pytest.fixture
def bare_checkout() -> Iterator[Path]:
    """Yield the rooms without .venv and build, where everybody may read them (pytest's directories
    are the caller's alone)."""
    with tempfile.TemporaryDirectory(prefix="downpour ") as name:
        place = Path(name)
        for room in ("common", "topologies", "virtual", "downpour"):
            shutil.copytree(
                ROOT / room, place / room, ignore=shutil.ignore_patterns("__pycache__", "tests")
            )
        place.chmod(0o755)
        yield place


@pytest.mark.slow
@pytest.mark.skipif(os.geteuid() != 0, reason="becoming another user needs root")
@pytest.mark.parametrize("privileged", [True, False])
def test_on_a_bare_machine_it_works_and_changes_nothing(
    bare_checkout: Path, privileged: bool
) -> None:
    """It has only Python's standard library, no programs, no home directory, and an ASCII
    terminal."""
    place = bare_checkout
    before = sorted(place.rglob("*"))
    user = [] if privileged else ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}"]
    result = subprocess.run(
        [
            *([*user, "--clear-groups", "--"] if user else []),
            *(os.path.realpath(sys.executable), "-S", "-E", "-B", "-m", "downpour.doctor"),
        ],
        cwd=place,
        env={"PATH": "/usr/bin:/bin", "LC_ALL": "C", "PYTHONIOENCODING": "ascii", "HOME": "/none"},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert result.stderr == ""
    assert "This machine\nok      system" in result.stdout
    assert result.stdout.isascii()
    # A path is never broken, however long.
    broken = [line for line in result.stdout.splitlines() if len(line.split()) > 1]
    assert max(len(line) for line in broken if str(place) not in line) <= 80
    # The copy has neither .venv nor its modules.
    assert result.returncode == 1 and "missing modules" in result.stdout
    assert ("native experiments need" in result.stdout) is not privileged
    assert sorted(place.rglob("*")) == before
