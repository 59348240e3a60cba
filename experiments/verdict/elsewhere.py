# SPDX-License-Identifier: Apache-2.0
"""Checks of hosts on other machines: how far their clocks differ, and whether tunnels lose frames.
Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from experiments.verdict.checks import Check, Limits

HERE: Final = "this machine"
NAMES: Final = ("offset of the hosts' clocks", "tunnels to the hosts")
OFFSET_MS: Final = Limits(
    1.0, 10.0, "a latency is a receiver's time less the sender's: the offset is its error"
)
LOST: Final = Limits(0.0, 1e-4, "the emulated links lose what was asked; a tunnel must lose none")


@dataclass(frozen=True)
class Tunnel:
    """Frames of one NIC's tunnel during the replay."""

    nic: str
    sent: int
    lost: int


@dataclass(frozen=True)
class Elsewhere:
    """A host on another machine. Offsets: its clock less this machine's, before and after the
    replay; the true ones are within `error_ms`."""

    machine: str
    offsets_ms: tuple[float, ...]
    error_ms: float
    tunnels: tuple[Tunnel, ...]


def parse(raw: Mapping[str, Any], nics: Mapping[str, str]) -> Elsewhere:
    """Read a host of hosts.json. `nics`: its interface of the path by host; the other carries
    control traffic that does not stop. Raises KeyError or TypeError for anything else."""
    looks = [look for look in (raw["before"], raw["after"]) if look]
    tunnels = []
    if raw["after"]:
        for nic, end in raw["after"]["tunnels"].items():
            if nic not in nics.values():
                continue
            begin = raw["before"]["tunnels"][nic]
            grown = {name: end[name] - begin[name] for name in end}
            out = max(0, grown["sent_there"] - grown["received_here"])
            back = max(0, grown["sent_here"] - grown["received_there"])
            sent = grown["sent_there"] + grown["sent_here"]
            tunnels.append(Tunnel(nic, sent, out + back))
    return Elsewhere(
        raw["machine"],
        tuple(look["offset_ms"] for look in looks),
        max(look["error_ms"] for look in looks),
        tuple(tunnels),
    )


def elsewhere_checks(hosts: Mapping[str, Elsewhere], publisher: str) -> list[Check]:
    """Return the checks; none if all hosts are here."""
    return [_clocks(hosts, publisher), _tunnels(hosts)] if hosts else []


def _clocks(hosts: Mapping[str, Elsewhere], publisher: str) -> Check:
    """Check each clock against the publisher's. The worst of two looks counts, with the error of
    both measurements."""
    if silent := [name for name, host in hosts.items() if len(host.offsets_ms) < 2]:
        text = f"{', '.join(silent)} did not answer after the replay"
        return Check(NAMES[0], "fail", OFFSET_MS.warn, None, text)
    here = Elsewhere("", (0.0,), 0.0, ())
    clocks = {HERE: here, **hosts}  # other hosts have this machine's clock
    source = clocks.pop(publisher, here)
    found = {}
    for name, host in clocks.items():
        offset = max(abs(a - b) for a in host.offsets_ms for b in source.offsets_ms)
        found[name] = (offset, host.error_ms + source.error_ms)
    name = max(found, key=lambda one: sum(found[one]))
    offset, error = found[name]
    text = f"{name} differs from the publisher by {offset:.3f} ms, known within {error:.3f} ms"
    worst = offset + error
    return Check(NAMES[0], OFFSET_MS.status(worst), OFFSET_MS.warn, round(worst, 4), text)


def _tunnels(hosts: Mapping[str, Elsewhere]) -> Check:
    """Check that the tunnels of the path lost no frame."""
    found = [(name, t) for name, host in hosts.items() for t in host.tunnels]
    if not found:
        return Check(NAMES[1], "fail", 0, None, "their frames were not counted")
    name, worst = max(found, key=lambda one: one[1].lost / max(1, one[1].sent))
    sent = sum(t.sent for _, t in found)
    lost = sum(t.lost for _, t in found)
    text = f"{lost} of {sent} frames lost; worst {name}/{worst.nic}: {worst.lost} of {worst.sent}"
    share = worst.lost / max(1, worst.sent)
    return Check(NAMES[1], LOST.status(share), 0, lost, text)
