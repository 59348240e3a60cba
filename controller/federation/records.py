# SPDX-License-Identifier: Apache-2.0
"""What a coordinator remembers about a path, and what it asks its caller to do. Values only."""

from __future__ import annotations

from dataclasses import dataclass, field

from controller.federation.trees import Domains, Tree, segments_of
from controller.federation.values import Problem, Request, Segment
from controller.paths.core import Endpoint


@dataclass(frozen=True)
class Timing:
    """Time limits and periods in seconds."""

    reserve_s: float = 5.0  # wait for an answer
    commit_s: float = 15.0
    release_s: float = 15.0
    hold_s: float = 60.0  # how long a domain holds a reservation without a commit
    settle_s: float = 2.0  # how long a request waits for an undo or a removal to end
    retry_first_s: float = 0.5  # of releases, doubling
    retry_last_s: float = 10.0
    audit_s: float = 15.0  # between questions to the other domains


@dataclass(frozen=True)
class Trying:
    """An attempt that is not decided yet. `participants`: domains that may know of it, root
    first."""

    version: int
    tree: Tree
    participants: tuple[str, ...]


@dataclass(frozen=True)
class Record:
    """The stored state of a path over several domains.

    `tree` is decided. `unsettled`: domains that have not confirmed that they have nothing but the
    tree's segment, with the version up to which they must release. `wanted`: leaves that a failed
    link has cut off and that have not rejoined.
    """

    path: str
    version: int
    tree: Tree
    trying: Trying | None = None
    unsettled: dict[str, int] = field(default_factory=dict)
    wanted: tuple[Endpoint, ...] = ()

    @property
    def is_at_rest(self) -> bool:
        """Return whether no change is under way."""
        return self.trying is None and not self.unsettled

    @property
    def is_over(self) -> bool:
        """Return whether nothing of the path is left in other domains."""
        return self.is_at_rest and not self.tree.entries and not self.wanted


@dataclass(frozen=True)
class Save:
    """Write a record."""

    record: Record


@dataclass(frozen=True)
class Forget:
    """Delete a record."""

    path: str


@dataclass(frozen=True)
class Send:
    """Send a request to a domain."""

    domain: str
    request: Request


@dataclass(frozen=True)
class Answer:
    """Answer a client's request. `problem` None: done, and confirmed by all domains."""

    request_id: int
    problem: Problem | None


Effect = Save | Forget | Send | Answer


def segment_at(domains: Domains, record: Record, domain: str) -> Segment | None:
    """Return a domain's decided segment."""
    return segments_of(domains, record.tree).get(domain)
