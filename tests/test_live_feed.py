# SPDX-License-Identifier: Apache-2.0
"""The site guide's commands bring the feed of an outside LDM into a running network."""

from __future__ import annotations

import os
import re
import subprocess
import time
from contextlib import ExitStack
from pathlib import Path

import pytest

from common.places import BUILD, ROOT
from topologies.emulate import lifecycle
from topologies.emulate.emulation import Emulation, open_emulation
from topologies.model.load import find, load

LDMD = BUILD / "ldm7/ldmd/ldmd"
TOOLS = BUILD / "ldm7"
LIMIT_S = 60.0

pytestmark = [
    pytest.mark.root,
    pytest.mark.emulated,
    pytest.mark.slow,
    pytest.mark.skipif(os.geteuid() != 0, reason="SKIPPED: network namespaces need root"),
    pytest.mark.skipif(
        not LDMD.exists(), reason="SKIPPED: run `make build` first: NO live feed was tested"
    ),
]


def guide() -> list[str]:
    """Return the commands of the guide's section."""
    text = (ROOT / "docs/guide/site.md").read_text()
    section = text.split("## A live feed into a running network")[1]
    block = section.split("```sh\n")[1].split("```")[0]
    lines = [line.split("#")[0].strip() for line in block.splitlines()]
    return [part.strip() for line in lines for part in line.split("&&")]


def connect(emulation: Emulation, outside: list[str], pid: int) -> None:
    """Run the guide's commands; `outside` enters the namespace that stands for the machine."""
    commands = guide()
    assert commands.pop(0) == "downpour up bottleneck"
    for command in commands:
        words = re.sub(r"\bnetns 1$", f"netns {pid}", command).split()
        if words[:2] == ["downpour", "shell"]:
            emulation.run(words[2], words[3:])
        else:
            subprocess.run([*outside, *words], check=True)


def server(work: Path, name: str, conf: str) -> list[str]:
    """Make a queue and a configuration; return the command of a server with them."""
    queue, file = work / f"{name}.pq", work / f"{name}.conf"
    file.write_text(conf)
    subprocess.run([TOOLS / "pqcreate", "-s", "10m", "-q", queue], check=True)
    log = str(work / f"{name}.log")
    return [
        *(str(LDMD), "-f", "--user", "root", "-P", "38800"),
        *("-q", str(queue), "-l", log, str(file)),
    ]


def test_a_product_from_outside_gets_in(tmp_path: Path) -> None:
    with ExitStack() as stack:
        outer = stack.enter_context(subprocess.Popen(["unshare", "-n", "sleep", "600"]))
        stack.callback(outer.kill)
        here = Path("/proc/self/ns/net").stat().st_ino
        until = time.monotonic() + LIMIT_S
        while Path(f"/proc/{outer.pid}/ns/net").stat().st_ino == here:
            assert time.monotonic() < until, "unshare has not created a namespace"
            time.sleep(0.01)
        outside = ["nsenter", "-t", str(outer.pid), "-n"]
        with (
            lifecycle.enter(lifecycle.new_run_id("test-live")) as run,
            open_emulation(load(find("bottleneck")), run.state_dir) as emulation,
        ):
            connect(emulation, outside, outer.pid)
            site = server(tmp_path, "site", "ALLOW\tNGRID\t^10\\.20\\.\n")
            inside = server(tmp_path, "inside", 'REQUEST\tNGRID\t".*"\t192.0.2.2:38800\n')
            entered = ["nsenter", "-t", str(emulation.pids["pub"]), "-n"]
            commands: list[list[str]] = [[*outside, *site], [*entered, *inside]]
            for argv in commands:
                process = stack.enter_context(subprocess.Popen(argv))
                stack.callback(process.terminate)
            (tmp_path / "product").write_bytes(b"x" * 50_000)
            offer = [
                str(TOOLS / "pqinsert"),
                "-q",
                str(tmp_path / "site.pq"),
                "-f",
                "NGRID",
                "-p",
                "live 1",
            ]
            subprocess.run([*offer, str(tmp_path / "product")], check=True)
            while b"live 1" not in (tmp_path / "inside.pq").read_bytes():
                assert time.monotonic() < until, (tmp_path / "inside.log").read_text()
                time.sleep(0.05)
        # The link goes with the namespace at its other end, which the kernel soon removes.
        links = [*outside, "ip", "-o", "link"]
        while b"feed0" in subprocess.run(links, capture_output=True, check=True).stdout:
            assert time.monotonic() < until, "the link outlives the network"
            time.sleep(0.05)
