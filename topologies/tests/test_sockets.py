# SPDX-License-Identifier: Apache-2.0
"""Which sockets of a node are foreign, by a made-up /proc."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import pytest

from topologies.emulate import sockets
from topologies.emulate.census import Program

HEAD = "  sl  local_address rem_address st tx rx tr retrnsmt uid timeout inode\n"
UDP = "  1: 0100007F:{port:04X} 00000000:0000 07 0:0 00:0 0 0 0 {inode} 2 0 0\n"
PACKET = "sk RefCnt Type Proto Iface R Rmem User Inode\n0 3 2 0003 2 1 0 0 {inode}\n"


def program(pid: int, name: str) -> Program:
    return Program("p", pid, name, True, 0, frozenset(), False)


def looked(proc: Path, programs: Sequence[Program] = ()) -> dict[str, str]:
    return sockets.of_nodes({"p": 10}, programs, lambda: programs, proc)


def proc_of(folder: Path, holders: dict[int, list[int]], **tables: str) -> Path:
    """Make /proc with node p's process 10. `holders`: inodes by process."""
    (folder / "10/net").mkdir(parents=True)
    for table, text in tables.items():
        (folder / "10/net" / table).write_text(text)
    for pid, inodes in holders.items():
        (folder / f"{pid}/fd").mkdir(parents=True)
        for number, inode in enumerate(inodes):
            (folder / f"{pid}/fd/{number}").symlink_to(f"socket:[{inode}]")
    return folder


@pytest.mark.parametrize(
    ("holders", "found"),
    [
        ({11: [500]}, sockets.OWN),
        ({os.getpid(): [500]}, sockets.OWN),  # who watches
        ({99: [500]}, "udp port 388 (inode 500) of a program elsewhere"),
        ({12: [500]}, "udp port 388 (inode 500) of ping"),
        ({13: [500]}, sockets.OWN),  # competing flows
    ],
)
def test_who_holds_it(tmp_path: Path, holders: dict[int, list[int]], found: str) -> None:
    proc = proc_of(tmp_path, holders, udp=HEAD + UDP.format(port=388, inode=500))
    programs = [program(11, "ldmd"), program(12, "ping"), program(13, "iperf3")]
    assert looked(proc, programs) == {"p sockets": found}


def test_closed_ones_are_nobodys_and_observers_may_listen(tmp_path: Path) -> None:
    """A closed or not yet accepted socket has inode 0; tcpdump's is a packet socket."""
    tables = {"udp": HEAD + UDP.format(port=1, inode=0), "packet": PACKET.format(inode=7)}
    proc = proc_of(tmp_path, {12: [7]}, **tables)
    programs = [program(12, "tcpdump")]
    assert looked(proc, programs) == {"p sockets": sockets.OWN}
    assert looked(proc) == {"p sockets": "packet (inode 7) of a program elsewhere"}


def test_one_that_is_gone_at_the_second_look_was_passing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    proc = proc_of(tmp_path, {}, udp=HEAD + UDP.format(port=388, inode=500))
    monkeypatch.setattr("time.sleep", lambda _s: (tmp_path / "10/net/udp").write_text(HEAD))
    assert looked(proc) == {"p sockets": sockets.OWN}


def test_that_of_a_program_that_started_after_they_were_listed_is_its_own(tmp_path: Path) -> None:
    proc = proc_of(tmp_path, {11: [500]}, udp=HEAD + UDP.format(port=388, inode=500))
    later = [program(11, "flute-sender")]
    found = sockets.of_nodes({"p": 10}, [], lambda: later, proc)
    assert found == {"p sockets": sockets.OWN}
