# SPDX-License-Identifier: Apache-2.0
"""Where cells run: `--at tcp://HOST:PORT` (a Dask scheduler) or `--at slurm:PARTITION`."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from common.quantities import MOST_PORT
from experiments.design.spec import UsageError

VALID: Final = "tcp://HOST:PORT, tls://HOST:PORT (a Dask scheduler) or slurm:PARTITION"
_DASK: Final = re.compile(r"(?:tcp|tls)://(?P<host>\[[0-9A-Fa-f:.]+\]|[\w.-]+):(?P<port>\d{1,5})")
_SLURM: Final = re.compile(r"slurm:(?P<partition>[\w.-]+)")


@dataclass(frozen=True)
class DaskAddress:
    """A Dask scheduler."""

    url: str

    def __str__(self) -> str:
        return self.url


@dataclass(frozen=True)
class SlurmAddress:
    """A partition of the Slurm cluster that this machine submits to."""

    partition: str

    def __str__(self) -> str:
        return f"slurm:{self.partition}"


def parse(text: str, option: str = "--at") -> DaskAddress | SlurmAddress:
    """Return the address that a text names. Raises UsageError."""
    if found := _SLURM.fullmatch(text):
        return SlurmAddress(found["partition"])
    if (found := _DASK.fullmatch(text)) and 0 < int(found["port"]) <= MOST_PORT:
        return DaskAddress(text)
    raise UsageError(f"{option}: found '{text}'; valid: {VALID}")
