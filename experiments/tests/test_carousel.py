# SPDX-License-Identifier: Apache-2.0
"""Protocol fcast as a level: what a file may ask for, the programs' arguments, what the verdict
finds wrong; and its experiments."""

from __future__ import annotations

import dataclasses
import json
import os
import random
import re
import statistics
from pathlib import Path
from typing import Any

import pytest

from common.contracts import LOSS_COMMENT
from common.places import EXPERIMENTS, ROOT
from experiments.cells import disk_throttle
from experiments.design import carousel, shaping, trace_input
from experiments.design.carousel import Carousel
from experiments.design.expansion import CellSpec, expand
from experiments.design.spec import ExperimentSpec, SpecErrors, at_level, find, load, load_as
from experiments.runs.preparation import RunError, check_slow_disk, plan
from experiments.tests.judged import GOOD, HOSTS, counters
from experiments.verdict import judge
from parsers.measure.carousel import CarouselData
from parsers.read.fcast_log import CarouselReceiver, CarouselSender
from protocols.adapter import Setup, Station

NAMES = tuple(sorted(path.stem for path in EXPERIMENTS.glob("fcast-*.yaml")))
TEXT = (EXPERIMENTS / "fcast-k.yaml").read_text()
FILE = Carousel(1_000_000, "rs", 32, "shuffle", 1024, 0, 0.0)


def cells_of(name: str, level: str = "quick") -> tuple[CellSpec, ...]:
    return expand(at_level(load_as(ExperimentSpec, find(name)), level), level)


def mistakes(folder: Path, *changes: tuple[str, str]) -> str:
    text = TEXT
    for old, new in changes:
        assert old in text, old
        text = text.replace(old, new, 1)
    (folder / "x.yaml").write_text(text)
    with pytest.raises(SpecErrors) as caught:
        load(folder / "x.yaml")
    return str(caught.value)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("level", ["quick", "paper"])
def test_the_overview_counts_their_cells(name: str, level: str) -> None:
    row = re.search(
        rf"^\| \[{name}\].*$", (ROOT / "docs/results/README.md").read_text(), re.MULTILINE
    )
    assert row is not None
    cells = cells_of(name, level)
    assert len(cells) == int(row[0].split("|")[4 if level == "quick" else 6])
    assert len({cell.cell for cell in cells}) == len(cells)
    assert (ROOT / f"docs/results/{name}.md").exists()


@pytest.mark.parametrize("name", NAMES)
def test_every_cell_has_its_file_and_its_network(name: str) -> None:
    for item in plan(at_level(load(find(name)), "quick"), "quick"):
        assert item.trace.products == 1
        assert item.trace.size_bytes == item.cell.carousel.file_bytes > 0
        assert len(item.network.subscribers) >= item.cell.m
        again = CellSpec.from_dict(json.loads(json.dumps(item.cell.to_dict())))
        assert again == item.cell


def test_a_carousel_needs_a_file(tmp_path: Path) -> None:
    text = mistakes(tmp_path, ("  file_bytes: 1048576\n", ""))
    assert "protocol fcast without file_bytes" in text


def test_periodic_loss_is_the_only_loss(tmp_path: Path) -> None:
    text = mistakes(tmp_path, ("  fec: rs\n", "  fec: rs\n  loss_period: 19\n"))
    assert "loss 0.4 beside loss_period; valid: [0]" in text
    other = [("protocol: [fcast]", "protocol: [fcast, ldm7]"), ("[10%, 40%]", "[0]")]
    assert "with loss_period" in mistakes(
        tmp_path, *other, ("  fec: rs\n", "  fec: rs\n  loss_period: 19\n")
    )


def test_the_seed_decides_when_receivers_tune_in() -> None:
    hosts = [f"s{n}" for n in range(2000)]
    late = dataclasses.replace(FILE, tune_in_s=2.0)
    assert set(carousel.tune_ins(FILE, hosts, 1).values()) == {0.0}
    found = carousel.tune_ins(late, hosts, 1)
    assert found == carousel.tune_ins(late, hosts, 1) != carousel.tune_ins(late, hosts, 2)
    times = list(found.values())
    gaps = [after - before for before, after in zip([0.0, *times], times, strict=False)]
    assert min(gaps) >= 0
    assert statistics.fmean(gaps) == pytest.approx(2.0, rel=0.1)
    assert statistics.stdev(gaps) == pytest.approx(2.0, rel=0.1)  # exponential


@pytest.mark.parametrize(("k", "overhead"), [(4, 700), (32, 696), (128, 99), (200, 27), (0, 27)])
def test_blocks_of_reed_solomon_are_filled(k: int, overhead: int) -> None:
    assert carousel.overhead_of(dataclasses.replace(FILE, k=k)) == overhead
    assert (k or 200) * (100 + overhead) // 100 <= 255


def test_what_the_programs_are_told(tmp_path: Path) -> None:
    setup = Setup(
        build=tmp_path,
        work=tmp_path,
        sender=Station("10.0.0.1", "nic1"),
        receivers=(),
        group="232.1.1.1",
        port=38800,
        rate_bps=0,
    )
    file = tmp_path / "file"
    told = carousel.send_argv(FILE, setup, rate_bps=10_940_000, file=file, source=tmp_path)
    words = " ".join(told)
    assert "--group 232.1.1.1:38800 --interface 10.0.0.1" in words
    assert "--fec rs --k 32 --order shuffle --symbol 1024 --overhead 696" in words
    # 1,024 B of data, 56 B of headers from IP on; Ethernet's 14 B are not counted.
    assert "--rate 10800000 " in words


def test_a_file_in_place_of_a_trace() -> None:
    found = trace_input.of_file(5000)
    assert (found.products, found.size_bytes, found.largest_bytes) == (1, 5000, 5000)
    assert found.text.split()[0] == "5000"
    one, again, other = (b"".join(carousel.content(seed, 5000)) for seed in (1, 1, 2))
    assert one == again != other


@pytest.mark.parametrize("size", [0, 1, 2**20 - 1, 2**20, 2**20 + 1, 3 * 2**20 + 7])
def test_a_large_file_is_made_in_pieces(size: int) -> None:
    """The bytes are those of a single draw, and no piece is large."""
    pieces = list(carousel.content(3, size))
    assert b"".join(pieces) == random.Random("downpour file 3").randbytes(size)
    assert max(map(len, pieces), default=0) <= 2**20


def test_the_size_of_a_file_is_no_memory() -> None:
    """The first bytes of a file of 10 TB come at once."""
    assert len(next(carousel.content(3, 10**13))) == 2**20


def test_periodic_loss_is_read_back() -> None:
    command = " ".join(shaping.period_command("s-eth0", 19))
    assert "-p udp -m statistic --mode nth --every 19 --packet 0" in command
    shown = '-A INPUT -i s-eth0 -p udp -m statistic --mode nth --every 19 -m comment --comment "'
    shown += f'{LOSS_COMMENT}" -c 1 1 -j DROP'
    assert all(s.ok for s in shaping.read_back_period(shown, "s", 19))
    assert not any(s.ok for s in shaping.read_back_period(shown, "s", 18))
    assert not any(s.ok for s in shaping.read_back_period("", "s", 19))


# 8,000 datagrams to each receiver, of 1,082 B with all headers, in 6.92 s: 10 Mbit/s.
CLASSES = {"umass/u-eth0/1:1": {"sent_packets": 8000, "sent_bytes": 8_656_000}}
SENDER = CarouselSender(8000, 7000, 980, 20, 0, 6.9848, 1024)
RECEIVER = CarouselReceiver(6930, 70, 100, 0, 0, 0, 0, 6.0, True, 5.9, 6900, 70, 6800)


def statuses(
    sender: CarouselSender | None = SENDER,
    receiver: CarouselReceiver | None = RECEIVER,
    **changes: Any,
) -> dict[str, str]:
    data = CarouselData(sender, dict.fromkeys(HOSTS, receiver))
    evidence = dataclasses.replace(
        GOOD,
        **{
            "protocol": "fcast",
            "shaped_bps": 10_000_000,
            "end": counters(classes=CLASSES),
            "receivers": dict.fromkeys(HOSTS),
            "arrived": dict.fromkeys(HOSTS, (7000, 70)),
            "replayed": None,
            "carousel": data,
            **changes,
        },
    )
    return {c.name: c.status for c in judge(evidence).checks if c.status in ("warn", "fail")}


def test_a_good_carousel_is_faithful() -> None:
    assert statuses() == {}


@pytest.mark.parametrize(
    ("changes", "name"),
    [
        ({"receiver": None}, "datagrams accounted for"),
        # The network lost 10 that no rule dropped; the program never saw 100; a stranger sent one.
        ({"receiver": dataclasses.replace(RECEIVER, lost=80)}, "datagrams accounted for"),
        ({"receiver": dataclasses.replace(RECEIVER, received=6800)}, "datagrams accounted for"),
        ({"receiver": dataclasses.replace(RECEIVER, stray=1)}, "datagrams accounted for"),
        ({"sender": None}, "sender rate"),
        ({"shaped_bps": 11_000_000}, "sender rate"),
        ({"sender": dataclasses.replace(SENDER, datagrams=8001)}, "sender rate"),
        ({"drained": False}, "drained"),
        ({"contents": GOOD.contents[:1]}, "products identical"),
    ],
)
def test_what_goes_wrong_is_told(changes: dict[str, Any], name: str) -> None:
    assert statuses(**changes).get(name) == "fail"


@pytest.mark.parametrize(
    ("disk_iops", "b_rcv_bytes", "found"),
    [(204, 4_000_000, None), (204, 2_000_000, "fail"), (0, 4_000_000, "fail")],
)
def test_a_slow_disk_leaves_a_full_buffer(
    disk_iops: int, b_rcv_bytes: int, found: str | None
) -> None:
    """5,000 symbols of 1,024 B are unread: 5.12 MB; the buffer is twice what was asked for."""
    receiver = dataclasses.replace(RECEIVER, received=1930, lost=20)
    changes: dict[str, Any] = {"disk_iops": disk_iops, "b_rcv_bytes": b_rcv_bytes}
    assert statuses(receiver=receiver, **changes).get("datagrams accounted for") == found


def test_a_moment_decides_no_rate() -> None:
    """20 datagrams in 0.2 s, the last three of which are goodbyes."""
    short = dataclasses.replace(SENDER, datagrams=20, seconds=0.2)
    few = {"umass/u-eth0/1:1": {"sent_packets": 20, "sent_bytes": 20_000}}
    assert "sender rate" not in statuses(short, end=counters(classes=few))
    few["umass/u-eth0/1:1"]["sent_packets"] = 19
    assert statuses(short, end=counters(classes=few)).get("sender rate") == "fail"


def test_every_so_many_th_is_lost() -> None:
    every: dict[str, Any] = {"loss": 0.0, "loss_period": 100}
    assert statuses(**every) == {}
    few = dataclasses.replace(RECEIVER, lost=60, received=6940)
    wrong: dict[str, Any] = {"arrived": dict.fromkeys(HOSTS, (7000, 60)), "receiver": few}
    assert statuses(**every, **wrong).get("injected loss") == "fail"


def test_a_scheme_of_storage_has_its_code_and_order(tmp_path: Path) -> None:
    text = mistakes(tmp_path, ("  fec: rs\n", "  storage: group-area\n"))
    assert "group-area with fec ldpc-triangle; valid: in-place, or fec rs" in text
    text = mistakes(tmp_path, ("  fec: rs\n", "  fec: rs\n  storage: crowd-bucket\n"))
    assert "crowd-bucket with order shuffle; valid: another scheme, or order sequential" in text
    text = mistakes(tmp_path, ("  k: [8", "  storage: [in-place, group]\n  k: [8"))
    assert "group-area" in text


def test_a_slow_disk_is_the_native_clock_s(tmp_path: Path) -> None:
    """Guests have no disk; a file system in memory is on none."""
    (tmp_path / "x.yaml").write_text(TEXT.replace("  fec: rs\n", "  fec: rs\n  disk_iops: 204\n"))
    planned = plan(load(tmp_path / "x.yaml"))
    with pytest.raises(RunError, match="disk_iops 204 with the virtual clock"):
        check_slow_disk(planned, tmp_path, "virtual")
    check_slow_disk(plan(load(find("fcast-k"))), tmp_path, "virtual")
    with pytest.raises(RunError, match="is on no disk"):
        check_slow_disk(planned, Path("/proc/self"), "native")


MOUNTS = "tmpfs /x tmpfs rw 0 0\ncgroup {v1} cgroup rw,relatime,blkio 0 0\n"


def test_a_disk_is_slowed_down_and_read_back(tmp_path: Path) -> None:
    (tmp_path / "dev" / disk_number(tmp_path)).mkdir(parents=True)
    throttle = disk_throttle.find(
        tmp_path, "one", MOUNTS.format(v1=tmp_path / "v1"), tmp_path / "dev"
    )
    throttle.group.parent.mkdir()
    throttle.limit(204)
    assert throttle.found() == 204
    file = tmp_path / "v1/one/blkio.throttle.write_iops_device"
    assert file.read_text() == f"{disk_number(tmp_path)} 204\n"
    throttle.take(17)
    assert (throttle.group / "cgroup.procs").read_text() == "17"
    file.write_text("7:9 204\n")  # of another disk
    assert throttle.found() is None


def test_control_groups_of_the_second_version(tmp_path: Path) -> None:
    group = tmp_path / "v2"
    group.mkdir()
    mounts = f"cgroup2 {group} cgroup2 rw 0 0\n"
    (tmp_path / "dev" / disk_number(tmp_path)).mkdir(parents=True)
    with pytest.raises(disk_throttle.DiskError, match="no control groups"):
        disk_throttle.find(tmp_path, "one", mounts, tmp_path / "dev")
    (group / "cgroup.controllers").write_text("cpu io\n")
    throttle = disk_throttle.find(tmp_path, "one", mounts, tmp_path / "dev")
    throttle.limit(204)
    assert (group / "cgroup.subtree_control").read_text() == "+io"
    limits = f"{disk_number(tmp_path)} rbps=max wbps=max riops=max wiops=204\n"
    assert throttle.found() == 204
    (group / "one/io.max").write_text(limits)  # as the kernel shows it
    assert throttle.found() == 204


def test_a_partition_s_disk_is_slowed_down(tmp_path: Path) -> None:
    part = tmp_path / "disk/part"
    part.mkdir(parents=True)
    (part / "partition").write_text("1\n")
    (tmp_path / "disk/dev").write_text("8:0\n")
    (tmp_path / disk_number(tmp_path)).symlink_to(part)
    assert disk_throttle.disk_of(tmp_path, tmp_path) == "8:0"
    with pytest.raises(disk_throttle.DiskError, match="is on no disk"):
        disk_throttle.disk_of(tmp_path, tmp_path / "disk")


def disk_number(path: Path) -> str:
    number = path.stat().st_dev
    return f"{os.major(number)}:{os.minor(number)}"
