# SPDX-License-Identifier: Apache-2.0
"""C files include only what the rule of tests/c_house.py lets them include."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.c_house import MAY_INCLUDE, ROOT, arrows, c_files, violations, wing_of


def test_every_include_follows_the_rule() -> None:
    assert violations(ROOT) == []


def test_every_arrow_of_the_rule_is_used() -> None:
    written = {(wing, to) for wing, targets in MAY_INCLUDE.items() for to in targets}
    assert written - arrows(ROOT) == set()


def test_every_wing_has_files() -> None:
    assert {wing_of(path) for path in c_files(ROOT)} == set(MAY_INCLUDE)


def test_only_tests_include_tests() -> None:
    for wing, targets in MAY_INCLUDE.items():
        if not {"tests", "fuzz"} & set(wing.split("/")):
            assert not [to for to in targets if {"tests", "fuzz"} & set(to.split("/"))]


def test_wings_stand_on_floors() -> None:
    """There is no circle: each wing can stand above all wings that it includes."""
    left = dict(MAY_INCLUDE)
    while left:
        floor = [wing for wing, targets in left.items() if not set(targets) & set(left)]
        assert floor, f"a circle among {sorted(left)}"
        for wing in floor:
            del left[wing]


@pytest.mark.parametrize(
    ("path", "line", "said"),
    [
        (
            "ldm7/ldmd/mldm.c",
            '#include "wire.h"',
            'ldm7/ldmd/mldm.c:2: found #include "wire.h" of fmtp/src; '
            "valid: headers of ldm7/ldmd, fmtp/include, ldm7/common, ldm7/queue, common/c, sandbox",
        ),
        (
            "ldm7/queue/pq.c",
            '  #  include "common/log.h"',
            'ldm7/queue/pq.c:2: found #include "common/log.h" of ldm7/common; '
            "valid: headers of ldm7/queue",
        ),
        (
            "virtual/selftest/a.c",
            '#include "nowhere.h"',
            'virtual/selftest/a.c:2: found #include "nowhere.h", which is not a file here',
        ),
        (
            "experiments/lag/hostlag.c",
            '#include "both.h"',
            'experiments/lag/hostlag.c:2: found #include "both.h", '
            "which is fmtp/src/both.h or ldm7/both.h",
        ),
        ("controller/a.c", "", "controller/a.c:1: belongs to no wing of tests/c_house.py"),
        ("ldm7/loose.c", "", "ldm7/loose.c:1: belongs to no wing of tests/c_house.py"),
    ],
)
def test_planted_violation(tmp_path: Path, path: str, line: str, said: str) -> None:
    for name in ("fmtp/src/wire.h", "fmtp/src/both.h", "ldm7/common/log.h", path):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    if "both" in line:
        (tmp_path / "ldm7/both.h").touch()
    (tmp_path / path).write_text(f"/* */\n{line}\n")
    found = [one for one in violations(tmp_path) if not one.startswith("ldm7/both.h")]
    assert found == [said]


def test_c_is_formatted() -> None:
    tool = shutil.which("clang-format")
    if tool is None:
        pytest.skip("clang-format is not installed")
    version = subprocess.run([tool, "--version"], capture_output=True, text=True, check=True).stdout
    if " version 14." not in version:
        pytest.skip(f"the format is that of clang-format 14; this is {version.strip()}")
    done = subprocess.run(
        [tool, "--dry-run", "-Werror", *c_files(ROOT)], cwd=ROOT, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
