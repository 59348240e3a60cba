# SPDX-License-Identifier: Apache-2.0
"""Tables 4 and 5 of DRFSM21, computed from a log."""

from __future__ import annotations

import re
from pathlib import Path

from parsers.measure.deliveries import Arrival
from parsers.measure.repaired import (
    LISTED,
    Repaired,
    RepairedFile,
    matrix,
    repaired_of,
    sharing,
)
from parsers.measure.run_files import load_cell
from parsers.measure.summary import summarize
from parsers.report.fmtp_section import fmtp_section
from parsers.tests.synthetic import SyntheticCell, write_synthetic_run


def repaired(*files: tuple[int, int]) -> Repaired:
    return Repaired(len(files), tuple(RepairedFile(*f) for f in files))


def test_files_that_fmtp_repaired_in_order_of_their_index() -> None:
    arrivals = [
        Arrival(3, "fmtp", 0.1, 2, index=7),
        Arrival(1, "fmtp", 0.1, 0, index=1),
        Arrival(2, "fmtp", 0.1, 5, index=3),
        Arrival(4, "backstop"),
    ]
    assert repaired_of(arrivals) == repaired((3, 5), (7, 2))


def test_in_a_lossy_hour_only_the_first_are_kept() -> None:
    found = repaired_of(Arrival(0, "fmtp", 0.1, 1, index=i) for i in range(LISTED + 1))
    assert (found.count, len(found.files), found.complete) == (LISTED + 1, LISTED, False)
    assert sharing({"a": found}) is None
    assert matrix({"a": found}) is None


def test_who_shares_a_repaired_file() -> None:
    """Three subscribers; file 3 was repaired at all, 5 at two, 9 at one."""
    of = {
        "uva": repaired((3, 1), (5, 2)),
        "umd": repaired((3, 1), (5, 4)),
        "uwisc": repaired((3, 1), (9, 6)),
    }
    found = sharing(of)
    assert found is not None
    assert (found.everywhere, found.somewhere, found.alone) == ((3,), (5,), (9,))
    assert matrix(of) == (
        ("File index", "uva", "umd", "uwisc"),
        [("3", "1", "1", "1"), ("5", "2", "4", "0"), ("9", "0", "0", "6")],
    )


def test_one_subscriber_shares_with_nobody() -> None:
    found = sharing({"uva": repaired((3, 1))})
    assert found is not None
    assert (found.everywhere, found.alone) == ((), (3,))


def test_the_section(tmp_path: Path) -> None:
    """The logs have 40 files of 250 000 bytes; every tenth needed two blocks again, at both
    subscribers. The delay from the BOP is 0.05 s at the first one and 0.15 s at the other: 40 and
    13.33 Mbit/s. MPLR (eq. 6): 8 blocks of 1448 bytes in 10 MB."""
    run = write_synthetic_run(tmp_path, SyntheticCell("ldm7", loss=0.0))
    (directory,) = (run / "cells").iterdir()
    cell = summarize(load_cell(directory))
    section = fmtp_section([cell])
    assert section is not None
    of_all, per_file = section.tables
    hosts = [r.host for r in cell.receivers]
    assert [row[0] for row in of_all.rows] == hosts
    assert of_all.rows[0][1:] == (
        *("40", "40", "100.00", "100.00", "0.1158", "40.00", "40.00", "40.00", "8", "4"),
    )
    assert of_all.rows[1][6] == "13.33"
    assert per_file.header == ("File index", *hosts)
    assert [row[0] for row in per_file.rows] == ["0", "10", "20", "30"]
    assert {row[1:] for row in per_file.rows} == {("2", "2")}
    assert "files 0, 10, 20, 30 at all subscribers alike" in section.sentences[0]


def test_the_longest_wait_is_of_files_without_repair(tmp_path: Path) -> None:
    """File 7 waits 0.4 s; file 10, whose repair takes 2 s, does not count (DRFSM21 eq. 7)."""
    run = write_synthetic_run(tmp_path, SyntheticCell("ldm7", loss=0.0))
    (directory,) = (run / "cells").iterdir()
    summary = summarize(load_cell(directory))
    assert summary.values["fmtp_wait_max"].value == 0.15
    for number, delay in ((7, "0.400000"), (10, "2.000000")):
        for log in (directory / "logs").iterdir():
            text = log.read_text()
            log.write_text(
                re.sub(
                    rf"delay: 0.15\d+ s, index: {number},",
                    f"delay: {delay} s, index: {number},",
                    text,
                )
            )
    summary = summarize(load_cell(directory))
    assert summary.values["fmtp_wait_max"].value == 0.4


def test_no_section_for_ldm6(tmp_path: Path) -> None:
    run = write_synthetic_run(tmp_path, SyntheticCell("ldm6"))
    (directory,) = (run / "cells").iterdir()
    assert fmtp_section([summarize(load_cell(directory))]) is None
