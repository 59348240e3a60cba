# SPDX-License-Identifier: Apache-2.0
"""Check the links of a topology file, and the impairments of links and of hosts' access."""

from __future__ import annotations

from common.quantities import format_rate, format_size
from topologies.model.checks import Checks
from topologies.model.document import Place
from topologies.model.expand import (
    MIN_QUEUE_BYTES,
    bandwidth_delay_product,
    directions,
)
from topologies.model.spec import (
    AccessSpec,
    LinkSpec,
    SwitchSpec,
)


class ImpairmentChecks(Checks):
    """Check rates, delays, jitter and queues of links and of hosts' access."""

    def impairment(self, spec: LinkSpec | AccessSpec | None, place: Place, title: str) -> None:
        if spec is None:
            return
        asked = directions(spec)
        sides = ("a_to_b", "b_to_a") if isinstance(spec, LinkSpec) else ("from_host", "to_host")
        round_trip_ms = sum(direction.delay_ms or 0.0 for direction in asked)
        reported: set[tuple[str, str]] = set()
        for side, direction in zip(sides, asked, strict=True):

            def report(key: str, found: str, valid: str, side: str = side) -> None:
                if (key, found) not in reported:  # both directions of a symmetric link
                    reported.add((key, found))
                    own = (*place, side, key)
                    at = own if own in self.document.lines else (*place, key)
                    self.error(at, f"{found} on {title}", valid)

            delay, jitter = direction.delay_ms or 0.0, direction.jitter_ms or 0.0
            if jitter > delay:
                report("jitter_ms", f"jitter_ms: {jitter:g}", f"at most delay_ms, {delay:g}")
            rate, queue = direction.rate_bps, direction.queue_bytes
            if queue is not None and rate is None:
                found = f"queue_bytes: {format_size(queue)} without a rate"
                report("queue_bytes", found, "queue_bytes together with rate_bps")
            elif queue is not None and rate is not None:
                bdp = bandwidth_delay_product(rate, round_trip_ms)
                if queue < max(bdp, MIN_QUEUE_BYTES):
                    least = (
                        f"at least {bdp} (rate {format_rate(rate)} x round trip"
                        f" {round_trip_ms:g} ms)"
                        if bdp > MIN_QUEUE_BYTES
                        else f"at least {MIN_QUEUE_BYTES} (one full frame)"
                    )
                    report("queue_bytes", f"queue_bytes: {format_size(queue)}", least)


class LinkChecks(ImpairmentChecks):
    """Check the section `links`, and that each switch has a link."""

    def links(self) -> None:
        linked = self._linked_names()
        for name, node in self.spec.nodes.items():
            if isinstance(node, SwitchSpec) and name not in linked:
                self.error(("nodes", name), f"switch '{name}' without a link", "a switch in links")
        seen: dict[frozenset[str], int] = {}
        for index, link in self._links():
            place: Place = ("links", index)
            ends_ok = all(
                self.is_switch(
                    (*place, key),
                    key,
                    getattr(link, key),
                    self.static | self.controlled,
                    "a switch",
                )
                for key in ("a", "b")
            )
            title = f"link {link.a}:{link.b}"
            pair = frozenset({link.a, link.b})
            if link.a == link.b:
                self.error(place, f"{title} from a switch to itself", "two switches")
            elif ends_ok and pair <= self.static:
                found = f"{title} between two static domains"
                self.error(place, found, "a link with an end in a controller domain")
            elif ends_ok and link.cost is not None and not pair <= self.controlled:
                found = f"cost: {link.cost:g} on {title}, which ends in a static domain"
                valid = "cost only between two controller switches, where paths have a choice"
                self.error((*place, "cost"), found, valid)
            if pair in seen:
                found = f"a second {title}"
                self.error(place, found, f"one link of two switches (line {seen[pair]})")
            seen.setdefault(pair, self.document.line(place))
            self.impairment(link, place, title)

    def _links(self) -> list[tuple[int, LinkSpec]]:
        """Return the links with their index in the file, which also counts links that were left
        out."""
        given = self.document.data.get("links", [])
        kept = iter(self.spec.links)
        indices = [i for i in range(len(given)) if ("links", i) not in self.document.left_out]
        return list(zip(indices, kept, strict=True))

    def _linked_names(self) -> set[str]:
        names: set[str] = set()
        for link in self.document.data.get("links", []):
            if isinstance(link, dict):
                names.update(str(link.get(key)) for key in ("a", "b"))
        return names
