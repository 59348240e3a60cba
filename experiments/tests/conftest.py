# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import pytest

from experiments.plan import CellSpec, expand
from experiments.spec import ExperimentSpec, find, load_as
from topologies.load import find as find_topology
from topologies.load import load as load_topology
from topologies.model import Network


@pytest.fixture(scope="session")
def geni5() -> Network:
    return load_topology(find_topology("geni5"), {"receivers": 8})


@pytest.fixture(scope="session")
def cells() -> dict[str, CellSpec]:
    """The cells of lossy, by protocol."""
    return {cell.protocol: cell for cell in expand(load_as(ExperimentSpec, find("lossy")))}
