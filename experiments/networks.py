# SPDX-License-Identifier: Apache-2.0
"""The network of a cell: its topology with as many receivers as take part."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from experiments.plan import CellSpec
from experiments.spec import UsageError
from topologies.document import TopologyErrors, read_document
from topologies.handoff_loss import with_handoff_loss
from topologies.load import find, load
from topologies.model import Network

__all__ = ["Networks"]

RECEIVERS = "receivers"  # the parameter of a topology whose subscribers are generated


class Networks:
    """Reads each network once."""

    def __init__(self) -> None:
        self._found: dict[tuple[str, int, tuple[str, ...] | None], Network] = {}

    def of(self, cell: CellSpec) -> Network:
        """Raises TopologyErrors, or UsageError if the topology has not these subscribers."""
        key = (cell.topology, cell.m, cell.subscribers)
        if key not in self._found:
            path = find(cell.topology)
            if _has_receivers(path):
                self._found[key] = _generated(path, cell.m, cell.subscribers)
            else:
                self._found[key] = _fixed(path, cell.m, cell.subscribers)
        return with_handoff_loss(self._found[key], cell.handoff_loss)


def _has_receivers(path: Path) -> bool:
    data = read_document(path).data
    parameters = data.get("parameters") if isinstance(data, dict) else None
    return isinstance(parameters, dict) and RECEIVERS in parameters


def _names(network: Network) -> list[str]:
    return [host.name for host in network.subscribers]


def _fixed(path: Path, m: int, wanted: Sequence[str] | None) -> Network:
    network = load(path)
    names = _names(network)
    _check(network.name, names, wanted or ())
    if m > len(names):
        raise UsageError(
            f"receivers: found {m}; valid: at most {len(names)}, the subscribers of {network.name}"
        )
    return network


def _generated(path: Path, m: int, wanted: Sequence[str] | None) -> Network:
    """With m receivers, or with as few more as the wanted ones are among."""
    network = load(path, {RECEIVERS: m})
    count = m
    while wanted is not None and not set(wanted) <= set(_names(network)):
        count += 1
        try:
            network = load(path, {RECEIVERS: count})
        except TopologyErrors:  # more than it can have
            _check(network.name, _names(network), wanted)
            raise
    return network


def _check(topology: str, names: Sequence[str], wanted: Sequence[str]) -> None:
    if missing := [name for name in wanted if name not in names]:
        raise UsageError(
            f"subscribers: found {', '.join(missing)}; valid: the subscribers of {topology}, "
            f"{', '.join(names)}"
        )
