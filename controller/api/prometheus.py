# SPDX-License-Identifier: Apache-2.0
"""Prometheus metrics of the path service. Pure: values in, text out."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from controller.paths.core import Core, Endpoint
from controller.paths.multipoint_path import MultipointPath, unreached
from controller.paths.stats import Count
from controller.service.counts import PathCounts

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


class _Families:
    """Families of metrics. Packets and bytes of the same thing are two families. The samples of a
    family stay together."""

    def __init__(self) -> None:
        self._families: dict[str, Metric] = {}

    def gauge(self, name: str, text: str, labels: Mapping[str, str], value: float) -> None:
        family = self._families.get(name)
        if not isinstance(family, GaugeMetricFamily):
            family = GaugeMetricFamily(name, text, labels=list(labels))
            self._families[name] = family
        family.add_metric(list(labels.values()), value)

    def counter(self, name: str, text: str, labels: Mapping[str, str], value: float) -> None:
        family = self._families.get(name)
        if not isinstance(family, CounterMetricFamily):
            family = CounterMetricFamily(name, text, labels=list(labels))
            self._families[name] = family
        family.add_metric(list(labels.values()), value)

    def count(self, name: str, text: str, labels: Mapping[str, str], count: Count) -> None:
        self.counter(f"{name}_packets", f"Frames {text}", labels, count.packets)
        self.counter(f"{name}_bytes", f"Bytes {text}", labels, count.size_bytes)

    def __iter__(self) -> Iterator[Metric]:
        return iter(self._families.values())


class _Once(Collector):
    def __init__(self, families: Iterable[Metric]) -> None:
        self._families = families

    def collect(self) -> Iterable[Metric]:
        return self._families


def text_of(
    core: Core,
    paths: Iterable[tuple[MultipointPath, bool]],
    counts: Mapping[str, PathCounts],
    switches: Mapping[str, bool],
    unexpected: Mapping[tuple[str, int | None], Count],
    reserved_bps: Callable[[str, str], int],
    down_links: Collection[str] = (),
    connections: Mapping[str, int] | None = None,
) -> bytes:
    """Return the metrics in the exposition format.

    `paths` also says whether each path is up; `switches` whether each has the entries it should
    (empty: leave out all metrics of the network, links included); `connections`: guard.Counts of
    the switches' connections.
    """
    families = _Families()
    for path, is_up in paths:
        _path(families, core, path, is_up)
        if path.name in counts:
            _counts(families, counts[path.name])
    for switch, known in switches.items():
        labels = {"switch": switch}
        families.gauge(
            "downpour_switch_up",
            "1: connected, and has the entries it should",
            labels,
            float(known),
        )
    for (switch, port), count in unexpected.items():
        if port is None:
            text = "dropped because they came from where nothing is expected"
            families.count("downpour_switch_unexpected", text, {"switch": switch}, count)
        else:
            labels = {"switch": switch, "port": str(port)}
            text = "dropped at an access port because no endpoint there has their VLAN id"
            families.count("downpour_port_wrong_vlan", text, labels, count)
    for hop in core.hops if switches else ():
        labels = {"link": hop.link, "from": hop.source}
        text = "Guaranteed to paths on a direction of a core link"
        reserved = reserved_bps(hop.link, hop.source)
        families.gauge("downpour_link_reserved_bits_per_second", text, labels, reserved)
        if hop.rate_bps is not None:
            text = "Rate of a direction of a core link"
            families.gauge("downpour_link_rate_bits_per_second", text, labels, hop.rate_bps)
    for link in dict.fromkeys(hop.link for hop in core.hops) if switches else ():
        text = "1: the link carries frames both ways, as far as its ports and probes tell"
        families.gauge("downpour_link_up", text, {"link": link}, float(link not in down_links))
    for name, number in (connections or {}).items():
        text = f"OpenFlow: {name.replace('_', ' ')}"
        families.counter(f"downpour_openflow_{name}", text, {}, number)
    return _exposed(families)


def refused_text(refused: Mapping[str, int]) -> bytes:
    """Return the metrics of what the REST interface refused, by reason."""
    families = _Families()
    text = "REST connections and requests that were refused"
    for reason, number in refused.items():
        families.counter("downpour_rest_refused", text, {"reason": reason}, number)
    return _exposed(families)


def _exposed(families: _Families) -> bytes:
    registry = CollectorRegistry()
    registry.register(_Once(families))
    return generate_latest(registry)


def _path(families: _Families, core: Core, path: MultipointPath, is_up: bool) -> None:
    labels = {"path": path.name}
    text = "1: all switches of the path confirmed it and all leaves are reachable"
    families.gauge("downpour_path_up", text, labels, float(is_up))
    text = "Guaranteed rate; 0: best effort"
    families.gauge("downpour_path_rate_bits_per_second", text, labels, path.rate_bps)
    families.gauge("downpour_path_leaves", "Leaves of the path", labels, len(path.leaves))
    lost = len(unreached(core, path))
    families.gauge("downpour_path_unreached_leaves", "Leaves that cannot be reached", labels, lost)


def _counts(families: _Families, counts: PathCounts) -> None:
    labels = {"path": counts.name}
    for kind, count in (
        ("multicast", counts.entered_multicast),
        ("unicast", counts.entered_unicast),
    ):
        text = "that entered at the root"
        families.count("downpour_path_entered", text, {**labels, "kind": kind}, count)
    text = "that the meter at the root dropped"
    families.count("downpour_path_meter_dropped", text, labels, counts.dropped)
    for leaf in counts.leaves:
        place = _place(counts.name, leaf.endpoint)
        for kind, count in (("multicast", leaf.multicast), ("unicast", leaf.unicast)):
            families.count("downpour_leaf_delivered", "to a leaf", {**place, "kind": kind}, count)
        families.count("downpour_leaf_sent", "from a leaf to the root", place, leaf.sent)
        if leaf.compared is not None:
            text = (
                "Multicast frames that passed the root and did not reach the leaf, since both "
                "are counted without a break"
            )
            families.gauge("downpour_leaf_missing_packets", text, place, leaf.compared.missing)
    for endpoint in (counts.root, *counts.leaves):
        place = _place(counts.name, endpoint.endpoint)
        for why, count in (("denied", endpoint.denied), ("spoofed", endpoint.spoofed)):
            text = "dropped at an endpoint: spoofed source, or destination not allowed (denied)"
            families.count("downpour_endpoint_dropped", text, {**place, "why": why}, count)
    for edge in counts.edges:
        link = {"from": edge.edge.source, "to": edge.edge.target, "vlan": str(edge.edge.vlan)}
        for end, count in (("sent", edge.sent), ("arrived", edge.arrived)):
            text = "of multicast into and out of an edge of the tree"
            families.count("downpour_edge", text, {**labels, **link, "end": end}, count)


def _place(path: str, endpoint: Endpoint) -> dict[str, str]:
    return {
        "path": path,
        "switch": endpoint.switch,
        "port": str(endpoint.port),
        "vlan": str(endpoint.vlan),
    }
