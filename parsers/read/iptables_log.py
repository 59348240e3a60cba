# SPDX-License-Identifier: Apache-2.0
"""Parse text of `iptables -nvxL` and `iptables-save -c` into rules with their packet and byte
counters."""

from __future__ import annotations

import re
from dataclasses import dataclass

from parsers.base.problems import (
    Lines,
    Problem,
    complete_lines,
    problem,
)

_CHAIN = re.compile(r"Chain (\S+) \(.*\)")
_LISTED = re.compile(r"\s*(\d+)\s+(\d+)\s(.*)", re.ASCII)
_SAVED = re.compile(r"\[(\d+):(\d+)\] -A (\S+) ?(.*)", re.ASCII)
_PROBABILITY = re.compile(r"probability (\d+(?:\.\d+)?)", re.ASCII)
_BYTECODE = re.compile(r'--bytecode "?[0-9 ,]*,53 \d+ \d+ (\d+),6 0 0 \d+,6 0 0 \d+"?', re.ASCII)
_INTERFACE = re.compile(r"(?:^|\s)(?:-i|--in-interface) (\S+)")


@dataclass(frozen=True, slots=True)
class Rule:
    """A rule, with what loss injection needs of it. `rule` is its text, with blanks collapsed."""

    chain: str
    packets: int
    bytes: int
    rule: str

    @property
    def discards(self) -> bool:
        """Return whether matching packets are dropped."""
        return not {"DROP", "REJECT"}.isdisjoint(self.rule.split())

    @property
    def probability(self) -> float | None:
        """Return the probability of the statistic match (iptables prints 0.01 as 0.00999999978), or
        of a bpf match whose program ends by comparing a 32-bit hash with p x 2^32. None if there is
        neither."""
        if match := _BYTECODE.search(self.rule):
            return int(match[1]) / 2**32
        match = _PROBABILITY.search(self.rule)
        return float(match[1]) if match else None

    @property
    def interface(self) -> str | None:
        """Return the input interface of the rule: after -i, or in the listing's column."""
        if match := _INTERFACE.search(self.rule):
            return match[1]
        words = self.rule.split()
        if "--" not in words:
            return None
        after = words[words.index("--") + 1 :]  # the listing's columns: opt in out ...
        return after[0] if after and after[0] != "*" else None


@dataclass(frozen=True, slots=True)
class RuleList:
    file: str
    rules: tuple[Rule, ...]
    problems: tuple[Problem, ...]


def parse_iptables(text: Lines, file: str) -> RuleList:
    """Parse either listing; each line shows which one it is. Never raises."""
    rules: list[Rule] = []
    problems: list[Problem] = []
    chain: str | None = None
    for number, raw in complete_lines(text, file, problems):
        line = raw.strip()
        if not line or line[0] in "#*:" or line == "COMMIT" or line.startswith("pkts "):
            continue
        if head := _CHAIN.fullmatch(line):
            chain = head[1]
        elif saved := _SAVED.fullmatch(line):
            rules.append(Rule(saved[3], int(saved[1]), int(saved[2]), saved[4]))
        elif (listed := _LISTED.fullmatch(raw)) and chain is not None:
            rules.append(Rule(chain, int(listed[1]), int(listed[2]), " ".join(listed[3].split())))
        else:
            problems.append(problem(file, number, raw, "expected a chain, a rule with counters"))
    return RuleList(file, tuple(rules), tuple(problems))
