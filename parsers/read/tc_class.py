# SPDX-License-Identifier: Apache-2.0
"""Parse text of `tc -s class show` into classes with their counters. (For classes, Debian 12's tc
writes this text even with -j.)"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from parsers.base.problems import (
    Lines,
    Problem,
    cut_off,
    numbered_lines,
    problem,
)

_CLASS = re.compile(r"class (\S+) (\S+) (?:root|parent (\S+))\b ?(.*)", re.ASCII)
_SENT = re.compile(
    r"\s+Sent (\d+) bytes (\d+) pkts? \(dropped (\d+), overlimits (\d+) requeues (\d+)\)\s*",
    re.ASCII,
)
_BACKLOG = re.compile(r"\s+backlog (\d+)([KMG]?)b (\d+)([KMG]?)p requeues (\d+)\s*", re.ASCII)
_OTHER = re.compile(r"\s+\S.*")  # counters of the class's kind: lended, tokens, deficit
_SCALE = {"": 1, "K": 1024, "M": 1024**2, "G": 1024**3}
EXPECTED = "'class KIND ID root|parent ID ...', or its indented counters"


@dataclass(frozen=True, slots=True)
class TrafficClass:
    """`parent` is empty for a class of the root qdisc; `options` is the rest of the class's
    line."""

    kind: str
    handle: str
    parent: str
    options: str
    sent_bytes: int = 0
    sent_packets: int = 0
    drops: int = 0
    overlimits: int = 0
    backlog_bytes: int = 0
    backlog_packets: int = 0


@dataclass(frozen=True, slots=True)
class ClassList:
    file: str
    classes: tuple[TrafficClass, ...]
    problems: tuple[Problem, ...]


def parse_classes(text: Lines, file: str) -> ClassList:
    """Parse the text. Never raises."""
    classes: list[TrafficClass] = []
    problems: list[Problem] = []
    for number, raw, complete in numbered_lines(text):
        if not complete:
            problems.append(cut_off(file, number, raw))
        elif not raw.strip():
            continue
        elif head := _CLASS.fullmatch(raw):
            classes.append(TrafficClass(head[1], head[2], head[3] or "", head[4].strip()))
        elif not classes or not _OTHER.fullmatch(raw):
            problems.append(problem(file, number, raw, f"expected {EXPECTED}"))
        elif sent := _SENT.fullmatch(raw):
            size, packets, drops, overlimits = (int(sent[i]) for i in range(1, 5))
            classes[-1] = replace(
                classes[-1],
                sent_bytes=size,
                sent_packets=packets,
                drops=drops,
                overlimits=overlimits,
            )
        elif backlog := _BACKLOG.fullmatch(raw):
            classes[-1] = replace(
                classes[-1],
                backlog_bytes=int(backlog[1]) * _SCALE[backlog[2]],
                backlog_packets=int(backlog[3]) * _SCALE[backlog[4]],
            )
        elif raw.split()[0] in ("Sent", "backlog"):
            problems.append(
                problem(
                    file,
                    number,
                    raw,
                    "expected 'Sent N bytes N pkt (dropped N, overlimits N requeues N)'"
                    " or 'backlog Nb Np requeues N'",
                )
            )
    return ClassList(file, tuple(classes), tuple(problems))
