# SPDX-License-Identifier: Apache-2.0
"""What holds for every format: its beginning identifies it; a last line that was cut off is one
problem and no error; a malformed line is quoted with its place; records are JSON."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest

from parsers.base.jsonfiles import BadFile
from parsers.base.problems import Problem
from parsers.read.formats import (
    FORMATS,
    HEAD_CHARACTERS,
    by_name,
    detect,
    json_lines,
)
from parsers.reading import print_records
from parsers.synthetic_hour import Hour, write_others

GOLDEN = Path(__file__).parent / "golden"
# Format -> (golden sample, number of its records)
SAMPLES = {
    "ldm7_receiver.log": ("ldm-log", None),
    "original_ldm7_receiver.log": ("ldm-log", 5),
    "original_ldm7_sender.log": ("ldm-log", 2),
    "original_ldm6_receiver.log": ("ldm-log", 3),
    "original_ldm6_sender.log": ("ldm-log", 2),
    "papers_ldm7.log": ("papers-log", 4),
    "papers_ldm6.log": ("papers-log", 2),
    "notifyme.log": ("notifyme", 4),
    "trace.txt": ("trace", None),
    "sar_iso.log": ("sar", None),
    "sar_ampm.log": ("sar", None),
    "sadf.json": ("sadf", 6),
    "ps.log": ("ps", None),
    "cpu.log": ("cpu", None),
    "tc_class.log": ("tc-class", 2),
    "tc_qdisc.json": ("tc-qdisc", None),
    "ovs_ofctl.log": ("ovs-ofctl", 7),
    "iptables_list.log": ("iptables", None),
    "iptables_save.log": ("iptables", None),
    "iperf3_tcp.json": ("iperf3", 1),
}
LINES = [(n, f) for n, (f, _) in SAMPLES.items() if not by_name(f).is_document]
DOCUMENTS = [(n, f) for n, (f, _) in SAMPLES.items() if by_name(f).is_document]


def golden(name: str) -> str:
    with (GOLDEN / name).open(encoding="utf-8", newline="\n") as stream:
        return stream.read()


def read(name: str, text: str) -> tuple[list[object], tuple[Problem, ...]]:
    records, problems = by_name(name).read(text, "a.log")
    return list(records), problems


@pytest.mark.parametrize(("sample", "name"), [(n, f) for n, (f, _) in SAMPLES.items()])
def test_a_format_is_told_by_the_beginning_of_a_file(sample: str, name: str) -> None:
    found = detect(golden(sample)[:HEAD_CHARACTERS])
    assert found is not None and found.name == name


def test_every_format_but_those_of_run_directories_has_a_golden_sample() -> None:
    sampled = {name for name, _ in SAMPLES.values()}
    assert {f.name for f in FORMATS} - sampled == {"products", "counters"}  # tested elsewhere


@pytest.mark.parametrize("sample", SAMPLES)
def test_samples_are_read_whole_and_give_json(sample: str) -> None:
    name, count = SAMPLES[sample]
    records, problems = read(name, golden(sample))
    assert records and not problems
    if count is not None:
        assert len(records) == count
    lines = [json.loads(line) for line in json_lines(records)]
    assert [line["record"] for line in lines] == [type(r).__name__ for r in records]


@pytest.mark.parametrize(("sample", "name"), LINES)
def test_a_last_line_that_was_cut_off_is_one_problem(sample: str, name: str) -> None:
    """Only the papers' traces may end without a newline: people write them."""
    text = golden(sample).rstrip("\n") + "\n"
    before = text[: text.rstrip("\n").rindex("\n") + 1]
    cut = text[: len(before) + (len(text) - len(before)) // 2]
    records, problems = read(name, cut)
    assert records == read(name, before)[0]
    assert [(p.file, p.line) for p in problems] == [("a.log", before.count("\n") + 1)]
    assert name == "trace" or problems[0].is_cut_off


@pytest.mark.parametrize(("sample", "name"), LINES)
def test_a_malformed_line_is_quoted_with_its_place(sample: str, name: str) -> None:
    """The rest of the file is still read."""
    lines = golden(sample).rstrip("\n").split("\n")
    records, _ = read(name, "\n".join(lines) + "\n")
    found, problems = read(name, "\n".join([*lines, "mldm Received ]garbage[", ""]))
    assert found == records
    (problem,) = problems
    assert str(problem).startswith(f"a.log:{len(lines) + 1}: ")
    assert "'mldm Received ]garbage['" in str(problem)
    assert "expected" in problem.reason
    assert not problem.is_cut_off


@pytest.mark.parametrize(("sample", "name"), DOCUMENTS)
def test_a_malformed_document_is_refused_with_its_place(sample: str, name: str) -> None:
    text = golden(sample)
    middle = text.index(":", len(text) // 2)
    broken = text[:middle] + " oops " + text[middle + 1 :]
    with pytest.raises(BadFile, match="a.log.*(oops|not JSON|Invalid JSON)"):
        read(name, broken)


def test_lines_may_come_one_by_one() -> None:
    """As from a file: the whole text is never in memory."""
    text = golden("original_ldm7_receiver.log")
    assert read("ldm-log", text) == tuple(
        by_name("ldm-log").read(iter(text.splitlines(keepends=True)), "a.log")
    )


def test_read_prints_records_and_problems(tmp_path: Path) -> None:
    path = tmp_path / "n.log"
    path.write_text(golden("notifyme.log") + "20261120T235610.000000Z notifyme[749] INFO 12 2026")
    out, errors = io.StringIO(), io.StringIO()
    assert print_records(path, "auto", out, errors)
    first = json.loads(out.getvalue().splitlines()[0])
    assert first["record"] == "Notification"
    assert first["product"]["size_bytes"] == 150_000
    assert errors.getvalue().startswith(f"{path}:6: the last line is cut off")
    path.write_text(golden("notifyme.log") + "rubbish\n")
    assert not print_records(path, "notifyme", out, errors)
    assert f"{path}:6: expected YYYYMMDDThhmmss.ffffffZ notifyme[pid]" in errors.getvalue()


def test_an_unknown_format_names_the_valid_ones(tmp_path: Path) -> None:
    path = tmp_path / "x"
    path.write_text("hello\n")
    with pytest.raises(BadFile, match=r"x:1: found 'hello'.*notifyme, papers-log, ldm-log"):
        print_records(path, "auto", io.StringIO(), io.StringIO())


@pytest.mark.slow
def test_synthetic_files_are_what_they_claim(tmp_path: Path) -> None:
    """The bench reads them: they must be of their formats, without problems."""
    for name, path in write_others(tmp_path, Hour(receivers=1, products=50, seconds=20)).items():
        text = path.read_text()
        found = detect(text[:HEAD_CHARACTERS])
        assert found is not None and found.name == name
        records, problems = read(name, text)
        assert records and not problems
