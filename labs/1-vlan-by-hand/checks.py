# SPDX-License-Identifier: Apache-2.0
"""Lab 1: send numbered datagrams through the student's switches, and see what becomes of them."""

from __future__ import annotations

import time
from collections import Counter
from typing import Final

from common.counting import counted
from labs.checking import Context, Outcome, failed, passed
from labs.live import UNTAGGED, LiveNetwork, Seen, Traffic

FRAMES: Final = 30
ATTEMPTS: Final = 5
STRANGE_VLAN: Final = 150  # above all ids that students get
HOSTS: Final = ("east", "west", "north")
LAST: Final = {"east": ("c2", "sw-east"), "west": ("c3", "sw-west"), "north": ("c3", "sw-north")}
INTO_CORE: Final = ("sw-south", "c1")
CORE: Final = (("c1", "c2"), ("c1", "c3"), ("c2", "c3"), ("c3", "c2"), ("c2", "c1"), ("c3", "c1"))
SENT: Final = f"{FRAMES} numbered datagrams from pub to the group"


def stream(live: LiveNetwork) -> Seen:
    """Send the frames from pub and watch every link that they may cross."""
    return live.stream("pub", HOSTS, Traffic(FRAMES, watch=(INTO_CORE, *CORE, *LAST.values())))


def tags(found: Counter[int]) -> str:
    """Return the counts in words."""
    if not found:
        return "no frame"
    names = {UNTAGGED: "no tag"}
    return ", ".join(f"{n} with {names.get(v, f'VLAN id {v}')}" for v, n in sorted(found.items()))


def arrives(context: Context) -> Outcome:
    """Check that one host gets every frame, once."""
    host = str(context.arguments["host"])
    first = "c2" if host == "east" else "c3"
    seen = stream(context.live)
    got, doubled = seen.received(host), seen.doubled(host)
    tried, expected = SENT, f"{FRAMES} at {host}, each once"
    last = LAST[host]
    found = (
        f"{got} at {host}, {doubled} of them again; c1 got {seen.frames(*INTO_CORE)}; "
        f"c1 to {first}: {tags(seen.tags['c1', first])}; {last[0]} to {last[1]}: "
        f"{tags(seen.tags[last])}"
    )
    if got == FRAMES and not doubled:
        return passed(tried, expected, found)
    if got:
        return failed(tried, expected, found, "doubled" if doubled else "lost-inside")
    if not seen.frames(*INTO_CORE):
        return failed(tried, expected, found, "nothing-enters")
    if seen.frames(*last):
        return failed(tried, expected, found, "wrong-tag")
    onward = any(seen.frames(a, b) for a, b in CORE if b == first)
    return failed(tried, expected, found, "lost-inside" if onward else "not-sent-on")


def translation(context: Context) -> Outcome:
    """Check the VLAN id on each link."""
    asked = {
        ("c1", "c2"): context.integer("vlan_c1c2"),
        ("c1", "c3"): context.integer("vlan_c1c3"),
        LAST["east"]: context.integer("vlan_east"),
        LAST["west"]: context.integer("vlan_west"),
    }
    seen = stream(context.live)
    expected = "; ".join(f"{a} to {b}: VLAN id {vlan}" for (a, b), vlan in asked.items())
    found = "; ".join(f"{a} to {b}: {tags(seen.tags[a, b])}" for a, b in asked)
    tried = f"{SENT}, and read the tags on the links"
    wrong = {way: seen.tags[way] for way, vlan in asked.items() if set(seen.tags[way]) != {vlan}}
    if not wrong:
        return passed(tried, expected, found)
    ids = {vlan for way in wrong for vlan in wrong[way]}
    if not ids:
        return failed(tried, expected, found, "nothing")
    if UNTAGGED in ids:
        return failed(tried, expected, found, "untagged")
    own = context.integer("vlan_pub")
    return failed(tried, expected, found, "publisher" if own in ids else "other")


def one_copy(context: Context) -> Outcome:
    """Check that no link carries a frame twice, and that no frame goes where it should not."""
    seen = stream(context.live)
    between = seen.frames("c2", "c3") + seen.frames("c3", "c2")
    strangers = seen.frames(*LAST["north"])
    most = max(seen.frames(*way) for way in (*CORE, *LAST.values()))
    tried, expected = (
        f"{SENT}, and counted the frames on each link",
        f"at most {FRAMES} on a link, none between c2 and c3, none to sw-north",
    )
    found = f"at most {most} on a link, {between} between c2 and c3, {strangers} to sw-north"
    if not seen.received("east") + seen.received("west"):
        return failed(tried, expected, found, "nothing")
    if strangers:
        return failed(tried, expected, found, "stranger")
    if between:
        return failed(tried, expected, found, "c2c3")
    if most > FRAMES:
        return failed(tried, expected, found, "copies")
    return passed(tried, expected, found)


def groups_grow(live: LiveNetwork, frame_bytes: int = 200) -> list[tuple[int, int, list[int]]]:
    """Return by how much (packets, bytes, packets of each bucket) the groups of c1 grow for FRAMES
    frames."""
    before = live.counters()["groups"]
    live.stream("pub", ("east",), Traffic(FRAMES, frame_bytes=frame_bytes))
    time.sleep(1)  # the datapath's counts reach the group within a second
    after = live.counters()["groups"]
    grown = []
    for name, record in after.items():
        if name.startswith("c1/") and name in before:
            old = before[name]
            buckets = [
                new["packets"] - was["packets"]
                for new, was in zip(record["buckets"], old["buckets"], strict=False)
            ]
            grown.append(
                (record["packets"] - old["packets"], record["bytes"] - old["bytes"], buckets)
            )
    return grown


def group(context: Context) -> Outcome:
    """Check that an OpenFlow group of c1 replicates the frames."""
    tried = f"{SENT}, and read dump-group-stats of c1 before and after"
    expected = f"a group that counts {FRAMES} packets, two buckets of it as many each"
    grown = groups_grow(context.live)
    found = (
        "; ".join(f"{counted(n, 'packet')}, buckets {b}" for n, _, b in grown) or "no group at c1"
    )
    busy = [g for g in grown if g[0] >= FRAMES]
    if not busy:
        return failed(tried, expected, found, "no-group")
    if not any(sum(b >= FRAMES for b in buckets) >= 2 for _, _, buckets in busy):
        return failed(tried, expected, found, "one-bucket")
    return passed(tried, expected, found)


def strangers(context: Context) -> Outcome:
    """Check that frames with an unknown VLAN id do not leave c1."""
    live = context.live
    tried = f"{FRAMES} datagrams from the publisher's port with VLAN id {STRANGE_VLAN}"
    expected = "none of these frames leaves c1"
    if not stream(live).received("east"):
        return failed(tried, expected, "not tried: nothing arrives at east yet", "nothing")
    seen = live.inject("c1", "sw-south", STRANGE_VLAN, HOSTS, Traffic(FRAMES, watch=CORE))
    onward = sum(seen.frames(*way) for way in CORE)
    got = sum(seen.received(h) for h in HOSTS)
    found = f"{counted(onward, 'frame')} on the core's links, {counted(got, 'datagram')} at hosts"
    if got or onward:
        return failed(tried, expected, found, "forwarded")
    return passed(tried, expected, found)


def back(context: Context) -> Outcome:
    """Check that pings from pub to the receivers are answered."""
    answered, found = context.live.all_answer("pub", ("east", "west"))
    tried, expected = "3 pings from pub to east and to west", "3 answers from each"
    if answered:
        return passed(tried, expected, found)
    return failed(tried, expected, found, "no-way")


def bytes_counted(context: Context) -> Outcome:
    """Check the answer: how many bytes a switch counts for each frame."""
    answer = context.number("bytes_for_each_frame")
    size = context.integer("frame_bytes")
    tried = f"{FRAMES} frames of {size} bytes, and read dump-group-stats of c1 before and after"
    for _ in range(ATTEMPTS):
        busy = [g for g in groups_grow(context.live, size) if g[0] >= FRAMES]
        if not busy:
            return failed(tried, "a group that counts them", "none", "no-group")
        if any(g[0] == FRAMES for g in busy):
            break
        # Otherwise a host asked for an address (ARP) during the measurement.
    packets, size_counted, _ = min(busy)
    each = size_counted / packets
    expected, found = f"your answer: {answer:g}", f"{each:g} bytes for each frame"
    if abs(answer - each) < 0.5:
        return passed(tried, expected, found)
    return failed(tried, expected, "another number of bytes", "tag")
