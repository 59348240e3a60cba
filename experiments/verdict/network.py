# SPDX-License-Identifier: Apache-2.0
"""Check that the emulated network was as asked: settings read back, frames lost, delays."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

from common.counting import counted
from common.virtual_time import Clock
from experiments.verdict.checks import Check, Limits, Status
from experiments.verdict.evidence import Evidence
from parsers.read.counters import Drop, drops_between
from protocols import registry
from topologies.watch.link_probes import LinkProbe

DROP_SHARE: Final = Limits(
    0.0,
    1e-3,
    "the smallest loss the papers inject is 1 %; a tenth of it would shift what depends on loss "
    "by 10 %",
)
RELAY_LATE_P50: Final = Limits(
    0.05, 0.25, "of the link's delay: 5 % of 18 ms is what the kernel's 250 Hz tick could add"
)
RELAY_LATE_P99: Final = 0.25  # of the link's delay: it moves the mean by less than 1 %
RELAY_LATE_P99_US: Final = (
    200_000.0  # TCP's least retransmission timeout: a frame this late makes TCP retransmit
)
RELAY_FRAMES_MIN: Final = {"half": 10, "1 %": 1000}  # with fewer frames there is no such quantile
RELAY_LATE_FLOOR_US: Final = 1000.0  # below this, lateness never matters
RELAY_LATE_VIRTUAL_US: Final = Limits(
    100.0, 1000.0, "wire-relay sleeps until a frame is due; nothing but a timer's slack is left"
)
RTT_ERROR_MS: Final[Mapping[Clock, Limits]] = {
    "native": Limits(
        2.0, 10.0, "pings over the relay were measured 0.4 to 1.4 ms above the asked delay"
    ),
    "virtual": Limits(0.1, 1.0, "measured within 0.001 ms of the asked delay"),
}
LINK_DELAY_ERROR_MS: Final[Mapping[Clock, Limits]] = {
    "native": Limits(
        1.0, 5.0, "one way, half of a round trip's; measured 0.01 to 0.21 ms on a busy machine"
    ),
    "virtual": Limits(0.05, 0.5, "half of a round trip's; measured within 0.001 ms"),
}
RTT_ERROR_SHARE: Final = Limits(
    0.2,
    0.5,
    "of the asked round trip: what is less than a millisecond off is nothing at 100 ms and "
    "most of it at 1 ms",
)


def settings(name: str, wrong: Sequence[str], checked: int) -> Check:
    """Check that every value read back is as asked. `wrong`: one text for each that is not."""
    if checked == 0:
        return Check(name, "fail", "read back", "nothing", "no value was read back")
    if wrong:
        text = "; ".join(wrong[:10]) + ("; ..." if len(wrong) > 10 else "")
        return Check(name, "fail", checked, checked - len(wrong), text)
    return Check(name, "pass", checked, checked, f"all {checked} values read back as asked")


def drops(evidence: Evidence) -> list[Check]:
    """Check for losses that nobody injected, by place."""
    lost = [
        d
        for d in drops_between(evidence.start, evidence.end, evidence.lossy_links)
        # A full send buffer only makes the sender wait: nothing is lost.
        if not d.injected and d.what != "UDP sndbuf_errors"
    ]
    own = f"{evidence.publisher}/{evidence.publisher_nic1}"
    shaper = [d for d in lost if d.what == "qdisc drops" and d.place.startswith(own + "/")]
    # The interface counts again what its qdisc drops.
    repeated = [d for d in lost if d.place == own and d.what == "interface tx_dropped"]
    wanted = [d for d in lost if _interface(d) in evidence.congested and d not in shaper]
    overflow = [d for d in lost if _buffers_on_purpose(evidence, d)]
    told = [*shaper, *repeated, *wanted, *overflow]
    elsewhere = [d for d in lost if d not in told]
    packets = _expected_packets(evidence)
    checks = [
        _unless_varied(
            evidence,
            ("b_mc", "b_uc"),
            _drop_check(
                "drops at the sender's shaper",
                [f"{d.place}: {d.packets} ({d.what})" for d in shaper],
                sum(d.packets for d in shaper),
                packets,
                # TCP sees its own drops and slows down; UDP loses the datagram for all receivers.
                worst="fail" if registry.get(evidence.protocol).multicast else "warn",
            ),
        ),
        _drop_check(
            "uninjected drops",
            [f"{d.place}: {d.packets} ({d.what})" for d in elsewhere],
            sum(d.packets for d in elsewhere),
            packets,
        ),
    ]
    if evidence.congested:
        checks.append(
            Check(
                "drops where flows compete",
                "n/a",
                None,
                sum(d.packets for d in wanted),
                "does not apply: full queues drop frames on purpose; "
                + ("; ".join(f"{d.place}: {d.packets} ({d.what})" for d in wanted[:8]) or "none"),
            )
        )
    if evidence.protocol == "ldm7":
        checks.append(_unless_varied(evidence, ("b_rcv",), _socket_drops(evidence, packets)))
    return checks


def _buffers_on_purpose(evidence: Evidence, drop: Drop) -> bool:
    """Return whether a receiver's UDP buffer should overflow; see also `_socket_drops`."""
    return drop.what == "UDP rcvbuf_errors" and (
        drop.place == evidence.paused or "b_rcv" in evidence.varied
    )


def _socket_drops(evidence: Evidence, packets: int) -> Check:
    by_host = {host: s.socket_drops for host, s in evidence.receivers.items() if s is not None}
    on_purpose = by_host.pop(evidence.paused, 0) if evidence.paused else 0
    check = _drop_check(
        "drops of FMTP's UDP sockets",
        [f"{host}: {dropped}" for host, dropped in by_host.items() if dropped],
        sum(by_host.values()),
        packets,
    )
    if not on_purpose:
        return check
    own = f"{evidence.paused}, which is paused on purpose: {on_purpose}"
    return replace(check, text=f"{own}; others: {check.text}")


def _unless_varied(evidence: Evidence, buffers: Sequence[str], check: Check) -> Check:
    """Return the check of drops at a buffer. If the experiment varies the buffer's size, the drops
    are a result, not a fault."""
    varied = [name for name in buffers if name in evidence.varied]
    if not varied or check.status == "pass":
        return check
    text = f"does not apply: {' and '.join(varied)} varies; {check.text}"
    return Check(check.name, "n/a", None, check.found, text)


def _interface(drop: Drop) -> str:
    """Return "<node>/<interface>" of a drop at a queue or an interface."""
    return "/".join(drop.place.split("/")[:2])


def _expected_packets(evidence: Evidence) -> int:
    """Return the packets that left the sender's NIC1, times the number of copies that the network
    makes of each."""
    key = f"{evidence.publisher}/{evidence.publisher_nic1}"
    after = evidence.end.interfaces.get(key)
    before = evidence.start.interfaces.get(key)
    sent = (after.tx_packets if after else 0) - (before.tx_packets if before else 0)
    return max(0, sent) * (evidence.m if registry.get(evidence.protocol).multicast else 1)


def _drop_check(
    name: str, places: Sequence[str], dropped: int, packets: int, worst: Status = "fail"
) -> Check:
    if dropped == 0:
        return Check(name, "pass", 0, 0, "none")
    share = dropped / packets if packets else 1.0
    status = DROP_SHARE.status(share)
    if status == "fail":
        status = worst
    text = f"{counted(dropped, 'packet')} ({100 * share:.3g} % of {packets}): " + "; ".join(
        places[:8]
    )
    return Check(name, status, 0, dropped, text + ("; ..." if len(places) > 8 else ""))


def link_delays(evidence: Evidence) -> list[Check]:
    """Check each impaired link and direction by probes, before and after the replay."""
    return [_link_delays(when, evidence) for when in ("before", "after")]


def _link_delays(when: str, evidence: Evidence) -> Check:
    name = f"link delays {when} the replay"
    probes = evidence.probes.get(when, ())
    if not probes:
        if evidence.links_checked == 0:
            return Check(name, "n/a", None, None, "no link has a delay, rate or loss")
        return Check(name, "fail", None, None, "not measured")
    limit = LINK_DELAY_ERROR_MS[evidence.clock]
    silent = [p for p in probes if p.least_ms is None]
    if silent:
        text = "no probe came through: " + ", ".join(f"{p.link} {p.direction}" for p in silent[:8])
        return Check(name, "fail", len(probes), len(probes) - len(silent), text)
    worst = max(probes, key=_delay_error)
    found, error = _delay_found(worst), round(_delay_error(worst), 6)
    text = (
        f"{counted(len(probes), 'direction')}; worst: "
        f"{worst.link} {worst.direction}, {found:.3f} ms instead "
        f"of {worst.asked_ms:g} ms"
    )
    status = limit.status(error)
    lost = [p for p in probes if p.received < p.sent and p.loss == 0]
    if lost:
        text += "; probes lost where no loss is asked: " + ", ".join(
            f"{p.link} {p.direction} {p.sent - p.received} of {p.sent}" for p in lost[:8]
        )
        status = "warn" if status == "pass" else status
    return Check(name, status, worst.asked_ms, round(found, 6), text)


def _delay_found(probe: LinkProbe) -> float:
    """Return the shortest of several probes: the link's delay, unless it varies on purpose."""
    found = probe.median_ms if probe.jitter_ms > 0 else probe.least_ms
    assert found is not None
    return found


def _delay_error(probe: LinkProbe) -> float:
    return max(0.0, abs(_delay_found(probe) - probe.asked_ms) - probe.jitter_ms)


def round_trips(evidence: Evidence) -> list[Check]:
    """Check each subscriber's smallest ping over the path against the topology, before the replay
    and, if pings could be sent, after it."""
    asked, after = evidence.rtt_asked_ms, evidence.rtt_after_ms
    checks = [_round_trips("round-trip times", asked, evidence.rtt_measured_ms, evidence.clock)]
    if after:
        wanted = {host: asked[host] for host in after}
        checks.append(
            _round_trips("round-trip times after the replay", wanted, after, evidence.clock)
        )
    return checks


def _round_trips(
    name: str, asked: Mapping[str, float], found: Mapping[str, float], clock: Clock
) -> Check:
    if missing := sorted(set(asked) - set(found)):
        return Check(name, "fail", None, None, f"not measured: {', '.join(missing)}")
    errors = {host: found[host] - asked[host] for host in asked}
    if not errors:
        return Check(name, "fail", None, None, "not measured")
    worst = max(errors, key=lambda host: abs(errors[host]))
    digits = 3 if clock == "virtual" else 2
    text = f"worst: {worst}, {found[worst]:.{digits}f} ms instead of {asked[worst]:g} ms"
    # Ping prints microseconds: do not exceed a limit by the last bit of a difference.
    status = RTT_ERROR_MS[clock].status(round(abs(errors[worst]), 6))
    far = max(errors, key=lambda host: abs(errors[host]) / asked[host])
    share = abs(errors[far]) / asked[far]
    if (of_share := RTT_ERROR_SHARE.status(round(share, 6))) in ("warn", "fail"):
        text += f"; {far}, {100 * share:.0f} % from {asked[far]:g} ms"
        status = "fail" if "fail" in (status, of_share) else "warn"
    return Check(name, status, asked[worst], found[worst], text)


def relay_lateness(evidence: Evidence) -> list[Check]:
    """Check how late wire-relay delivers frames: the median, and the worst 1 %.

    Stalls of about 20 ms now and then (a virtual machine's disk can cause them) make the worst 1 %
    late and leave the median alone: that deserves a warning, but the figures stand. Virtual time
    has no stalls: there, both have the same narrow limit.
    """
    checks = []
    for share, name in (("half", "delay lateness, median"), ("1 %", "delay lateness, 1 %")):
        warn = RELAY_LATE_P50.warn if share == "half" else RELAY_LATE_P99
        worst: tuple[float, str, float, float, float] | None = None
        for place, relay in evidence.end.relay.items():
            late_us = relay.late_p50_us if share == "half" else relay.late_p99_us
            if late_us is None or relay.frames < RELAY_FRAMES_MIN[share]:
                continue
            delay_ms = evidence.relay_delay_ms.get(place, 0.0)
            allowed_us = max(RELAY_LATE_FLOOR_US, warn * delay_ms * 1000)
            if evidence.clock == "virtual":
                allowed_us = RELAY_LATE_VIRTUAL_US.warn
            if worst is None or late_us / allowed_us > worst[0]:
                worst = (late_us / allowed_us, place, late_us, delay_ms, allowed_us)
        if worst is None:
            continue
        excess, place, late_us, delay_ms, allowed_us = worst
        if evidence.clock == "virtual":
            status = RELAY_LATE_VIRTUAL_US.status(late_us)
        elif share == "half":
            status = RELAY_LATE_P50.status(excess * RELAY_LATE_P50.warn)
        else:
            status = "pass" if excess <= 1 else "warn" if late_us <= RELAY_LATE_P99_US else "fail"
        text = f"worst: {place}, {share} of its frames more than {late_us:.0f} us late"
        checks.append(
            Check(
                name, status, f"at most {allowed_us:.0f} us", late_us, f"{text} on {delay_ms:g} ms"
            )
        )
    return checks
