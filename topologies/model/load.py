# SPDX-License-Identifier: Apache-2.0
"""Load a topology file as a `Network`: the one function that the rest of Downpour calls."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from common.nearest import did_you_mean
from common.places import TOPOLOGIES
from topologies.model.document import Error, TopologyErrors, read_document
from topologies.model.expand import expand
from topologies.model.network import Network
from topologies.model.validate import validate, with_monitor

__all__ = ["Error", "TopologyErrors", "bundled", "find", "load"]


def load(
    path: Path, parameters: Mapping[str, int | str] | None = None, *, monitored: bool = False
) -> Network:
    """Read, check and expand a topology file.

    `parameters` overrides the file's parameters, e.g. {"receivers": 24}; text values are read as
    whole numbers. `monitored`: add a monitor at the publisher's site if the file has none. Raises
    TopologyErrors with every mistake found.
    """
    document = read_document(path)
    spec, counts = validate(document, parameters or {})
    return expand(with_monitor(document, spec, counts) if monitored else spec, counts)


def bundled() -> tuple[str, ...]:
    """Return the names of the topologies that come with Downpour."""
    return tuple(sorted(path.stem for path in TOPOLOGIES.glob("*.yaml")))


def find(name: str) -> Path:
    """Return the file of a bundled topology, or `name` itself if it is a path to a YAML file.

    Raises TopologyErrors if there is no such topology.
    """
    if name in bundled():
        return TOPOLOGIES / f"{name}.yaml"
    if name.endswith((".yaml", ".yml")):
        return Path(name)  # load() reports it if it cannot be read
    valid = f"{', '.join(bundled())}, or the path of a .yaml file{did_you_mean(name, bundled())}"
    raise TopologyErrors([Error("topology", 0, f"'{name}'", valid)])
