# SPDX-License-Identifier: Apache-2.0
"""The arguments that every adapter gives its programs, and its description."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from protocols import aeron, fcast, flute, fmtp, registry, udpcast
from protocols.adapter import Adapter, Setup, Station, lacking, missing, named_counts

ROOM = Path(__file__).resolve().parents[1]
GOLDEN = Path(__file__).parent / "golden"
OURS = [a for a in registry.OWN.values() if a.feed != "ldm"]


@pytest.fixture
def setup(tmp_path: Path) -> Setup:
    (tmp_path / "source").mkdir()
    (tmp_path / "source/NGRID.000007").write_bytes(bytes(14_000))
    return Setup(
        build=tmp_path / "build",
        work=tmp_path,
        sender=Station("10.1.0.1", "umass-nic1"),
        receivers=(Station("10.1.0.2", "sl1-nic1"), Station("10.1.0.3", "sl2-nic1")),
        group="232.1.1.1",
        port=38800,
        rate_bps=20_000_000,
        loss=0.05,
        rcvbuf_bytes=600_000_000,
    )


def lines(adapter: Adapter, setup: Setup) -> Iterator[str]:
    yield " ".join(adapter.sender(setup, [setup.source / "NGRID.000007"]))
    yield " ".join(adapter.receiver(setup, 1))


@pytest.mark.parametrize("adapter", OURS, ids=lambda a: a.name)
def test_the_group_or_the_server_and_the_inbox_are_told(adapter: Adapter, setup: Setup) -> None:
    sender, receiver = lines(adapter, setup)
    for words in (sender, receiver):
        assert "232.1.1.1" in words or "10.1.0.1:38801" in words
    assert str(setup.inbox(1)) in receiver
    assert "None" not in sender + receiver


# What each program counts in its rate: IP packets (fmtp-send, udp-sender, uftp: the rate itself);
# from the IP header on, 1500 of 1514 bytes (fcast-send); payload, 1428 of 1470 (NORM, FLUTE).
@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("fmtp", "--rate 20000000 "),
        ("fcast", "--rate 19815059 "),
        ("norm", "rate=19428571 "),
        ("norm-fec", "proactive=4 "),
        ("uftp", "-R 20000 "),
        ("udpcast", "--max-bitrate 20000k"),
        ("flute-rs", "--bitrate 19429 "),
        # The only file has 10 symbols: 0.5 lost on average, 5 x 0.69 beyond, 2 more.
        ("flute-rs", "--parity-symbols 6 "),
        ("flute-rq", "--parity-symbols 6 "),
    ],
)
def test_rate_and_parity_are_told(name: str, told: str, setup: Setup) -> None:
    assert told in next(lines(registry.get(name), setup))


@pytest.mark.parametrize("name", ["fmtp", "fcast", "norm", "udpcast", "aeron"])
def test_receivers_are_told_their_buffer(name: str, setup: Setup) -> None:
    assert "600000000" in list(lines(registry.get(name), setup))[1]
    own = replace(setup, rcvbufs=(1_000_000_000, 7_000_000))
    assert "7000000" in list(lines(registry.get(name), own))[1]


def test_aeron_waits_for_all_and_holds_the_bandwidth_delay_product(setup: Setup) -> None:
    """20 Mbit/s x 100 ms are 250 kB, and the window is twice that; 1472 + 28 bytes fill a frame."""
    far = replace(setup, delay_ms=50.0)
    sender, receiver = lines(aeron.AERON, far)
    assert "fc=min,g:/2," in sender
    assert "mtu=1472" in sender
    assert "rcv-wnd=500000|" in receiver
    assert "rcv-wnd=131072|" in list(lines(aeron.AERON, setup))[1]
    # A path has one source: receivers listen as for unicast, and are members of the group.
    assert "endpoint=0.0.0.0:38800" in receiver
    assert "join=232.1.1.1" in receiver
    # Where all may send, the group for data is odd.
    wide = replace(far, all_to_all=True, group="239.192.77.2")
    assert "endpoint=239.192.77.3:38800|" in list(lines(aeron.AERON, wide))[1]


# What the programs printed when they sent files to two receivers with 3 % loss each.
@pytest.mark.parametrize(
    ("name", "counts"),
    [
        # 20 + 14 + 1 + 31 + 1 + 41 + 1 blocks; answers: 2 REGISTER, 4 FILEINFO_ACK, 7 lists of
        # blocks, 6 COMPLETE; passes 2 and 3 of one file, 2 to 4 of the other.
        ("uftp", {"blocks_asked_for": 109, "answers": 19, "repair_passes": 5}),
        # The log's own running total is 80.
        ("udpcast", {"retransmits": 80, "sessions_ended": 1}),
        ("aeron", {"naks": 188, "retransmits": 181, "status_messages": 222}),
        ("quic", {"datagrams": 6696, "lost": 738, "feedback_datagrams": 306}),
    ],
)
def test_counters_of_what_programs_wrote(name: str, counts: dict[str, float]) -> None:
    said = (GOLDEN / f"{name}.txt").read_text()
    assert registry.get(name).counts(said, []) == counts
    assert registry.get(name).counts(said, []) != registry.get(name).counts("", [])


def test_completed_files_of_flute_are_those_of_all_receivers() -> None:
    said = (GOLDEN / "flute-receiver.txt").read_text()
    assert flute.RQ.counts("", [said, said.splitlines()[0] + "\n", ""]) == {"files_completed": 3}


def test_a_batch_of_flute_lasts_as_long_as_its_symbols_take(setup: Setup) -> None:
    """10 source symbols, 6 of parity and one more datagram, of 1428 bytes each at 19.43 Mbit/s: 10
    ms, plus 20 ms for the start."""
    sender, _ = lines(flute.RS, setup)
    assert sender.endswith("& sleep 0.030")
    assert "timeout 3.030 " in sender
    # The next batch has another session: this one's list of files is still sent.
    other = setup.source / "NGRID.000008"
    other.write_bytes(b"x")
    assert flute.RS.sender(setup, [other])[2].split("--tsi ")[1] != sender.split("--tsi ")[1]


def test_parity_of_flute_is_for_the_largest_block(setup: Setup) -> None:
    """500 symbols are 3 blocks of Reed-Solomon with up to 200 (10 + 5 x 3.08 + 2), but one block of
    RaptorQ (25 + 5 x 4.87 + 2). A single file is so large that its blocks are full."""
    large = setup.source / "NGRID.000009"
    large.write_bytes(bytes(500 * 1400))
    files = [setup.source / "NGRID.000007", large]
    assert "--parity-symbols 28 " in flute.RS.sender(setup, files)[2]
    assert "--parity-symbols 52 " in flute.RQ.sender(setup, files)[2]
    one = replace(setup, file_bytes=20_000_000)
    assert flute.parity(200, 0.05) == 28
    assert "28" in flute.RS.sender(one, [setup.source / "file"])


def test_udpcast_sends_a_single_file_as_it_is(setup: Setup) -> None:
    one = replace(setup, file_bytes=14_000)
    file = setup.source / "file"
    assert udpcast.UDPCAST.sender(one, [file])[-2:] == ["--file", str(file)]
    assert "tar" in udpcast.UDPCAST.sender(setup, [file])[2]


def test_flute_turns_until_it_is_ended_where_there_is_one_file(setup: Setup) -> None:
    one = replace(setup, file_bytes=14_000)
    assert flute.RS.feed_of(one) == "carousel"
    assert flute.RS.feed_of(setup) == "batch"
    assert fcast.FCAST.feed_of(one) == "carousel"


@pytest.mark.parametrize("adapter", registry.OWN.values(), ids=lambda a: a.name)
def test_every_adapter_says_how_it_repairs_and_what_it_cannot_do(adapter: Adapter) -> None:
    assert adapter.repairs
    source, _, settings = adapter.settings.partition(": ")
    assert any(sign in source for sign in ("(1", "(5)", "(7)", "documentation", "guide", "--help"))
    assert settings.endswith(".")
    assert adapter.limits
    assert all(limit.endswith(".") for limit in adapter.limits)
    assert registry.get(adapter.name) is adapter


def test_adapters_are_small() -> None:
    longest = {path.name: len(path.read_text().splitlines()) for path in ROOM.glob("*.py")}
    assert {name: n for name, n in longest.items() if n >= 250} == {}


def test_what_is_lacking_is_told(tmp_path: Path) -> None:
    text = lacking(flute.RQ, tmp_path)
    assert text is not None
    assert text.startswith("protocol flute-rq: found no program bench/flute/bin/flute-sender, ")
    assert "`make bench-setup`" in text
    assert "valid: build them" in (lacking(fmtp.FMTP, tmp_path) or "")
    assert missing(["sh", "no-such-program"], tmp_path) == ["no-such-program"]


def test_counters_of_fmtp_send() -> None:
    printed = (
        "products=584 receivers=8 seconds=62.1 datagrams=65000 blocks=64000 retx_requests=3 "
        "retx_blocks=17 parity_sent=812 repairs_sent=4 result=complete\n"
    )
    assert fmtp.FMTP.counts(printed, []) == {
        "datagrams": 65000,
        "unicast_repairs": 17,
        "parity_sent": 812,
        "multicast_repairs": 4,
    }
    assert named_counts("nothing", "products", {"a": "b"}) == {}
