# SPDX-License-Identifier: Apache-2.0
"""Report a run against its bands for CI systems: a table, JUnit XML, Markdown. Pure."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from experiments.bounds.bands import Finding, Status

MARKS: Final[Mapping[Status, str]] = {
    "within": "ok",
    "outside": "OUTSIDE",
    "not asked": "not asked",
}


@dataclass(frozen=True)
class Outcome:
    """The findings of a run by its bands, or the reason why it failed."""

    experiment: str
    findings: tuple[Finding, ...] = ()
    problem: str = ""  # why the run failed; empty: it did not
    facts: Mapping[str, str] = field(default_factory=dict)  # what the reader needs to know about it
    failed: Mapping[str, str] = field(default_factory=dict)  # cell without a result -> why
    started: str = ""  # ISO 8601, UTC
    took_s: float = 0.0

    @property
    def offending(self) -> tuple[Finding, ...]:
        """Return the findings outside their bands."""
        return tuple(f for f in self.findings if f.offends)

    @property
    def ok(self) -> bool:
        """Return whether the run succeeded, no cell failed and every band holds."""
        return not (self.problem or self.failed or self.offending) and bool(self.findings)

    @property
    def asked(self) -> tuple[Finding, ...]:
        """Return the findings of bands that apply to this run."""
        return tuple(f for f in self.findings if f.status != "not asked")

    @property
    def headline(self) -> str:
        """regression: 11 of 12 bands hold, outside: ffdr"""
        if self.problem:
            return f"{self.experiment}: the run failed"
        if self.failed and not self.findings:
            return (
                f"{self.experiment}: no cell has a result, failed: {', '.join(sorted(self.failed))}"
            )
        held = len(self.asked) - len(self.offending)
        text = f"{self.experiment}: {held} of {len(self.asked)} bands hold"
        if self.offending:
            text += f", outside: {', '.join(sorted({f.band.name for f in self.offending}))}"
        if self.failed:
            text += f", failed: {', '.join(sorted(self.failed))}"
        return text

    @property
    def errors(self) -> dict[str, str]:
        """Return why the run, or some of its cells, failed."""
        return {**self.failed, **({"run": self.problem} if self.problem else {})}


def table(findings: Sequence[Finding]) -> str:
    """Return plain text, one line per band and cell."""
    rows = [("", "cell", "metric", "band", "found", "why")]
    rows += [
        (MARKS[f.status], f.cell, f.band.name, str(f.band), f.found_text, f.text) for f in findings
    ]
    widths = [max(len(row[i]) for row in rows) for i in range(5)]
    lines = []
    for row in rows:
        cells = [text.ljust(width) for text, width in zip(row[:5], widths, strict=True)]
        lines.append("  ".join([*cells, row[5]]).rstrip())
    return "\n".join(lines) + "\n"


def junit(outcome: Outcome) -> str:
    """Return JUnit XML: one suite with a test case per band and cell. Bands that do not apply are
    left out, as a skipped test asks for attention. A failed run or cell is a case with an error."""
    root = ET.Element("testsuites")
    suite = ET.SubElement(
        root,
        "testsuite",
        name=outcome.experiment,
        tests=str(len(outcome.errors) + len(outcome.asked)),
        failures=str(len(outcome.offending)),
        errors=str(len(outcome.errors)),
        skipped="0",
        time=f"{outcome.took_s:.1f}",
        timestamp=outcome.started,
    )
    properties = ET.SubElement(suite, "properties")
    for name, value in outcome.facts.items():
        ET.SubElement(properties, "property", name=name, value=value)
    for name, problem in outcome.errors.items():
        case = ET.SubElement(suite, "testcase", classname=outcome.experiment, name=name, time="0")
        error = ET.SubElement(case, "error", message=_first_line(problem), type="RunError")
        error.text = _xml_safe(problem)
    for finding in outcome.asked:
        case = ET.SubElement(
            suite,
            "testcase",
            classname=f"{outcome.experiment}.{finding.cell}",
            name=f"{finding.band.name} {finding.band}",
            time="0",
        )
        if finding.offends:
            message = f"found {finding.found_text}; valid: {finding.band}"
            ET.SubElement(case, "failure", message=message, type="band").text = finding.text
    ET.indent(root)
    return ET.tostring(root, encoding="unicode", xml_declaration=True) + "\n"


def _first_line(text: str) -> str:
    return _xml_safe(text).splitlines()[0] if text.strip() else ""


def _xml_safe(text: str) -> str:
    """Return the text without the control characters that XML 1.0 cannot represent."""
    return "".join(c for c in text if c in "\t\n\r" or ord(c) >= 0x20)


def markdown(outcome: Outcome) -> str:
    """Return GitHub-flavoured Markdown: a headline, the facts, the offending metrics, then every
    band."""
    lines = [f"## {'✅' if outcome.ok else '❌'} {outcome.headline}", ""]
    if outcome.facts:
        lines += [" · ".join(f"{k}: {_cell(v)}" for k, v in outcome.facts.items()), ""]
    for name, problem in outcome.errors.items():
        lines += [f"**{name}**", "```", problem.strip(), "```", ""]
    if not outcome.findings:
        return "\n".join(lines)
    if outcome.offending:
        lines += [f"- **{_cell(str(f))}**" for f in outcome.offending] + [""]
    lines += ["| | cell | metric | band | found | why |", "|---|---|---|---|---|---|"]
    for f in outcome.findings:
        row = (MARKS[f.status], f.cell, f.band.name, str(f.band), f.found_text, f.text)
        lines.append("| " + " | ".join(_cell(text) for text in row) + " |")
    return "\n".join(lines) + "\n"


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")
