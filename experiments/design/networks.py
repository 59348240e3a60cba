# SPDX-License-Identifier: Apache-2.0
"""The network of a cell: its topology with the receivers that take part."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Final

from common.contracts import FRAME_BYTES
from experiments.design.expansion import CellSpec
from experiments.design.spec import UsageError
from topologies.model.core_rate import with_core_rate
from topologies.model.discipline import with_discipline
from topologies.model.document import TopologyErrors, read_document
from topologies.model.handoff_loss import with_handoff_loss
from topologies.model.load import find, load
from topologies.model.network import Network
from topologies.model.receivers import with_receiver_rates, with_round_trip_of
from topologies.model.round_trip import with_round_trip, with_round_trips

__all__ = ["Networks"]

RECEIVERS = "receivers"  # the parameter of a topology whose subscribers are generated
LANES = "lanes"  # the parameter of a topology whose hosts may be on several paths
BACKGROUND_LANE: Final = 2  # of the path of competing flows


# topology, m, named subscribers, lanes, with a monitor
Key = tuple[str, int, tuple[str, ...] | None, int, bool]


class Networks:
    """Makes each network once."""

    def __init__(self) -> None:
        self._found: dict[Key, Network] = {}
        self._changed: dict[tuple[object, ...], Network] = {}

    def of(self, cell: CellSpec) -> Network:
        """Return the network with the cell's round trip, and with a lane for competing flows if the
        cell has some. Raises TopologyErrors, or UsageError if the topology does not allow it."""
        lanes = BACKGROUND_LANE if cell.has_rivals else 1
        monitored = cell.conditions.monitor == "on"
        key = (cell.topology, cell.m, cell.subscribers, lanes, monitored)
        if key not in self._found:
            path = find(cell.topology)
            has = _parameters(path)
            more: dict[str, int] = {}
            if lanes > 1:
                if LANES not in has:
                    raise UsageError(
                        f"{_rival_of(cell)} on {cell.topology}; "
                        f"valid: 0, or a topology with a parameter {LANES}, such as bottleneck"
                    )
                more = {LANES: lanes}
            if RECEIVERS in has:
                load_as = partial(_load, path, more, monitored)
                self._found[key] = _generated(load_as, cell.m, cell.subscribers)
            else:
                network = load(path, more, monitored=monitored)
                self._found[key] = _fixed(network, cell.m, cell.subscribers)
        lists = (cell.rtt_i_ms, cell.rate_i_bps, cell.queue_i_bytes, cell.bottleneck)
        changed = (key, cell.rtt_ms, cell.handoff_loss, cell.conditions, *lists)
        if changed not in self._changed:
            network = _with_bottleneck(with_rtt(self._found[key], cell.rtt_ms), cell)
            network = _with_lists(network, cell)
            network = with_handoff_loss(network, cell.handoff_loss)
            self._changed[changed] = with_discipline(network, cell.conditions.discipline)
        return self._changed[changed]


def _rival_of(cell: CellSpec) -> str:
    """Say which rivals the cell has."""
    if cell.background_flows:
        return f"background_flows: found {cell.background_flows}"
    if cell.rivals.sessions:
        return f"rival_sessions: found {cell.rivals.sessions}"
    return f"short_flows_per_min: found {cell.rivals.short_flows_per_min:g}"


def _with_bottleneck(network: Network, cell: CellSpec) -> Network:
    """Give the core links the cell's rate, if it has one. Raises UsageError."""
    if not cell.bottleneck.rate_bps:
        return network
    queue_bytes = cell.bottleneck.packets * FRAME_BYTES
    try:
        return with_core_rate(network, cell.bottleneck.rate_bps, queue_bytes)
    except ValueError as error:
        raise UsageError(f"bottleneck_bps: {error}") from None


def _with_lists(network: Network, cell: CellSpec) -> Network:
    """Apply each receiver's own conditions. Raises UsageError if they are impossible."""
    hosts = cell.subscribing(_names(network))
    rtts = cell.by_receiver(hosts, "rtt_i_ms")
    rates = cell.by_receiver(hosts, "rate_i_bps")
    try:
        if rtts:
            network = with_round_trips(network, rtts)
        if rates:
            whole = {host: int(bps) for host, bps in rates.items()}
            network = with_receiver_rates(network, whole, cell.queue_i_bytes or None)
        if (rtt_ms := cell.conditions.first.rtt_ms) is not None:
            network = with_round_trip_of(network, hosts[0], rtt_ms)
    except ValueError as error:
        raise UsageError(f"{'rtt_i_ms' if rtts else 'rate_i_bps'}: {error}") from None
    return network


def with_rtt(network: Network, rtt_ms: float | None) -> Network:
    """Return the network with the cell's round trip; None: the topology's. Raises UsageError if it
    is impossible."""
    if rtt_ms is None:
        return network
    try:
        return with_round_trip(network, rtt_ms)
    except ValueError as error:
        raise UsageError(f"rtt_ms: {error}") from None


def _parameters(path: Path) -> Collection[str]:
    data = read_document(path).data
    parameters = data.get("parameters") if isinstance(data, dict) else None
    return list(parameters) if isinstance(parameters, dict) else []


def _names(network: Network) -> list[str]:
    return [host.name for host in network.subscribers]


def _load(path: Path, more: Mapping[str, int], monitored: bool, receivers: int) -> Network:
    return load(path, {RECEIVERS: receivers, **more}, monitored=monitored)


def _fixed(network: Network, m: int, wanted: Sequence[str] | None) -> Network:
    names = _names(network)
    _check(network.name, names, wanted or ())
    if m > len(names):
        raise UsageError(
            f"receivers: found {m}; valid: at most {len(names)}, the subscribers of {network.name}"
        )
    return network


def _generated(load_as: Callable[[int], Network], m: int, wanted: Sequence[str] | None) -> Network:
    """Return the network with m receivers, or with the fewest more that include the wanted ones.

    Each network includes the receivers of a smaller one, so this is a binary search.
    """
    smallest = load_as(m)
    if wanted is None or set(wanted) <= set(_names(smallest)):
        return smallest
    found: Network | None = None
    largest, low, high = smallest, m, 0  # `high`: enough, or more than possible; 0: unknown
    while not high or high - low > 1:
        count = (low + high) // 2 if high else 2 * low
        try:
            network = load_as(count)
        except TopologyErrors:
            high = count
            continue
        if set(wanted) <= set(_names(network)):
            found, high = network, count
        else:
            largest, low = network, count
    if found is None:
        _check(largest.name, _names(largest), wanted)
        return largest
    return found


def _check(topology: str, names: Sequence[str], wanted: Sequence[str]) -> None:
    if missing := [name for name in wanted if name not in names]:
        raise UsageError(
            f"subscribers: found {', '.join(missing)}; valid: the subscribers of {topology}, "
            f"{', '.join(names)}"
        )
