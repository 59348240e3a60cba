# SPDX-License-Identifier: Apache-2.0
"""Queueing disciplines, meters and VLANs of the kernel against theory.

Frames are counted as the kernel counts them at an egress: with the Ethernet header, but without
preamble, frame check sequence and VLAN tag (which is stored beside the packet).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from common.counting import counted
from common.shell import NetworkError, check
from virtual.selftest import parse, theory
from virtual.selftest.pair import MAC, Host, Pair, cable, openflow, switch
from virtual.selftest.rows import Row

PAYLOAD_BYTES: Final = 1000
SIZE_BYTES: Final = theory.frame_bytes(PAYLOAD_BYTES)
FRAMES: Final = 300
RATE_BPS: Final = 10e6
BURST_BYTES: Final = 10 * SIZE_BYTES + SIZE_BYTES // 2
DELAY_S: Final = 0.020
DELAYED: Final = 50
METER_BURST_BITS: Final = 1e6
# Twice what the meter allows, for 2 s.
OFFER: Final = theory.Offer(4800, SIZE_BYTES, SIZE_BYTES * 8 / (2 * RATE_BPS))
TAGGED: Final = 50

NETEM: Final = (
    "netem's timer has no slack: 5 us for clock readings (256 ns each) from the sender's stamp "
    "to the queue"
)
SPAN: Final = (
    "20 us: tokens are kept in ns, the burst is set in steps of 64 ns, the first frames leave some "
    "clock readings (256 ns each) apart"
)
METER: Final = (
    "counts time in whole milliseconds (net/openvswitch/meter.c): 1 ms of the rate, and 1 frame"
)
COUNTED: Final = "counted"


def _qdisc(host: Host, *words: str) -> None:
    host.run("tc", "qdisc", "replace", "dev", host.interface, "root", *words)


def _measured(rows: list[Row], measure: Callable[[], list[float]]) -> Iterator[Row]:
    """Yield the rows with measured values, or with the reason why there are none."""
    try:
        values: list[float | None] = list(measure())
        missing = ""
    except NetworkError as error:
        values, missing = [None] * len(rows), " ".join(str(error).split())[-160:]
    for row, value in zip(rows, values, strict=True):
        yield Row(row.test, row.unit, row.theory, value, row.below, row.above, row.reason, missing)


def one_way_s(found: list[parse.Arrival]) -> tuple[float, float]:
    """Return (shortest, longest) time from the sender's stamp to the kernel's. Raises NetworkError
    if a datagram is missing."""
    if len(found) != DELAYED:
        raise NetworkError(f"{len(found)} of {DELAYED} datagrams arrived")
    delays = [(a.arrived_ns - a.sent_ns) / 1e9 for a in found]
    return min(delays), max(delays)


def span_s(found: list[parse.Arrival], count: int) -> float:
    """Return the time from first to last arrival. Raises NetworkError if a datagram is missing."""
    if len(found) != count:
        raise NetworkError(f"{len(found)} of {counted(count, 'datagram')} arrived")
    return (found[-1].arrived_ns - found[0].arrived_ns) / 1e9


def _template(
    test: str, unit: str, theory_value: float, below: float, above: float, reason: str
) -> Row:
    return Row(test, unit, theory_value, None, below, above, reason, "not yet")


def cable_rows() -> Iterator[Row]:
    """Measure netem, HTB and TBF at a's egress: delays from a's program to b's interface, rates at
    b's interface."""
    with cable() as pair:
        yield from _delay_rows(pair)
        yield from _rate_rows(pair)


def _delay_rows(pair: Pair) -> Iterator[Row]:
    def delays() -> list[float]:
        _qdisc(pair.a, "netem", "delay", f"{DELAY_S * 1e3:g}ms")
        found = one_way_s(pair.datagrams(DELAYED, PAYLOAD_BYTES, 0.010))
        return [value * 1e3 for value in found]

    asked_ms = DELAY_S * 1e3
    rows = [
        _template(
            f"netem {asked_ms:g} ms, {which} of {DELAYED} datagrams", "ms", asked_ms, 0, 5e-3, NETEM
        )
        for which in ("shortest", "longest")
    ]
    yield from _measured(rows, delays)


def _rate_rows(pair: Pair) -> Iterator[Row]:
    rate, burst = f"{RATE_BPS / 1e6:g}mbit", f"{BURST_BYTES}b"

    def netem() -> None:
        _qdisc(pair.a, "netem", "rate", rate)

    def htb() -> None:
        interface = pair.a.interface
        _qdisc(pair.a, "handle", "1:", "htb", "default", "1")
        pair.a.run(
            "tc", "class", "replace", "dev", interface, "parent", "1:", "classid", "1:1", "htb",
            "rate", rate, "ceil", rate, "burst", burst, "cburst", burst, "quantum", "2000",
        )  # fmt: skip
        pair.a.run(
            "tc", "qdisc", "replace", "dev", interface, "parent", "1:1", "pfifo", "limit", "2000"
        )

    def tbf() -> None:
        _qdisc(pair.a, "tbf", "rate", rate, "burst", burst, "limit", "10000000")

    spans: list[tuple[str, Callable[[], None], float]] = [
        ("netem rate", netem, theory.netem_rate_span_s(FRAMES, SIZE_BYTES, RATE_BPS)),
        ("HTB rate", htb, theory.htb_span_s(FRAMES, SIZE_BYTES, RATE_BPS, BURST_BYTES)),
        ("TBF rate", tbf, theory.tbf_span_s(FRAMES, SIZE_BYTES, RATE_BPS, BURST_BYTES)),
    ]
    for name, shape, expected_s in spans:

        def measure(shape: Callable[[], None] = shape) -> list[float]:
            pair.a.run("tc", "qdisc", "replace", "dev", pair.a.interface, "root", "pfifo")
            shape()
            return [span_s(pair.datagrams(FRAMES, PAYLOAD_BYTES, 0.0), FRAMES) * 1e3]

        test = f"{name} 10 Mbit/s, {FRAMES} frames of {SIZE_BYTES} B"
        yield from _measured([_template(test, "ms", expected_s * 1e3, 20e-3, 20e-3, SPAN)], measure)


def switch_rows(directory: Path) -> Iterator[Row]:
    """Measure meter and VLAN translation of the kernel's Open vSwitch."""
    tests = [
        _template(
            "meter 10 Mbit/s, burst 1 Mbit, 2 s of 20 Mbit/s", "frames",
            theory.meter_frames(OFFER, RATE_BPS, METER_BURST_BITS),
            1 + RATE_BPS * 1e-3 / (SIZE_BYTES * 8), 1 + RATE_BPS * 1e-3 / (SIZE_BYTES * 8), METER,
        ),
        _template("802.1Q tag 100 to a host that has only 200", "frames", 0, 0, 0, COUNTED),
        _template("the same, switch translates 100 to 200", "frames", TAGGED, 0, 0, COUNTED),
    ]  # fmt: skip
    if not Path("/sys/module/openvswitch").exists() and not _knows_openvswitch():
        yield from (_absent(test, "this kernel has no Open vSwitch") for test in tests)
        return
    try:
        with switch(directory) as pair:
            yield from _measured(tests[:1], lambda: [_metered(pair)])
            yield from _measured(tests[1:], lambda: _tagged(pair))
    except NetworkError as error:
        raise NetworkError(f"Open vSwitch: {error}") from None


def _absent(row: Row, why: str) -> Row:
    return Row(row.test, row.unit, row.theory, None, row.below, row.above, row.reason, why)


def _knows_openvswitch() -> bool:
    """Return whether it is built in or loadable: the netlink family exists, or modprobe finds
    it."""
    try:
        check(["ovs-dpctl", "dump-dps"])
    except NetworkError:
        return False
    return True


def _metered(pair: Pair) -> float:
    openflow("add-meter", (
        f"meter=1,kbps,burst,stats,band=type=drop,rate={RATE_BPS / 1e3:g},"
        f"burst_size={METER_BURST_BITS / 1e3:g}"
    ))  # fmt: skip
    openflow("add-flow", "priority=1,in_port=1,actions=meter:1,output:2")
    return len(pair.datagrams(OFFER.frames, PAYLOAD_BYTES, OFFER.interval_s))


def _tagged(pair: Pair) -> list[float]:
    for host, vlan, address in ((pair.a, 100, "10.8.0.1"), (pair.b, 200, "10.8.0.2")):
        name = f"{host.interface}.{vlan}"
        host.run(
            "ip",
            "link",
            "add",
            "link",
            host.interface,
            "name",
            name,
            "type",
            "vlan",
            "id",
            str(vlan),
        )
        host.run("ip", "link", "set", name, "address", MAC[host.name])
        host.address(name, address)
    counts: list[float] = []
    for actions in ("output:2", "set_field:4296->vlan_vid,output:2"):  # 4096 (tagged) + 200
        openflow("add-flow", f"priority=2,in_port=1,dl_vlan=100,actions={actions}")
        check(["ovs-appctl", "revalidator/wait"])  # the datapath then has the flow
        counts.append(_delivered(pair))
    return counts


def _delivered(pair: Pair) -> int:
    """Return how many frames b's tagged interface accepted while a was sending."""
    counter = Path(f"/sys/class/net/{pair.b.interface}.200/statistics/rx_packets")
    before = int(pair.b.run("cat", str(counter)))
    pair.send(TAGGED, PAYLOAD_BYTES, 1e-3, to="10.8.0.2")
    pair.a.run("sleep", "0.1")
    return int(pair.b.run("cat", str(counter))) - before
