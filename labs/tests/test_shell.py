# SPDX-License-Identifier: Apache-2.0
"""The prompt of a lab: which lines belong together."""

from __future__ import annotations

import pytest

from labs.shell import is_complete, whole_command


@pytest.mark.parametrize(
    "text",
    [
        "ports", "@pub ping -c 3 10.10.1.2 & wait", "for h in a b; do @$h hostname; done",
        "cat >x.conf <<end\nALLOW NGRID .*\nend", "echo 'a\nb'", "echo a\\\\", "fi", "echo )",
    ],
)  # fmt: skip
def test_complete(text: str) -> None:
    """A wrong line is also complete: bash reports the mistake."""
    assert is_complete(text)


@pytest.mark.parametrize(
    "text",
    [
        "cat >x.conf <<end", "cat >x.conf <<end\nALLOW NGRID .*", "for h in a b; do", "echo 'a",
        'echo "a', "f() {", "ls \\", "if true; then", "echo $(ls",
    ],
)  # fmt: skip
def test_incomplete(text: str) -> None:
    assert not is_complete(text)


def test_lines_that_belong_together_are_one_command() -> None:
    rest = iter(["MULTICAST NGRID", "end", "next"])
    assert whole_command("cat <<end", lambda: next(rest)) == "cat <<end\nMULTICAST NGRID\nend"
    assert whole_command("ports", lambda: next(rest)) == "ports"


def test_the_end_of_input_ends_a_command() -> None:
    def nothing() -> str:
        raise EOFError

    assert whole_command("echo 'a", nothing) == "echo 'a"
