# SPDX-License-Identifier: Apache-2.0
"""The network of a lab for a student: the lab's topology file with the student's parameters filled
in."""

from __future__ import annotations

import tempfile
from pathlib import Path

from labs.spec import Lab
from labs.workdir import filled
from topologies.model.load import load
from topologies.model.network import Network


def lab_network(lab: Lab, student: str) -> Network:
    """Return that network. Raises TopologyErrors, LabError."""
    assert lab.spec.topology is not None, "a measuring lab has no network"
    source = lab.folder / lab.spec.topology
    text = filled(source.read_text(encoding="utf-8"), lab.parameters(student), str(source))
    with tempfile.TemporaryDirectory(prefix="downpour-lab-") as name:
        path = Path(name) / source.name
        path.write_text(text, encoding="utf-8")
        return load(path)
