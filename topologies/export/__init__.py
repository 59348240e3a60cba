# SPDX-License-Identifier: Apache-2.0
"""Export a `Network` to other programs' formats. Pure: a network in, text out."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final

from topologies.export.containerlab import containerlab_file, containerlab_script
from topologies.export.graphml import graphml_of
from topologies.export.mininet_script import mininet_script
from topologies.model.drawing import dot_of
from topologies.model.network import Network

FORMATS: Final[Mapping[str, Callable[[Network], str]]] = MappingProxyType(
    {
        "json": Network.to_json,
        "dot": dot_of,
        "graphml": graphml_of,
        "mininet": mininet_script,
        "containerlab": containerlab_file,
        "containerlab-script": containerlab_script,
    }
)
