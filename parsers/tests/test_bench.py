# SPDX-License-Identifier: Apache-2.0
"""The bench measures what it says that it measures, and refuses files that are not read whole."""

from __future__ import annotations

from pathlib import Path

import pytest

from parsers.bench import Measured, measure_file

CPU = "@ 1.000\n70 ldmd 5\n"


@pytest.mark.slow
def test_a_file_is_measured_in_a_process_of_its_own(tmp_path: Path) -> None:
    path = tmp_path / "cpu.log"
    path.write_text(CPU)
    found = measure_file("cpu", path)
    assert (found.what, found.size_bytes) == ("cpu", len(CPU))
    assert found.cpu_s > 0
    assert 5_000_000 < found.peak_bytes < 1_000_000_000  # a Python with some modules


@pytest.mark.slow
def test_a_file_with_a_problem_is_no_measurement(tmp_path: Path) -> None:
    path = tmp_path / "cpu.log"
    path.write_text(CPU + "rubbish\n")
    with pytest.raises(ValueError, match="expected PID NAME NANOSECONDS"):
        measure_file("cpu", path)


def test_a_line_of_the_table() -> None:
    words = Measured("cpu", 5_000_000, 0.25, 70_000_000).line.split()
    assert words == ["cpu", "5.0", "MB", "0.25", "s", "20.0", "MB/s", "70", "MB"]
