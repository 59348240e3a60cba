# SPDX-License-Identifier: Apache-2.0
"""tests.quality reads the outputs of the analyzers and gcovr correctly."""

from __future__ import annotations

import json

from tests.quality import FileCoverage, Share, coverage_table, covered_files, findings, percent

COMPILER = """\
[3/9] Compiling C object fmtp/libfmtp.a.p/src_sender.c.o
../fmtp/src/sender.c:103:26: error: dereference of NULL 'p' [-Werror=analyzer-null-dereference]
../fmtp/src/sender.c:103:26: error: dereference of NULL 'p' [-Werror=analyzer-null-dereference]
  103 |         len += p->body_len;
../ldm7/queue/tests/test_pq.c:51:17: error: dereference of possibly-NULL 'data' [CWE-690]
build-analyze/../ldm7/common/log.c:75:9: error: not null-terminated [bugprone-x,-warnings-as-errors]
"""


def test_findings_are_listed_once_and_without_those_in_tests() -> None:
    assert findings(COMPILER) == [
        "fmtp/src/sender.c:103:26: error: dereference of NULL 'p' "
        "[-Werror=analyzer-null-dereference]",
        "ldm7/common/log.c:75:9: error: not null-terminated [bugprone-x,-warnings-as-errors]",
    ]


def test_coverage_is_read_and_judged() -> None:
    report = {
        "files": [
            {"filename": "a/core.c", "line_total": 200, "line_covered": 190},
            {"filename": "a/loop.c", "line_total": 100, "line_covered": 50},
            {"filename": "a/empty.h", "line_total": 0, "line_covered": 0},
        ]
    }
    files = covered_files(json.dumps(report))
    assert files == [FileCoverage("a/core.c", 200, 190), FileCoverage("a/loop.c", 100, 50)]
    assert percent(files) == 80.0
    table, good = coverage_table(files, [Share("cores", r"a/core\.c", 95)])
    assert good and "met     cores: 95.0 % of 200 lines; at least 95 %" in table
    table, good = coverage_table(files, [Share("all", r"a/.*", 81)])
    assert not good and "MISSED  all: 80.0 %" in table


def test_a_share_without_files_is_missed() -> None:
    assert not coverage_table([FileCoverage("a/b.c", 1, 1)], [Share("gone", r"x/.*", 0)])[1]
