# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import pytest

from experiments.design.expansion import CellSpec, expand
from experiments.design.spec import ExperimentSpec, find, load_as
from topologies.model.load import find as find_topology
from topologies.model.load import load as load_topology
from topologies.model.network import Network


@pytest.fixture(scope="session")
def geni5() -> Network:
    return load_topology(find_topology("geni5"), {"receivers": 8})


@pytest.fixture(scope="session")
def cells() -> dict[str, CellSpec]:
    """The cells of lossy, by protocol."""
    return {cell.protocol: cell for cell in expand(load_as(ExperimentSpec, find("lossy")))}
