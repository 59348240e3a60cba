# SPDX-License-Identifier: Apache-2.0
"""The harness of disturbances strikes at any moment of a command, on a machine of any speed."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

from tests.disturbances import Moment, Timeline, stages, wait_for

RUN = """\
regression: 2 receivers
[0:00, about 18 s left, 0 of 1 done] ldm7-m2 (1/1): bringing the network up
[0:09, longer than usual, 0 of 1 done] ldm7-m2 (1/1): replaying: 12/173 inserted
[0:11, about 1 s left, 0 of 1 done] ldm7-m2 (1/1): replaying: 150/173 inserted
writing the report
half a li"""


def test_stages_are_the_same_however_long_they_take() -> None:
    slow = RUN.replace("0:09, longer than usual", "1:09, about 10 s left").replace("150", "151")
    assert stages(RUN) == stages(slow)
    assert stages(RUN)[-1] == "writing the report"
    assert len(stages(RUN)) == 4


def test_moments_are_of_the_whole_command() -> None:
    whole = Timeline({"": 0.0, "up": 1.0, "writing the report": 6.0}, 10.0)
    found = [whole.moment(share / 100) for share in range(100)]
    assert found[0] == Moment("", 0.0)
    assert {m.stage for m in found} == {"", "up", "writing the report"}
    report = [m for m in found if m.stage == "writing the report"]
    assert len(report) == 40 and max(m.after_s for m in report) > 3.8


def begin(code: str, log: Path) -> subprocess.Popen[bytes]:
    with log.open("wb") as stream:
        return subprocess.Popen([sys.executable, "-u", "-c", code], stdout=stream)


def test_a_moment_is_counted_from_what_the_command_says(tmp_path: Path) -> None:
    log = tmp_path / "log"
    process = begin("import time; time.sleep(.5); print('two'); time.sleep(60)", log)
    began = time.monotonic()
    assert wait_for(process, Moment("two", 0.2), log)
    assert time.monotonic() - began > 0.7
    process.kill()
    process.wait()


def test_a_command_that_has_ended_is_not_struck(tmp_path: Path) -> None:
    log = tmp_path / "log"
    for moment in (Moment("never said", 0.0), Moment("", 600.0)):
        process = begin("print('one')", log)
        assert not wait_for(process, moment, log)
        assert process.wait() == 0
