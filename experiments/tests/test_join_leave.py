# SPDX-License-Identifier: Apache-2.0
"""Scripts of subscribers that come and go, and the cells made of them."""

from __future__ import annotations

import dataclasses
import itertools
import json
from collections import defaultdict
from pathlib import Path

import pytest

from controller.api.path_client import endpoints_of
from experiments.cells.job import Job
from experiments.design import configs
from experiments.design.expansion import disk_needed_bytes
from experiments.design.join_leave_expansion import (
    JoinLeaveCell,
    expand,
    feeds_of,
    prepare,
    traces_of,
)
from experiments.design.join_leave_script import (
    LEAST_AWAY_S,
    LEAST_SESSION_S,
    Event,
    make_script,
    stayers,
)
from experiments.design.spec import (
    JoinLeaveFactors,
    JoinLeaveSpec,
    SpecErrors,
    UsageError,
    find,
    load,
    load_as,
)
from experiments.design.trace_input import TraceInfo
from experiments.runs import runner
from topologies.model.load import find as find_topology
from topologies.model.load import load as load_topology
from topologies.model.network import Network

SUBSCRIBERS = ("uva", "uwisc", "umd", "uutah", "uwash", "ucsd", "umiss")
FEEDS = ("NGRID", "CONDUIT", "NEXRAD3")


def script(seed: int, duration_s: float = 60.0, killed: float = 0.25) -> tuple[Event, ...]:
    return make_script(
        SUBSCRIBERS, FEEDS, duration_s=duration_s, stay_s=45, away_s=30, killed=killed, seed=seed
    )


@pytest.fixture(scope="module")
def spec() -> JoinLeaveSpec:
    return load_as(JoinLeaveSpec, find("join-leave"))


@pytest.fixture(scope="module")
def network() -> Network:
    return load_topology(find_topology("drfsm8"), {"lanes": 3})


@pytest.fixture(scope="module")
def cell(spec: JoinLeaveSpec) -> JoinLeaveCell:
    short = spec.model_copy(update={"duration_s": 60.0})
    return expand(short, SUBSCRIBERS)[0]


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("duration_s", [40.0, 60.0, 600.0])
def test_everything_happens_in_every_script(seed: int, duration_s: float) -> None:
    events = script(seed, duration_s)
    assert [e.at_s for e in events] == sorted(e.at_s for e in events)
    by_subscription: dict[tuple[str, str], list[Event]] = defaultdict(list)
    for event in events:
        by_subscription[event.subscriber, event.feed].append(event)
    for own in by_subscription.values():
        assert [e.what == "join" for e in own] == [i % 2 == 0 for i in range(len(own))]
        for before, after in itertools.pairwise(own):
            least = LEAST_SESSION_S if before.what == "join" else LEAST_AWAY_S
            assert after.at_s - before.at_s >= least - 0.001
        assert own[-1].at_s <= duration_s
    # Each feed has a subscriber that stays, and no other is there before the first product.
    throughout = {key for key, own in by_subscription.items() if len(own) == 1 and not own[0].at_s}
    assert throughout == {(s, f) for f, s in stayers(SUBSCRIBERS, FEEDS).items()}
    assert {f for _, f in throughout} == set(FEEDS)
    # Some come back, some are killed, some of the killed come back, some have several feeds.
    assert any(len(own) >= 3 for own in by_subscription.values())
    assert any(
        before.what == "kill" and after.what == "join"
        for own in by_subscription.values()
        for before, after in itertools.pairwise(own)
    )
    feeds_of = defaultdict(set)
    for subscriber, feed in by_subscription:
        feeds_of[subscriber].add(feed)
    assert any(len(feeds) > 1 for feeds in feeds_of.values())


def test_kills_are_the_asked_share() -> None:
    for killed, expected in ((0.0, 0), (0.25, 11), (1.0, 42)):
        events = script(2053, killed=killed)
        ends = [e for e in events if e.what != "join"]
        assert len(ends) == 42
        assert sum(e.what == "kill" for e in ends) == expected


def test_the_same_seed_gives_the_same_script() -> None:
    assert script(1) == script(1)
    assert script(1) != script(2)


def test_one_subscriber_stays_with_all() -> None:
    assert stayers(("uva",), FEEDS) == dict.fromkeys(FEEDS, "uva")


def test_feeds_have_lanes_and_rates_of_their_own(cell: JoinLeaveCell) -> None:
    assert [(f.name, f.lane, f.r_mc_bps, f.r_uc_bps, f.r_vn_bps) for f in cell.feeds] == [
        ("NGRID", 1, 20_000_000, 20_000_000, 48_000_000),  # 1.2 x (20 + 20)
        ("CONDUIT", 2, 10_000_000, 10_000_000, 24_000_000),
        ("NEXRAD3", 3, 5_000_000, 5_000_000, 12_000_000),
    ]


def test_a_cell_is_the_same_after_its_way_to_the_process(cell: JoinLeaveCell) -> None:
    here = Path("/x")
    trace = TraceInfo(source="t", products=1, bytes=1)
    job = Job(cell, "x-1", here, here, trace, here, here, False, "d")
    assert Job.from_json(job.to_json()) == job
    assert cell.digest("trace") == JoinLeaveCell.from_dict(
        json.loads(json.dumps(cell.to_dict()))
    ).digest("trace")


@pytest.mark.slow
def test_traces_are_scaled_and_apart(spec: JoinLeaveSpec, cell: JoinLeaveCell) -> None:
    trace = prepare(spec, cell)
    parts = traces_of(trace.text)
    assert list(parts) == list(FEEDS)
    sizes = {f: [int(line.split()[0]) for line in text.splitlines()] for f, text in parts.items()}
    assert trace.products == sum(map(len, sizes.values()))
    assert trace.size_bytes == sum(map(sum, sizes.values()))
    assert trace.largest_bytes == max(map(max, sizes.values()))
    unscaled = tuple(f.model_copy(update={"size_factor": 1.0}) for f in spec.feeds)
    other = spec.model_copy(update={"duration_s": 60.0, "feeds": unscaled})
    whole = prepare(other, expand(other, SUBSCRIBERS)[0])
    first = [int(line.split()[0]) for line in traces_of(whole.text)["NGRID"].splitlines()]
    assert sizes["NGRID"] == [max(1, round(size * 0.2)) for size in first]
    # A seed for each feed: other products at other times.
    times = {f: [line.split()[1] for line in text.splitlines()] for f, text in parts.items()}
    assert times["NGRID"] != times["CONDUIT"]


def test_the_publishers_queue_must_hold_what_is_sent(spec: JoinLeaveSpec, tmp_path: Path) -> None:
    """40 products of 1 MB in each of three feeds: 120 MB, plus half of that as a margin."""
    trace = tmp_path / "trace.txt"
    lines = [f"1000000 201601010000{second:02d}.000\n" for second in range(40)]
    trace.write_text("".join(lines))
    unscaled = tuple(f.model_copy(update={"size_factor": 1.0}) for f in spec.feeds)
    asked = spec.model_copy(update={"duration_s": 60.0, "feeds": unscaled, "trace": str(trace)})
    whole = expand(asked, SUBSCRIBERS)[0]
    assert prepare(asked, dataclasses.replace(whole, q_snd_bytes=180_000_000, n_snd=120)).products
    small = dataclasses.replace(whole, q_snd_bytes=179_999_999)
    with pytest.raises(UsageError, match="found 179999999 bytes; valid: 180000000 or more"):
        prepare(asked, small)
    with pytest.raises(UsageError, match="n_snd: found 119; valid: 120 or more products"):
        prepare(asked, dataclasses.replace(whole, n_snd=119))


def test_disk_has_a_queue_for_each_subscription(cell: JoinLeaveCell) -> None:
    # 8 x 1.5 x 100 MB + 22 x 64 MB + 256 MB
    needed = 1_200_000_000 + 1_408_000_000 + 256_000_000
    assert disk_needed_bytes(cell, 100_000_000) == needed


def test_configuration_of_the_publisher(cell: JoinLeaveCell, network: Network) -> None:
    roots = {f.name: endpoints_of(network, f.lane)[0] for f in cell.feeds}
    lines = configs.publisher_conf(network, cell, roots, Path("/s.sock")).splitlines()
    star = roots["NGRID"]
    assert [line for line in lines if line.startswith("MULTICAST")] == [
        f"MULTICAST NGRID 239.10.1.1:38800 10.10.1.1 24 101 star {star.port}",
        f"MULTICAST CONDUIT 239.10.1.2:38800 10.10.2.1 24 102 star {star.port}",
        f"MULTICAST NEXRAD3 239.10.1.3:38800 10.10.3.1 24 103 star {star.port}",
    ]
    assert {
        "SET path.service unix:/s.sock",
        "SET fmtp.r_mc_bps 20000000 NGRID",
        "SET fmtp.r_mc_bps 5000000 NEXRAD3",
        "SET path.rate_bps 48000000 NGRID",
        "SET path.rate_bps 24000000 CONDUIT",
        'ALLOW NGRID|CONDUIT|NEXRAD3 "^10[.]20[.]0[.]6$"',  # uva subscribes from NIC2,
        'ALLOW NGRID "^10[.]10[.]1[.]2$"',  # and connects from each lane for its feed alone
        'ALLOW NEXRAD3 "^10[.]10[.]3[.]2$"',
        "SET ldm6.time_offset_s 0",
    } <= set(lines)


def test_configuration_of_a_subscription(cell: JoinLeaveCell, network: Network) -> None:
    feed = cell.feeds[1]
    leaf = endpoints_of(network, feed.lane)[1][network.segment_of("uva", feed.lane).name]
    text = configs.subscriber_conf(network, cell, network.host("uva"), feed, leaf)
    (receive,) = [line for line in text.splitlines() if line.startswith("RECEIVE")]
    assert receive == f"RECEIVE CONDUIT 10.20.0.2:388 10.10.2.2 ashb {leaf.port} 304"


def test_the_network_must_have_lanes(spec: JoinLeaveSpec) -> None:
    with pytest.raises(SpecErrors, match="found parameter 'lanes'; valid: receivers"):
        runner.plan(spec.model_copy(update={"topology": "geni5"}))


@pytest.mark.parametrize(
    ("old", "new", "text"),
    [
        ("feed: CONDUIT", "feed: NGRID", "found feed 'NGRID' twice; valid: each feed once"),
        ("feed: CONDUIT", "feed: conduit", "found feed 'conduit' in feeds[1]; valid: "),
        ("  stay_s: 45", "  stay_s: 1", "found stay_s 1 in subscriptions; valid: "),
        ("  away_s: 30", "  awya_s: 30", "did you mean 'away_s'?"),
        ("kind: join-leave", "kind: join", "found kind 'join'; valid: 'join-leave'"),
        ("feeds:", "factors: { loss: [0] }\nfeeds:", "unknown key 'loss' in factors"),
    ],
)
def test_mistakes(tmp_path: Path, old: str, new: str, text: str) -> None:
    path = tmp_path / "x.yaml"
    path.write_text(find("join-leave").read_text().replace(old, new, 1))
    with pytest.raises(SpecErrors) as caught:
        load(path)
    assert text in str(caught.value)


def test_levels_of_what_varies(spec: JoinLeaveSpec) -> None:
    factors = JoinLeaveFactors(killed=(0.0, 0.5), stay_s=(20.0,))
    cells = expand(spec.model_copy(update={"factors": factors, "repeats": 2}), ["uva", "umd"])
    assert [cell.cell for cell in cells] == [
        f"join-leave-m2-f3-stay20-killed{killed}-n{n}" for n in (1, 2) for killed in ("0", "0.5")
    ]
    assert cells[1].factors["killed"] == 0.5
    assert cells[0].seed == cells[1].seed
    ends = {event.what for event in cells[0].script}
    assert ends == {"join", "leave"}  # none is killed
    assert "kill" in {event.what for event in cells[1].script}
    assert JoinLeaveCell.from_dict(json.loads(json.dumps(cells[1].to_dict()))) == cells[1]


def test_a_rate_that_rounds_to_nothing_is_refused() -> None:
    spec = load_as(JoinLeaveSpec, find("join-leave"))
    fixed = spec.parameters.model_copy(update={"r_mc": 1e-12})
    with pytest.raises(UsageError, match="^r_mc: found 1e-12 x .* = 0 bit/s; valid: 1000 bit/s"):
        feeds_of(spec.model_copy(update={"parameters": fixed}))
