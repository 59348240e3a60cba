# SPDX-License-Identifier: Apache-2.0
"""Where the parts of Downpour are on this machine. The one module that knows its own place."""

from __future__ import annotations

from pathlib import Path
from typing import Final

# The directory that holds the rooms: a checkout.
ROOT: Final = Path(__file__).resolve().parents[1]
BUILD: Final = ROOT / "build"  # the C programs, as Meson lays them out
RUNS: Final = ROOT / "runs"  # results of experiments
EXPERIMENTS: Final = ROOT / "experiments/catalogue"  # bundled experiments, their schema and bands
TOPOLOGIES: Final = ROOT / "topologies"  # bundled topologies and their schema
