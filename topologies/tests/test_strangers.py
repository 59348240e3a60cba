# SPDX-License-Identifier: Apache-2.0
"""Which programs of a node the run did not start, by a made-up /proc."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from topologies.emulate import strangers
from topologies.emulate.census import Program

ME = os.getpid()


def proc_of(folder: Path, **lines: tuple[int, int]) -> Path:
    """Make /proc. `lines`: "p" and the process -> its parent and its session's leader."""
    for name, (parent, session) in lines.items():
        (folder / name[1:]).mkdir()
        (folder / f"{name[1:]}/stat").write_text(f"1 (a) b) S {parent} {parent} {session} 0\n")
    return folder


def program(pid: int, name: str) -> Program:
    return Program("p", pid, name, True, 0, frozenset(), False)


@pytest.mark.parametrize(
    ("lines", "found"),
    [
        ({"p12": (1, 12)}, "tcpdump (process 12)"),
        ({"p12": (11, 11)}, strangers.NONE),  # a child of what the run started
        ({"p12": (1, 11)}, strangers.NONE),  # its parent has ended
        ({"p12": (13, 13), "p13": (1, 11)}, strangers.NONE),
        ({"p12": (ME, 12), f"p{ME}": (1, 1)}, "tcpdump (process 12)"),  # it lasts
        ({}, strangers.NONE),  # it is gone
    ],
)
def test_who_started_it(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    lines: dict[str, tuple[int, int]],
    found: str,
) -> None:
    monkeypatch.setattr("time.sleep", lambda _s: None)
    proc = proc_of(tmp_path, p11=(1, 11), **lines)
    there = [program(11, "ldmd"), program(12, "tcpdump")]
    shown = strangers.of_nodes(["p", "q"], there, lambda: there, [11], proc)
    assert shown == {"p strangers": found, "q strangers": strangers.NONE}


def test_a_tool_of_this_process_may_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("time.sleep", lambda _s: None)
    proc = proc_of(tmp_path, p12=(ME, ME), **{f"p{ME}": (1, 1)})
    looks = [[program(12, "tc")], []]
    shown = strangers.of_nodes(["p"], [program(12, "tc")], lambda: looks.pop(0), [11], proc)
    assert shown == {"p strangers": strangers.NONE} and looks == []
