# SPDX-License-Identifier: Apache-2.0
"""Timers of protocols against theory: ping's pace, TCP's retransmissions and delayed ACKs.

ping (iputils before 20231222) takes a clock below 1 s since boot for "nothing sent yet" and sends
the next packet as soon as an answer has come. A guest already runs programs in that second, a
machine is still booting. Hence a guest's programs start when its clock is past it, and ping is the
first of them here.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from common.shell import NetworkError, check
from virtual.selftest import parse, theory
from virtual.selftest.pair import ADDRESS, NOBODY, Host, Pair, cable, ready
from virtual.selftest.rows import Row
from virtual.selftest.timers import WHEEL, Timing

PORT: Final = 5002
WATCH_S: Final = 20.0  # how long retransmissions are watched
RTO_S: Final = 0.2
DELAYED_ACK_S: Final = 0.04
PING_DELAY_S: Final = 0.025

PING_AT_ONCE: Final = (
    "between packets ping waits in recvmsg (SO_RCVTIMEO), set again when it expires: the interval "
    "is the next multiple of the timer wheel's granularity; the first begins anywhere in it; ping "
    "counts in ms"
)
PING_LATER: Final = (
    "after an answer ping waits in poll for the rest of its interval: 0.1 % late; ping counts in ms"
)
BACKOFF: Final = (
    "timer wheel, as above; for data the 200 ms are rounded up to a tick, which doubles with them"
)


def ping_itself(count: int, interval_s: float) -> parse.Ping:
    """Run ping on the loopback interface, where answers come at once. Raises NetworkError,
    ValueError."""
    words = ("-q", "-i", f"{interval_s:g}", "-c", str(count))
    return parse.ping(check(["ping", *words, "127.0.0.1"]))


def ping_rows(kernel: Timing, first: parse.Ping) -> Iterator[Row]:
    """Compare the time from the first to the last packet, by ping itself. `first`: `ping_itself(3,
    1)`, run before all else."""
    yield _ping_row("ping -i 1 -c 3, the first program of all", first, 3, 1.0, kernel)
    for count, interval_s in ((20, 1.0), (20, 0.2)):
        test = f"ping -i {interval_s:g} -c {count}"
        yield _ping_row(test, ping_itself(count, interval_s), count, interval_s, kernel)
    with cable() as pair:
        yield from _ping_delayed(pair)


def _ping_row(test: str, found: parse.Ping, count: int, interval_s: float, kernel: Timing) -> Row:
    repeat_s = theory.wheel_repeat_s(interval_s, kernel.tick_s)
    late_s = theory.wheel_late_s(interval_s, kernel.tick_s)
    # The first interval is between the requested time and the latest possible one, the others are
    # alike.
    return Row(
        test, "ms", (count - 1) * repeat_s * 1e3, _sent_all(found, count),
        (repeat_s - interval_s) * 1e3 + 1, (interval_s + late_s - repeat_s) * 1e3 + 1, PING_AT_ONCE,
    )  # fmt: skip


def _sent_all(found: parse.Ping, count: int) -> float:
    if (found.sent, found.received) != (count, count):
        raise NetworkError(f"ping: {found.sent} sent, {found.received} received; valid: {count}")
    return float(found.ms)


def _ping_delayed(pair: Pair) -> Iterator[Row]:
    count = 20
    theory_ms = (count - 1) * 1e3
    test = f"ping -i 1 -c {count}, netem {PING_DELAY_S * 1e3:g} ms each way"
    tolerance = (1.0, (count - 1) * 2.0)
    try:
        for host in (pair.a, pair.b):
            host.run(
                "tc", "qdisc", "replace", "dev", host.interface, "root",
                "netem", "delay", f"{PING_DELAY_S * 1e3:g}ms",
            )  # fmt: skip
    except NetworkError as error:
        missing = " ".join(str(error).split())[-160:]
        yield Row(test, "ms", theory_ms, None, *tolerance, PING_LATER, missing)
        return
    found = parse.ping(pair.a.run("ping", "-q", "-i", "1", "-c", str(count), ADDRESS["b"]))
    yield Row(test, "ms", theory_ms, _sent_all(found, count), *tolerance, PING_LATER)


def tcp_rows(kernel: Timing) -> Iterator[Row]:
    """Measure TCP's timers by tcpdump at b's interface."""
    with cable() as pair:
        # Otherwise a connection would begin with the round-trip time of the one before, delayed
        # ACKs included.
        pair.a.sysctl("net.ipv4.tcp_no_metrics_save=1")
        yield from _syn_rows(pair, kernel)
        yield from _ack_rows(pair, kernel)
        yield from _rto_rows(pair, kernel)


@contextmanager
def _talking(host: Host, *words: str) -> Iterator[subprocess.Popen[str]]:
    process = host.popen(sys.executable, "-m", "virtual.selftest.talk", *words)
    with process:
        try:
            ready(process, process.stdout, "ready")
            yield process
        finally:
            process.kill()


def intervals_s(found: list[parse.Segment]) -> list[float]:
    """Return the seconds between each time and the next."""
    return [(b.ns - a.ns) / 1e9 for a, b in zip(found, found[1:], strict=False)]


def within(intervals: list[float], seconds: float) -> int:
    """Return how many of these consecutive intervals fit into `seconds` when each is up to 15 %
    late (the timer wheel is at most an eighth late)."""
    passed, count = 0.0, 0
    for interval in intervals:
        passed += interval * 1.15
        if passed > seconds:
            break
        count += 1
    return count


def _backoff_rows(
    name: str,
    expected_s: list[float],
    measured_s: list[float],
    rounding_s: list[float],
    kernel: Timing,
) -> Iterator[Row]:
    for number, (expected, rounding) in enumerate(zip(expected_s, rounding_s, strict=True)):
        above_s = theory.wheel_late_s(expected, kernel.tick_s) + rounding
        value = measured_s[number] * 1e3 if number < len(measured_s) else None
        missing = "" if value is not None else f"{len(measured_s)} retransmissions were seen"
        yield Row(
            f"{name} {number + 1}", "ms", expected * 1e3, value, 0, above_s * 1e3, BACKOFF, missing
        )


def _syn_rows(pair: Pair, kernel: Timing) -> Iterator[Row]:
    sysctl = Path("/proc/sys/net/ipv4/tcp_syn_linear_timeouts")
    linear = int(sysctl.read_text()) if sysctl.exists() else 0
    seen: list[parse.Segment] = []
    with pair.captured(seen):
        caller = pair.a.popen(
            sys.executable,
            "-m",
            "virtual.selftest.talk",
            "call",
            NOBODY,
            str(PORT),
            "syn",
            f"{WATCH_S:g}",
        )
        with caller:
            caller.communicate()
    found = parse.transmissions(seen, seen[0].source) if seen else []
    expected_s = theory.syn_intervals_s(8, linear)
    expected_s = expected_s[: within(expected_s, WATCH_S)]
    none = [0.0] * len(expected_s)
    yield from _backoff_rows(
        "TCP SYN, retransmission", expected_s, intervals_s(found), none, kernel
    )


def _ack_rows(pair: Pair, kernel: Timing) -> Iterator[Row]:
    seen: list[parse.Segment] = []
    with (
        _talking(pair.b, "serve", str(PORT)),
        pair.captured(seen),
        _talking(pair.a, "call", ADDRESS["b"], str(PORT), "acks", "0.5") as caller,
    ):
        caller.wait()
    delays_s = parse.ack_delays_s(seen, f"{ADDRESS['b']}.{PORT}")
    above_s = theory.wheel_late_s(DELAYED_ACK_S, kernel.tick_s)
    for number in range(3):
        value = delays_s[number] * 1e3 if number < len(delays_s) else None
        missing = "" if value is not None else f"{len(delays_s)} acknowledgements were seen"
        yield Row(
            f"TCP delayed ACK {number + 1}",
            "ms",
            DELAYED_ACK_S * 1e3,
            value,
            0,
            above_s * 1e3,
            WHEEL,
            missing,
        )


def _rto_rows(pair: Pair, kernel: Timing) -> Iterator[Row]:
    # Otherwise the tail loss probe would come before the first retransmission.
    pair.a.sysctl("net.ipv4.tcp_early_retrans=0")
    seen: list[parse.Segment] = []
    with (
        _talking(pair.b, "serve", str(PORT)),
        pair.captured(seen),
        _talking(pair.a, "call", ADDRESS["b"], str(PORT), "data", f"{WATCH_S:g}") as caller,
    ):
        pair.b.run("ip", "route", "add", "blackhole", f"{ADDRESS['a']}/32")
        assert caller.stdin is not None
        caller.stdin.write("\n")
        caller.stdin.flush()
        caller.wait()
    source = next((s.source for s in seen if s.target == f"{ADDRESS['b']}.{PORT}"), "")
    found = parse.transmissions([s for s in seen if s.length > 0], source)
    expected_s = theory.rto_intervals_s(10, RTO_S)
    expected_s = expected_s[: within(expected_s, WATCH_S - 2)]
    rounding = [kernel.tick_s * 2**n for n in range(len(expected_s))]
    yield from _backoff_rows(
        "TCP data, retransmission", expected_s, intervals_s(found), rounding, kernel
    )
