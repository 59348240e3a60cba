# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from common.shell import (
    NetworkError,
    check,
    check_all,
    in_node,
)


def test_check_passes_input_and_returns_output() -> None:
    assert check(["cat"], stdin="abc\n") == "abc\n"
    assert check(["cat"]) == ""


def test_failures_say_what_failed_and_why() -> None:
    with pytest.raises(NetworkError, match=r"sh -c .*: no such thing$"):
        check(["sh", "-c", "echo no such thing >&2; exit 3"])
    with pytest.raises(NetworkError, match="sh -c exit 3: exit code 3"):
        check(["sh", "-c", "exit 3"])
    with pytest.raises(NetworkError, match="no-such-tool: not found on this machine"):
        check(["no-such-tool"])
    with pytest.raises(NetworkError, match=r"sleep 60: no answer within 0\.1 s"):
        check(["sleep", "60"], timeout_s=0.1)
    with pytest.raises(NetworkError, match="second: broken"):
        check_all(
            {"first": (["true"], ""), "second": (["sh", "-c", "echo broken >&2; exit 1"], "")}
        )


def test_a_node_that_is_gone_is_an_error() -> None:
    with subprocess.Popen(["true"]) as ended:
        pass
    with pytest.raises(NetworkError, match=f"namespace of process {ended.pid}: No such file"):
        check(in_node(ended.pid, ["true"]))


def test_a_nodes_command_is_a_command_line_too() -> None:
    assert in_node(7, ["tc", "-j"]) == ["nsenter", "--net=/proc/7/ns/net", "--", "tc", "-j"]


@pytest.mark.root
def test_commands_run_in_the_nodes_namespace_and_this_thread_stays_where_it_is() -> None:
    here = Path("/proc/self/ns/net").readlink()
    with subprocess.Popen(
        ["unshare", "--net", "sh", "-c", "echo; exec sleep 60"], stdout=-1
    ) as node:
        assert node.stdout is not None
        node.stdout.readline()  # it is in its namespace now
        there = str(Path(f"/proc/{node.pid}/ns/net").readlink())
        asked = in_node(node.pid, ["readlink", "/proc/self/ns/net"])
        assert here.name != there
        assert check(asked).strip() == there
        assert check_all({"a": (asked, ""), "b": (asked, "")}) == dict.fromkeys("ab", there + "\n")
        assert subprocess.run(asked, capture_output=True, text=True).stdout.strip() == there
        with pytest.raises(NetworkError, match="no-such-tool"):
            check(in_node(node.pid, ["no-such-tool"]))
        assert Path("/proc/self/ns/net").readlink() == here
        node.kill()
