# SPDX-License-Identifier: Apache-2.0
"""Switches' counters, as values. Frames are counted as in OpenFlow: without FCS, with tags."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from controller.paths.entries import Match


@dataclass(frozen=True)
class Count:
    packets: int = 0
    size_bytes: int = 0


@dataclass(frozen=True)
class GroupCount:
    total: Count
    buckets: tuple[Count, ...]  # in the order of the group's buckets


@dataclass(frozen=True)
class MeterCount:
    entered: Count
    dropped: Count


@dataclass(frozen=True)
class PortCount:
    received: Count
    sent: Count
    received_dropped: int = 0
    sent_dropped: int = 0


@dataclass(frozen=True)
class SwitchStats:
    """Counters of one switch.

    `flows` (this controller's) by Flow.key, `groups` and `meters` by number, `ports` by OpenFlow
    port.
    """

    flows: Mapping[tuple[str, int, Match], Count] = field(default_factory=dict)
    groups: Mapping[int, GroupCount] = field(default_factory=dict)
    meters: Mapping[int, MeterCount] = field(default_factory=dict)
    ports: Mapping[int, PortCount] = field(default_factory=dict)
