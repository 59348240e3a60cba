# SPDX-License-Identifier: Apache-2.0
"""Lab 2: send datagrams over the student's path, and see what becomes of them."""

from __future__ import annotations

from typing import Final

from common.counting import counted
from controller.api.path_client import PathClient, PathClientError, endpoints_of
from labs.checking import Context, Outcome, failed, passed
from labs.live import LiveNetwork, Seen, Traffic

PATH: Final = "lesson"
FEED: Final = "NGRID"  # the feed whose path the servers of step 8 create
FRAMES: Final = 30
HOSTS: Final = ("north", "west", "east", "lake")
SWITCH_OF: Final = {"north": "c2", "west": "c3", "east": "c4", "lake": "c4"}
CORE: Final = (
    ("c1", "c2"), ("c1", "c3"), ("c2", "c4"), ("c3", "c4"),
    ("c2", "c1"), ("c3", "c1"), ("c4", "c2"), ("c4", "c3"),
)  # fmt: skip
LAST: Final = tuple((switch, f"sw-{host}") for host, switch in SWITCH_OF.items())
SENT: Final = f"{FRAMES} numbered datagrams from pub to the group"
OFFERED: Final = 2.0  # times the rate
SECONDS: Final = 3.0
SETTLED_S: Final = 1.0  # by then the meter's burst is used up
FRAME_BYTES: Final = 1000
TOLERANCE: Final = 0.05
TOO_FAST_BPS: Final = 60_000_000


def service(live: LiveNetwork) -> PathClient:
    """Return a client of the lab's path service."""
    return PathClient(live.emulation.controller_socket)


def stream(live: LiveNetwork) -> Seen:
    """Send the frames from pub and watch every link that they may cross."""
    return live.stream("pub", HOSTS, Traffic(FRAMES, watch=(*CORE, *LAST)))


def path(context: Context) -> Outcome:
    """Check that the path exists, is up and starts at the publisher."""
    tried, expected = f"GET /v1/paths/{PATH}", 'a path from the publisher\'s segment, state "up"'
    root, _ = endpoints_of(context.live.network)
    try:
        with service(context.live) as client:
            found = client.get(PATH)
    except PathClientError as error:
        hint = "no-path" if error.status == 404 else "no-service"
        return failed(tried, expected, f"status {error.status}: {error.detail}", hint)
    at = found["root"]
    text = (
        f'state "{found["state"]}", root {at["switch"]} port {at["port"]} VLAN {at["vlan"]}, '
        f"{counted(len(found['leaves']), 'leaf', 'leaves')}, {found['rate_bps']} bit/s"
    )
    if (at["switch"], at["port"], at["vlan"]) != (root.switch, root.port, root.vlan):
        return failed(tried, expected, text, "root")
    if found["state"] != "up" or not found["leaves"]:
        return failed(tried, expected, text, "down")
    return passed(tried, expected, text)


def _got(seen: Seen) -> str:
    return ", ".join(f"{seen.received(h)} at {h}" for h in HOSTS)


def leaves(context: Context) -> Outcome:
    """Check that each leaf of the student gets every frame, once."""
    mine = context.words("leaves")
    seen = stream(context.live)
    tried, expected = SENT, f"{FRAMES} at {' and '.join(mine)}, each once"
    if not any(seen.received(h) for h in HOSTS) and not any(seen.frames(*w) for w in LAST):
        return failed(tried, expected, _got(seen), "none")
    for host in mine:
        if seen.received(host) < FRAMES:
            way = (SWITCH_OF[host], f"sw-{host}")
            ids = ", ".join(map(str, seen.tags[way]))
            if ids:
                found = f"{_got(seen)}; frames from {way[0]} to {way[1]} with VLAN id {ids}"
                return failed(tried, expected, found, "wrong-tag")
            return failed(tried, expected, _got(seen), "missing")
    if any(seen.doubled(h) for h in mine):
        return failed(tried, expected, _got(seen), "doubled")
    return passed(tried, expected, _got(seen))


def nobody_else(context: Context) -> Outcome:
    """Check that no other host gets a frame."""
    mine = context.words("leaves")
    others = [h for h in HOSTS if h not in mine]
    seen = stream(context.live)
    tried, expected = SENT, f"no frame to {' and '.join(others)}"
    reached = [h for h in others if seen.frames(SWITCH_OF[h], f"sw-{h}")]
    if not any(seen.received(h) for h in HOSTS):
        return failed(tried, expected, _got(seen), "nothing")
    return (
        failed(tried, expected, _got(seen), "others")
        if reached
        else passed(tried, expected, _got(seen))
    )


def rate(context: Context) -> Outcome:
    """Check that the path's meter limits its rate."""
    asked = context.integer("rate_bps")
    host = context.words("leaves")[0]
    interval_s = FRAME_BYTES * 8 / (asked * OFFERED)
    seen = context.live.stream(
        "pub",
        (host,),
        Traffic(int(SECONDS / interval_s), interval_s=interval_s, frame_bytes=FRAME_BYTES),
    )
    tried = f"{asked * OFFERED / 1e6:g} Mbit/s for {SECONDS:g} s from pub"
    expected = f"{asked / 1e6:g} Mbit/s at {host} after the first second, ±{TOLERANCE:.0%}"
    got = seen.rate_bps(host, FRAME_BYTES, SETTLED_S)
    found = f"{got / 1e6:.3f} Mbit/s"
    if not seen.received(host):
        return failed(tried, expected, "nothing", "nothing")
    if abs(got / asked - 1) <= TOLERANCE:
        return passed(tried, expected, found)
    if not seen.lost(host):
        # A meter with much too high a rate drops nothing either.
        limited = any(m for m in context.live.counters()["meters"] if m.startswith("c1/"))
        return failed(tried, expected, found, "units" if limited else "unlimited")
    return failed(tried, expected, found, "units" if got < asked / 5 else "other")


def back(context: Context) -> Outcome:
    """Check that pings from pub to the leaves are answered."""
    mine = context.words("leaves")
    answered, found = context.live.all_answer("pub", mine)
    tried, expected = f"3 pings from pub to {' and to '.join(mine)}", "3 answers from each"
    if answered:
        return passed(tried, expected, found)
    return failed(tried, expected, found, "no-way")


def vlan(context: Context) -> Outcome:
    """Check the answer: the VLAN id on the last link to the first leaf."""
    answer = context.number("vlan_at_first_leaf")
    first = context.words("leaves")[0]
    switch = SWITCH_OF[first]
    seen = stream(context.live)
    ids = sorted({v for (_, b), found in seen.tags.items() if b == switch for v in found})
    tried = f"{SENT}, and read their tags where they enter {switch}"
    expected = f"your answer: VLAN id {answer:g}"
    if not ids:
        return failed(tried, expected, "no frame", "nothing")
    if ids == [answer]:
        return passed(tried, expected, f"VLAN id {ids[0]}")
    segments = {s.vlan for s in context.live.network.segments}
    return failed(tried, expected, "another id", "segment" if answer in segments else "other")


def refusal(context: Context) -> Outcome:
    """Check the answer: the HTTP status when a path is refused."""
    answer = context.number("refused_with_status")
    mine = context.words("leaves")
    # Step 8 uses the publisher's segment and that of the first leaf.
    last = mine[-1]
    (source, *_) = (h for h in HOSTS if h not in mine and SWITCH_OF[h] != SWITCH_OF[last])
    _, ends = endpoints_of(context.live.network, lane=2)
    tried = f"asked for a path of {TOO_FAST_BPS / 1e6:g} Mbit/s from {source} to {last} on lane 2"
    expected = f"your answer: status {answer:g}"
    status = 0
    try:
        with service(context.live) as client:
            name = "lab-check-2"
            client.create_path(name, ends[f"{source}.2"], TOO_FAST_BPS)
            try:
                client.add_leaf(name, ends[f"{last}.2"])
            except PathClientError as error:
                status = error.status
            finally:
                client.delete_path(name)
    except PathClientError as error:
        return failed(tried, expected, f"status {error.status}: {error.detail}", "left-over")
    if status == answer:
        return passed(tried, expected, f"status {status}")
    return failed(tried, expected, "another status", "other")


def subscription(context: Context) -> Outcome:
    """Check that the servers created a path with the first leaf, and the leaf's own interface."""
    first = context.words("leaves")[0]
    live = context.live
    root, ends = endpoints_of(live.network, lane=2)
    leaf, nic = ends[f"{first}.2"], live.network.host(first).path_nic(2).interface
    interface = f"{nic}.{leaf.vlan}"
    tried = f"GET /v1/paths/{FEED}, and the addresses of {first}"
    expected = f"a leaf at {leaf.switch}, and {interface} from which pub answers"
    try:
        with service(live) as client:
            found = client.get(FEED)
    except PathClientError as error:
        return failed(tried, expected, f"status {error.status}: {error.detail}", "no-path")
    if leaf.key not in {(x["switch"], x["port"], x["vlan"]) for x in found["leaves"]}:
        return failed(
            tried,
            expected,
            f"{counted(len(found['leaves']), 'leaf', 'leaves')}, not this one",
            "no-leaf",
        )
    shown = live.emulation.run(first, ["ip", "-o", "-4", "address"]).stdout
    own = [line.split()[3] for line in shown.splitlines() if line.split()[1] == interface]
    if not own:
        by_hand = f" vlan{leaf.vlan} " in shown
        text = f"no address on {interface}"
        return failed(tried, expected, text, "by-hand" if by_hand else "no-interface")
    publisher = live.network.publisher.path_nic(2).ip
    answers = live.ping(first, publisher)
    text = f"{own[0]} on {interface}; {counted(answers, 'answer')} of {publisher}"
    return passed(tried, expected, text) if answers else failed(tried, expected, text, "silent")
