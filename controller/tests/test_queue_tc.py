# SPDX-License-Identifier: Apache-2.0
"""Queues by tc: commands, the BPF program and how they are read back; and all of it in a real
kernel."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from controller.paths.queues import (
    PortQueues,
    QueueClass,
    QueueError,
    differences,
    parse_rate,
)
from controller.switches.queue_option import driver_of
from controller.switches.queue_ovsdb import QueueOvsdb
from controller.switches.queue_tc import (
    Instruction,
    Outlet,
    QueueTc,
    commands,
    outlets_from_json,
    program,
    read_back,
    read_outlets,
)
from controller.tests.sample import network

OUTLET = Outlet(("a", 2), 1, "w0b", "1:1", 750_000)
TWO = PortQueues(120_000_000).with_share(1, 2001, 20_000_000).with_share(26, 2002, 40_000_000)


def run_bpf(code: tuple[Instruction, ...], frame: bytes, tag: int | None) -> int:
    """Run a classic BPF machine (Linux's, with the tag beside the frame) that has only the
    accumulator."""
    accumulator = 0
    at = 0
    while True:
        operation, if_true, if_false, k = code[at]
        at += 1
        if operation == 0x28 and k == 0xFFFFF030:
            accumulator = int(tag is not None)
        elif operation == 0x28 and k == 0xFFFFF02C:
            accumulator = tag or 0
        elif operation == 0x28:
            if k + 2 > len(frame):
                return 0
            accumulator = int.from_bytes(frame[k : k + 2], "big")
        elif operation == 0x54:
            accumulator &= k
        elif operation == 0x15:
            at += if_true if accumulator == k else if_false
        elif operation == 0x05:
            at += k
        else:
            assert operation == 0x06
            return k


def tagged(vlan: int) -> bytes:
    return bytes(12) + bytes.fromhex("8100") + (0x6000 | vlan).to_bytes(2, "big") + bytes(50)


@pytest.mark.parametrize(
    ("vlan", "class_id"),
    [(2001, 0x200001), (2002, 0x20001A), (2003, 0), (0, 0)],
)
def test_program_finds_the_class(vlan: int, class_id: int) -> None:
    code = program(TWO.classes)
    assert run_bpf(code, tagged(vlan), None) == class_id
    assert run_bpf(code, bytes(64), 0x6000 | vlan) == class_id  # priority bits do not count


def test_program_finds_lldp() -> None:
    frame = bytes(12) + bytes.fromhex("88cc") + bytes(50)
    assert run_bpf(program(TWO.classes), frame, None) == 0x20EFFF
    assert run_bpf(program(()), frame, None) == 0x20EFFF


def test_program_leaves_untagged_and_short_frames_alone() -> None:
    code = program(TWO.classes)
    assert run_bpf(code, bytes(12) + bytes.fromhex("0800") + bytes(50), None) == 0
    assert run_bpf(code, b"", None) == 0


def test_commands_from_nothing() -> None:
    lines = commands(OUTLET, None, PortQueues(120_000_000))
    # 2 ms of 120 Mbit/s are 30,000 bytes.
    assert lines.pop().startswith("filter replace dev w0b parent 20: protocol all pref 1 handle 1")
    assert lines == [
        "qdisc replace dev w0b parent 1:1 handle 20: htb default fffe",
        "class add dev w0b parent 20: classid 20:ffff htb rate 120000000bit ceil 120000000bit"
        " burst 30000 cburst 30000 quantum 1518",
        "class add dev w0b parent 20:ffff classid 20:fffe htb rate 119936000bit ceil 120000000bit"
        " prio 1 burst 29984 cburst 30000 quantum 1518",
        "qdisc add dev w0b parent 20:fffe bfifo limit 750000",
        "class add dev w0b parent 20:ffff classid 20:efff htb rate 64000bit ceil 120000000bit"
        " prio 0 burst 4554 cburst 30000 quantum 1518",
        "qdisc add dev w0b parent 20:efff bfifo limit 750000",
    ]


def test_commands_are_differences() -> None:
    one = PortQueues(120_000_000).with_share(1, 2001, 20_000_000)
    assert commands(OUTLET, TWO, TWO) == []
    grown = commands(OUTLET, one, TWO)
    assert [" ".join(line.split()[:2]) for line in grown] == [
        *("class change", "class add", "qdisc add", "filter replace"),
    ]
    # The default class makes room first: 120 - 0.064 - 20 - 40 Mbit/s.
    assert "classid 20:fffe htb rate 59936000bit" in grown[0]
    assert "classid 20:1a htb rate 40000000bit ceil 120000000bit prio 0" in grown[1]
    shrunk = commands(OUTLET, TWO, one)
    assert [" ".join(line.split()[:2]) for line in shrunk] == [
        *("filter replace", "class del", "class change"),
    ]
    assert shrunk[1] == "class del dev w0b classid 20:1a"


# Printed by iproute2 6.1.
CLASSES = """\
class htb 20:ffff root rate 120Mbit ceil 120Mbit burst 30000b cburst 30000b 
class htb 20:fffe parent 20:ffff leaf 8303: prio 1 rate 59936Kbit ceil 120Mbit burst 14984b
class htb 20:efff parent 20:ffff leaf 8309: prio 0 rate 64Kbit ceil 120Mbit burst 4554b
class htb 20:1 parent 20:ffff leaf 8304: prio 0 rate 20Mbit ceil 120Mbit burst 5000b cburst 30000b 
class htb 20:1a parent 20:ffff leaf 8305: prio 0 rate 40Mbit ceil 120Mbit burst 10000b
"""  # noqa: W291


def filter_json(queues: PortQueues) -> str:
    insns = ",".join(
        f'{{"code":{c},"jt":{t},"jf":{f},"k":{k}}}' for c, t, f, k in program(queues.classes)
    )
    return f'[{{"kind":"bpf"}},{{"kind":"bpf","options":{{"bytecode":{{"insns":[{insns}]}}}}}}]'


def test_read_back() -> None:
    assert read_back(CLASSES, filter_json(TWO)) == TWO
    assert differences(read_back(CLASSES, filter_json(TWO)), TWO) == []
    assert read_back("", "") is None
    assert read_back("qdisc tbf 10: root", "[]") is None
    assert parse_rate("12345Kbit") == 12_345_000
    with pytest.raises(ValueError, match="found rate '3cm'"):
        parse_rate("3cm")


def test_what_differs_is_said() -> None:
    assert differences(None, TWO) == ["no HTB"]
    found = PortQueues(100_000_000, (QueueClass(1, (2009,), 20_000_000),))
    assert differences(found, TWO) == [
        "link asked 120000000 bit/s, found 100000000",
        "path 1: asked QueueClass(number=1, vlans=(2001,), rate_bps=20000000), "
        "found QueueClass(number=1, vlans=(2009,), rate_bps=20000000)",
        "path 26: missing",
    ]
    assert differences(TWO, PortQueues(120_000_000)) == [
        "path 1: not asked for",
        "path 26: not asked for",
    ]


def test_list_of_outlets(tmp_path: Path) -> None:
    text = (
        '{"outlets": [{"switch": "a", "port": 2, "pid": 1, "interface": "w0b",'
        ' "parent": "1:1", "queue_bytes": 750000}]}'
    )
    assert outlets_from_json(text) == (OUTLET,)
    with pytest.raises(QueueError, match=r"absent: No such file"):
        read_outlets(tmp_path / "absent")
    file = tmp_path / "outlets.json"
    driver = driver_of(f"tc:{file}", network())  # it may come later
    assert isinstance(driver, QueueTc)
    with pytest.raises(QueueError, match="No such file"):
        driver.apply({})
    file.write_text('{"outlets": []}')
    driver.apply({("a", 2): TWO})
    bad = tmp_path / "bad"
    for content in ("no", "{}", '{"outlets": [{"switch": "a"}]}', "[]"):
        bad.write_text(content)
        with pytest.raises(QueueError, match="no list of outlets"):
            read_outlets(bad)


def test_option() -> None:
    assert driver_of("none", network()) is None
    assert isinstance(driver_of("ovsdb:unix:/x", network()), QueueOvsdb)
    for bad in ("", "tc", "tc:", "ovsdb", "htb:x"):
        with pytest.raises(QueueError, match=f"--queues '{bad}'; valid: none, tc:FILE"):
            driver_of(bad, network())


@pytest.fixture
def outlet() -> Iterator[Outlet]:
    """Make a veth pair with a plain shaper, in its own namespace."""
    script = (
        "ip link add v0 type veth peer name v1 && ip link set v0 up && ip link set v1 up && "
        "tc qdisc add dev v0 root handle 10: tbf rate 120mbit burst 15000 limit 750000 && "
        "echo ready && exec sleep 600"
    )
    holder = subprocess.Popen(["unshare", "--net", "sh", "-c", script], stdout=subprocess.PIPE)
    assert holder.stdout is not None
    try:
        assert holder.stdout.readline() == b"ready\n"
        yield Outlet(("a", 2), holder.pid, "v0", "root", 750_000)
    finally:
        holder.kill()
        holder.wait()
        holder.stdout.close()


def shown(outlet: Outlet, *words: str) -> str:
    argv = ["nsenter", f"--net=/proc/{outlet.pid}/ns/net", "--", "tc", *words]
    return subprocess.run(argv, capture_output=True, text=True, check=True).stdout


@pytest.mark.root
@pytest.mark.skipif(os.geteuid() != 0, reason="needs root: makes a network namespace")
def test_in_a_kernel(outlet: Outlet) -> None:
    driver = QueueTc([outlet])
    wanted = PortQueues(120_000_000)
    for number in range(1, 60):
        wanted = wanted.with_share(number, 2000 + number, 1_000_000)
        driver.apply({outlet.port: wanted, ("b", 1): wanted})  # b has no outlet
    # An independent reading: the kernel's own list.
    classes = shown(outlet, "class", "show", "dev", "v0")
    assert classes.count("rate 1Mbit ceil 120Mbit") == 59
    assert "class htb 20:fffe parent 20:ffff" in classes
    assert "rate 60936Kbit ceil 120Mbit" in classes
    assert "tbf" not in shown(outlet, "qdisc", "show", "dev", "v0")
    # A controller that starts again finds the queues, and changes nothing.
    again = QueueTc([outlet])
    again.apply({outlet.port: wanted})
    assert shown(outlet, "class", "show", "dev", "v0") == classes
    for number in range(1, 59):
        wanted = wanted.without_share(number, 2000 + number)
    again.apply({outlet.port: wanted})
    classes = shown(outlet, "class", "show", "dev", "v0")
    assert "class htb 20:3b" in classes and classes.count("\n") == 4
    subprocess.run(
        ["nsenter", f"--net=/proc/{outlet.pid}/ns/net", "--", "tc", "qdisc", "del", "dev", "v0"]
        + ["root"],
        check=True,
    )
    with pytest.raises(QueueError, match="tc in the namespace of process"):
        again.apply({outlet.port: PortQueues(120_000_000)})
    again.apply({outlet.port: PortQueues(120_000_000)})  # now it has looked


@pytest.mark.root
@pytest.mark.skipif(os.geteuid() != 0, reason="needs root: makes a network namespace")
def test_a_setting_that_did_not_take_is_an_error(
    outlet: Outlet, monkeypatch: pytest.MonkeyPatch
) -> None:
    from controller.switches import queue_tc

    def half(*arguments: Any) -> list[str]:
        return [text.replace("rate 20000000bit", "rate 10000000bit") for text in real(*arguments)]

    real = commands
    monkeypatch.setattr(queue_tc, "commands", half)
    with pytest.raises(QueueError, match="port 2 of 'a': path 1: asked .* found .*10000000"):
        QueueTc([outlet]).apply({outlet.port: TWO})


def test_a_namespace_that_is_gone_is_an_error() -> None:
    gone = subprocess.Popen(["true"])
    gone.wait()
    with pytest.raises(QueueError, match=f"namespace of process {gone.pid}"):
        QueueTc([Outlet(("a", 2), gone.pid, "v0", "root", 1)]).apply({("a", 2): TWO})
