# SPDX-License-Identifier: Apache-2.0
"""Lab 7: the checks break the network, observe it, and repair it."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

from common.counting import counted
from common.shell import NetworkError
from controller.api.path_client import PathClient, PathClientError
from labs.answers import AnswerError
from labs.checking import Context, Outcome, failed, passed
from labs.live import LiveNetwork, Seen, Traffic

FROM_C1: Final = (("c1", "c2"), ("c1", "c3"))
INTERVAL_S: Final = 0.001
CUT_AT_S: Final = 0.3
DARK_S: Final = 1.5  # from the cut to the end of the stream
FAILOVER_MS: Final = {"virtual": 20.0, "native": 100.0}  # natively more, as a busy machine is late
SETTLE_S: Final = 2.0  # for the controller to see repaired links and restore the path


def service(live: LiveNetwork) -> PathClient:
    """Return a client of the lab's path service."""
    return PathClient(live.emulation.controller_socket)


def stream(
    live: LiveNetwork,
    *,
    lane: int = 1,
    seconds: float = 0.2,
    events: tuple[tuple[float, Callable[[], None]], ...] = (),
) -> Seen:
    """Send a datagram every INTERVAL_S from pub to east on a lane; `events` happen meanwhile."""
    return live.stream(
        "pub",
        ("east",),
        Traffic(
            round(seconds / INTERVAL_S),
            interval_s=INTERVAL_S,
            lane=lane,
            watch=FROM_C1,
            events=events,
        ),
    )


def used_link(seen: Seen) -> str | None:
    """Return the link of c1 that carried the stream."""
    a, b = max(FROM_C1, key=lambda way: seen.frames(*way))
    return f"{a}:{b}" if seen.frames(a, b) else None


def is_whole(live: LiveNetwork) -> bool:
    """Return whether no link is cut and the controller answers."""
    return not live.emulation.broken_links and _answers(live)


def _answers(live: LiveNetwork) -> bool:
    try:
        with service(live) as client:
            client.health()
    except PathClientError:
        return False
    return True


def start_controller(live: LiveNetwork) -> None:
    """Start the controller; wait until its switches are connected and re-routing has ended."""
    live.emulation.start_controller("core")
    time.sleep(SETTLE_S)


def whole(context: Context) -> Outcome:
    """Check that the network is whole and the path works."""
    live = context.live
    tried = "looked for cut links, asked the controller, sent 200 datagrams on feed"
    expected = "no cut link, an answer, 200 at east"
    if live.emulation.broken_links:
        return failed(tried, expected, f"cut: {', '.join(live.emulation.broken_links)}", "link")
    if not _answers(live):
        return failed(tried, expected, "the controller does not answer", "controller")
    got = stream(live).received("east")
    found = f"{got} at east"
    return passed(tried, expected, found) if got == 200 else failed(tried, expected, found, "dark")


def with_cut(live: LiveNetwork, lane: int, *, silent: bool) -> tuple[str | None, Seen]:
    """Cut the link of c1 that the lane uses in the middle of a stream; then repair it."""
    link = used_link(stream(live, lane=lane))
    if link is None:
        return None, stream(live, lane=lane)
    try:
        cut = (CUT_AT_S, lambda: live.emulation.cut(link, silent=silent))
        return link, stream(live, lane=lane, seconds=CUT_AT_S + DARK_S, events=(cut,))
    finally:
        if link in live.emulation.broken_links:
            live.emulation.mend(link)
        time.sleep(SETTLE_S)


def gap(context: Context) -> Outcome:
    """Check the answer: how long the path is dark after a cut, in ms."""
    live = context.live
    answer = context.number(str(context.arguments["answer"]))
    silent = bool(context.arguments["silent"])
    how = "silently cut" if silent else "cut"
    tried = f"one datagram every ms on feed; {how} the link it uses after {CUT_AT_S:g} s"
    expected = f"your answer: {answer:g} ms without one"
    if not is_whole(live):
        return failed(tried, expected, "not tried", "not-whole")
    link, seen = with_cut(live, 1, silent=silent)
    if link is None:
        return failed(tried, expected, "nothing arrives on feed", "not-whole")
    measured = seen.gap_ms("east")
    if abs(answer - measured) <= float(context.arguments["tolerance_ms"]):
        return passed(tried, expected, f"{measured:.1f} ms, {link} cut")
    found = "another time"
    if answer > 5 * measured or answer < 1 < measured:
        return failed(tried, expected, found, "lost-count")
    return failed(tried, expected, found, "cadence" if answer < measured / 2 else "other")


def killed(context: Context) -> Outcome:
    """Check the answer: how many datagrams it costs to kill the controller."""
    live = context.live
    answer = context.number("lost_by_kill")
    tried = "1000 datagrams on feed, one every 2 ms; killed the controller after 0.5 s"
    expected = f"your answer: {answer:g} lost"
    if not is_whole(live):
        return failed(tried, expected, "not tried", "not-whole")
    try:
        kill = (0.5, lambda: live.emulation.kill_controller("core"))
        seen = live.stream("pub", ("east",), Traffic(1000, interval_s=0.002, events=(kill,)))
    finally:
        start_controller(live)
    lost = seen.lost("east")
    if answer == lost:
        return passed(tried, expected, f"{lost} lost")
    return failed(tried, expected, "another number", "other")


def yes_or_no(context: Context, name: str) -> bool:
    """Return whether the answer is yes. Raises AnswerError, NoAnswer."""
    answer = context.answer(name)
    words = {"yes": True, "no": False, "true": True, "false": False}
    if str(answer).strip().lower() not in words:
        raise AnswerError(f"{name}: found '{answer}'; valid: yes or no")
    return words[str(answer).strip().lower()]


def nobody_repairs(context: Context) -> Outcome:
    """Check the answer: does a path come back without a controller?"""
    live = context.live
    answer = yes_or_no(context, "comes_back_without_controller")
    tried = f"killed the controller, cut the link that feed uses, watched for {DARK_S:g} s"
    expected = f"your answer: {'it comes back' if answer else 'it stays dark'}"
    if not is_whole(live):
        return failed(tried, expected, "not tried", "not-whole")
    try:
        live.emulation.kill_controller("core")
        link, seen = with_cut(live, 1, silent=False)
    finally:
        start_controller(live)
    if link is None:
        return failed(tried, expected, "nothing arrives on feed", "not-whole")
    if arrives_late(seen) == answer:
        return passed(tried, expected, "the same")
    return failed(tried, expected, "the other", "other")


def arrives_late(seen: Seen) -> bool:
    """Return whether datagrams still arrive at the end of a stream with a cut."""
    return any(a.number >= seen.sent - 200 for a in seen.arrivals["east"])


def by_hand(context: Context) -> Outcome:
    """Check that the student's own path on lane 2 works."""
    seen = stream(context.live, lane=2)
    tried, expected = "200 datagrams from pub on lane 2", "200 at east, each once"
    ways = ", ".join(f"{seen.frames(a, b)} from {a} to {b}" for a, b in FROM_C1)
    found = f"{seen.received('east')} at east, {seen.doubled('east')} of them again; {ways}"
    if not seen.received("east"):
        return failed(tried, expected, found, "nothing")
    if seen.doubled("east"):
        return failed(tried, expected, found, "doubled")
    if seen.lost("east"):
        return failed(tried, expected, found, "nothing")
    return passed(tried, expected, found)


def protected(context: Context) -> Outcome:
    """Check that the path on lane 2 survives a cut without a controller."""
    live = context.live
    tried = "killed the controller; one datagram every ms on lane 2; cut c1's link that it uses"
    most_ms = FAILOVER_MS[live.emulation.facts.clock]
    expected = f"at most {most_ms:g} ms without one, none twice"
    before = stream(live, lane=2)
    if not before.received("east"):
        return failed(tried, expected, "nothing arrives on lane 2", "nothing")
    if before.doubled("east"):
        return failed(
            tried, expected, f"{counted(before.doubled('east'), 'datagram')} twice", "doubled"
        )
    dead = not _answers(live)
    try:
        if not dead:
            live.emulation.kill_controller("core")
        link, seen = with_cut(live, 2, silent=False)
    finally:
        if not dead:
            start_controller(live)
    if link is None:
        return failed(tried, expected, "nothing arrives", "needs-controller")
    dark = seen.gap_ms("east")
    late = arrives_late(seen)
    found = (
        f"{link} cut: {dark:.1f} ms without one, {seen.lost('east')} lost"
        if late
        else f"{link} cut: dark from then on"
    )
    if not late:
        return failed(tried, expected, found, "dark")
    return (
        passed(tried, expected, found)
        if dark <= most_ms
        else failed(tried, expected, found, "slow")
    )


def silent_failover(context: Context) -> Outcome:
    """Check the answer: does fast failover notice a silent cut?"""
    answer = yes_or_no(context, "failover_survives_silent_cut")
    tried = "silently cut the link of c1 that lane 2 uses"
    expected = f"your answer: {'it goes on' if answer else 'it stays dark'}"
    try:
        link, seen = with_cut(context.live, 2, silent=True)
    except NetworkError as error:
        return failed(tried, expected, str(error), "nothing")
    if link is None:
        return failed(tried, expected, "nothing arrives on lane 2", "nothing")
    if arrives_late(seen) == answer:
        return passed(tried, expected, "the same")
    return failed(tried, expected, "the other", "other")
