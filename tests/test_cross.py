# SPDX-License-Identifier: Apache-2.0
"""tests.cross names what it lacks, and describes each architecture to Meson correctly."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests import cross


def test_a_machine_without_compiler_skips_with_a_reason(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    assert cross.main(["s390x"]) == cross.EXIT_MISSING
    said = capsys.readouterr().out.splitlines()[-1]
    assert said == (
        "SKIPPED: s390x-linux-gnu-gcc is missing; `ansible/setup --tags cross` installs it"
    )


@pytest.mark.parametrize(
    ("name", "lines"),
    [
        ("s390x", ["endian = 'big'", "cpu_family = 's390x'", "exe_wrapper = ['qemu-s390x', '-L'"]),
        ("armhf", ["endian = 'little'", "cpu_family = 'arm'", "exe_wrapper = ['qemu-arm', '-L'"]),
    ],
)
def test_cross_file(name: str, lines: list[str]) -> None:
    text = cross.cross_file(cross.ARCHITECTURES[name], Path("/r"))
    for line in lines:
        assert line in text
    assert "--sysroot=/r" in text
