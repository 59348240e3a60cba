# SPDX-License-Identifier: Apache-2.0
"""Minute records survive kills of every program on their way: rtstats, ldmd, pqact, a file."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

import pytest

from common.places import absent_programs, program
from experiments.cells.minute_records import ACCEPTED, FILE, PATHS, RECORDED, MinuteRecords
from monitor.records import Records
from monitor.store import Store
from parsers.measure.evaluate import Transports, evaluate
from parsers.measure.metrics import of_sums
from parsers.tests.synthetic import SyntheticCell, write_synthetic_run
from topologies.emulate.emulation import Emulation
from topologies.model.load import find, load

PROGRAMS = ("rtstats", "pqact", "ldmd", "pqcreate")
MINUTES, EACH, SIZE = 5, 12, 1000
WAIT_S = 60.0


def until(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + WAIT_S
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.1)


def log_lines(first: int) -> list[str]:
    """Return a log of products that took FMTP 1.5 s each; every third needed two blocks again."""
    lines = []
    for number in range(MINUTES * EACH):
        at = first + number * 60 // EACH
        stamp = time.strftime("%Y%m%dT%H%M%S", time.gmtime(at))
        made = time.strftime("%Y%m%d%H%M%S", time.gmtime(at - 2))
        info = f"{SIZE:10d} {made}.500000 NGRID {number:03d}  NGRID.{number:06d}"
        blocks = 2 if number % 3 == 0 else 0
        lines.append(
            f"{stamp}.000000Z down7[7]   down7.c:down7_ended:1   INFO Received: "
            f'{{delay: 1.000000 s, index: {number}, retrans: {blocks}, info: "{info}"}}\n'
        )
    return lines


class Site:
    """The monitor's server and a subscriber's rtstats, in one folder."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.file = folder, folder / "out" / FILE
        self.log = folder / "ldmd.log"
        (folder / "out").mkdir()
        with socket.create_server(("127.0.0.1", 0)) as one:
            self.port = str(one.getsockname()[1])
        for queue in ("here.pq", "there.pq"):
            argv: list[str | Path] = [
                program("pqcreate"),
                "-s",
                "10m",
                "-S",
                "1000",
                "-q",
                folder / queue,
            ]
            subprocess.run(argv, check=True)
        (folder / "actions").write_text(RECORDED)
        (folder / "conf").write_text(ACCEPTED)

    @contextmanager
    def run(self, *argv: str | Path) -> Iterator[subprocess.Popen[bytes]]:
        errors = (self.folder / "errors").open("ab")
        with errors, subprocess.Popen(argv, stdout=errors, stderr=errors) as process:
            try:
                yield process
            finally:
                process.kill()

    def server(self) -> tuple[str | Path, ...]:
        return (
            *(program("ldmd"), "--user", "root", "-f", "-q", self.folder / "there.pq"),
            *("-P", self.port, "-I", "127.0.0.1", "-l", "-", self.folder / "conf"),
        )

    def decoder(self) -> tuple[str | Path, ...]:
        return (
            *(program("pqact"), "-q", self.folder / "there.pq", "-f", "EXP"),
            *("-d", self.folder / "out", self.folder / "actions"),
        )

    def sender(self) -> tuple[str | Path, ...]:
        return (
            *(program("rtstats"), "-q", self.folder / "here.pq", "-H", "here"),
            *("-o", "3600", "--ldmd-log", self.log, "-h", "127.0.0.1", "-P", self.port),
        )

    def products(self) -> int:
        return sum(m.fmtp for m in self.records().minutes.values())

    def records(self) -> Records:
        found = Records()
        if self.file.is_file():
            found.take(self.file.read_text().splitlines(keepends=True))
        return found


@pytest.mark.root
@pytest.mark.slow
def test_every_product_counts_once_whatever_is_killed(tmp_path: Path) -> None:
    if why := absent_programs(PROGRAMS):
        pytest.skip(why)
    site = Site(tmp_path)
    lines = log_lines(int(time.time()) // 60 * 60 - (MINUTES + 1) * 60)
    third = len(lines) // 3
    site.log.write_text("".join(lines[:third]))
    with site.run(*site.server()) as server, site.run(*site.decoder()) as decoder:
        with site.run(*site.sender()) as sender:
            until(lambda: site.products() >= third - EACH, "the first records")
            sender.send_signal(signal.SIGKILL)
        server.send_signal(signal.SIGKILL)
        decoder.send_signal(signal.SIGKILL)
    with site.log.open("a") as log:
        log.writelines(lines[third : 2 * third])
    with site.run(*site.sender()):  # the monitor is down, and when it returns rtstats is down
        time.sleep(2)
    with site.log.open("a") as log:
        log.writelines(lines[2 * third :])
    with site.run(*site.server()), site.run(*site.decoder()), site.run(*site.sender()) as sender:
        until(lambda: site.products() >= len(lines) - EACH, "the remaining records")
        sender.send_signal(signal.SIGTERM)
        assert sender.wait(WAIT_S) == 0
        until(lambda: site.products() >= len(lines), "the last records")
    found = site.records()
    assert found.bad == 0
    assert site.file.read_text().count("\n") > 2 * MINUTES  # both versions, and again after a kill
    sums = list(found.minutes.values())
    assert len(sums) == MINUTES and {m.fmtp for m in sums} == {EACH}
    assert {m.bytes for m in sums} == {EACH * SIZE}
    assert {m.sums and (m.sums.blocks, m.sums.files_mc, m.sums.delay_us) for m in sums} == {
        (2 * EACH // 3, EACH - EACH // 3, EACH * 1_000_000)
    }


def catches_term(pid: int) -> bool:
    status = Path(f"/proc/{pid}/status").read_text()
    (caught,) = [line.split()[1] for line in status.splitlines() if line.startswith("SigCgt:")]
    return bool(int(caught, 16) >> (signal.SIGTERM - 1) & 1)


PUBLISHER = (  # lines of mldm
    ("mldm.c:start:425", "Starting up: feed=NGRID, fmtpSrvr=10.10.1.1:45291, ttl=16"),
    ("pathservice_answers.c:path_is_ready:174", "Path service: path ready: path=x-NGRID, "
     "root=newy:3:1101, rate_bps=48000000, ms=1.1, leaves=0"),
    ("pathservice_answers.c:on_added:289", "Path service: leaf added: path=x-NGRID, "
     "endpoint=chic:4:1202, ms=1.2, waited_ms=1.2, users=1, leaves=2"),
)  # fmt: skip


@pytest.mark.root
@pytest.mark.slow
@pytest.mark.parametrize("offset_s", ["0", "3600"])
def test_the_rate_of_a_publishers_path_arrives(tmp_path: Path, offset_s: str) -> None:
    """mldm logged the rate before rtstats started."""
    if why := absent_programs(PROGRAMS):
        pytest.skip(why)
    site, stamp = Site(tmp_path), time.strftime("%Y%m%dT%H%M%S", time.gmtime())
    site.log.write_text(
        "".join(f"{stamp}.000000Z mldm[7]   {at}   NOTE {text}\n" for at, text in PUBLISHER)
    )
    file = tmp_path / "out" / PATHS
    argv = list(site.sender())
    argv[argv.index("-o") + 1] = offset_s
    with site.run(*site.server()), site.run(*site.decoder()):
        with site.run(*argv) as sender:
            until(lambda: catches_term(sender.pid), "rtstats")
            time.sleep(2)  # it reads the log
            sender.send_signal(signal.SIGTERM)
            assert sender.wait(WAIT_S) == 0
        until(lambda: file.is_file() and file.stat().st_size > 0, "the path's record")
    found = Records()
    found.take(file.read_text().splitlines(keepends=True))
    assert found.bad == 0 and not found.minutes
    assert {(p.host, p.feed, p.path, p.rate_bps, p.leaves) for p in found.paths.values()} == {
        ("here", "NGRID", "x-NGRID", 48_000_000, 2)
    }


def of_rtstats(folder: Path, host: str, log: Path, products: int) -> list[str]:
    """Return the minute records that rtstats writes from a whole log."""
    queue, file = folder / f"{host}.pq", folder / f"{host}.txt"
    subprocess.run([program("pqcreate"), "-s", "1m", "-S", "100", "-q", queue], check=True)
    ever_s = str(10**9)
    argv: list[str | Path] = [program("rtstats"), "-q", queue, "-H", host, "-o", ever_s]
    argv += ["--ldmd-log", log, "--minutes", file]

    def written() -> int:
        found = Records()
        found.take(file.read_text().splitlines(keepends=True) if file.exists() else ())
        return sum(minute.products for minute in found.minutes.values())

    with subprocess.Popen(argv, stderr=subprocess.DEVNULL) as process:
        try:
            until(lambda: written() == products, f"{products} products of {host}")
            process.terminate()
            assert process.wait(WAIT_S) == 0
        finally:
            process.kill()
    return file.read_text().splitlines(keepends=True)


@pytest.mark.slow
@pytest.mark.parametrize("backstop", [None, 3])
def test_table_4_of_records_is_that_of_the_logs(tmp_path: Path, backstop: int | None) -> None:
    """They agree to the last bit at each subscriber: rtstats reads the same logs as the report."""
    if why := absent_programs(("rtstats", "pqcreate")):
        pytest.skip(why)
    cell = SyntheticCell("ldm7", m=3, duration_s=150, backstop_index=backstop)
    run = write_synthetic_run(tmp_path / "run", cell)
    logs = run / f"cells/{cell.name}/logs"
    for log in logs.glob("r*.ldmd.log"):  # one space, as ldmd writes
        log.write_text(log.read_text().replace("   INFO  ", "   INFO "))
    found = evaluate(run)
    assert isinstance(found, Transports)
    (measured,) = found.cells
    records, store = Records(), Store(None)
    for receiver in measured.receivers:
        log = logs / f"{receiver.host}.ldmd.log"
        records.take(of_rtstats(tmp_path, receiver.host, log, cell.products))
    store.put_records("run", "native", records)
    rows = {row.host: row for row in store.minutes(store.sources()[0].id, 10**11)}
    store.close()
    assert records.bad == 0 and all(row.minutes == 3 and row.whole for row in rows.values())
    assert {h: of_sums(row.sums) for h, row in rows.items()} == {
        receiver.host: receiver.fmtp for receiver in measured.receivers
    }


# A product of LDM 6.15's rtstats: one line, under rtstats-VERSION/HOST/FEED/ORIGIN, in EXP.
ORIGINAL = (
    "{0} {0}                  idd.example.edu NEXRAD2              relay.edu_v_idd.example.edu"
    "         {1:>4}     99999999 2.1300001       1.05   57@1502               6.15.0\n"
)


@pytest.mark.root
@pytest.mark.slow
def test_products_of_the_original_rtstats_are_read(tmp_path: Path) -> None:
    """Numbers are cumulative within the hour, so the latest product of an hour counts, even if it
    arrives first."""
    if why := absent_programs((*PROGRAMS, "pqinsert")):
        pytest.skip(why)
    site = Site(tmp_path)
    (tmp_path / "actions").write_text(f"EXP\t^rtstats-[^/]*/\tFILE\t-flush\t{FILE}\n")
    ident = "rtstats-6.15.0/idd.example.edu/NEXRAD2/relay.edu_v_idd.example.edu"
    sent = [("20150615005959", 1234), ("20150615001530", 400), ("20150615010001", 7)]
    with site.run(*site.decoder()):
        for stamp, count in sent:
            (tmp_path / "line").write_text(ORIGINAL.format(stamp, count))
            argv: list[str | Path] = [
                program("pqinsert"),
                "-q",
                tmp_path / "there.pq",
                "-f",
                "EXP",
                "-p",
                ident,
            ]
            subprocess.run([*argv, tmp_path / "line"], check=True)
        until(lambda: site.records().taken == len(sent), "all lines")
    found = site.records()
    assert found.bad == 0
    assert {(h.host, h.feed, h.products) for h in found.hours.values()} == {
        ("idd.example.edu", "NEXRAD2", 1234),
        ("idd.example.edu", "NEXRAD2", 7),
    }


SLOW_SENDER = """#!{python}
import os, pathlib, signal, sys, time
queue = pathlib.Path(sys.argv[sys.argv.index("-q") + 1])
signals = []
signal.signal(signal.SIGTERM, lambda *_: signals.append(1))
queue.with_suffix(".ready").touch()
while not signals:
    time.sleep(0.01)
time.sleep(float(os.environ["SENDS_S"]))
queue.with_suffix(".signals").write_text(str(len(signals)))
"""


class Here:
    """An emulation where this machine is every host."""

    def popen(self, _node: str, argv: list[str], **how: Any) -> subprocess.Popen[bytes]:
        return subprocess.Popen(argv, **how)


def test_a_sender_that_ends_is_not_interrupted(tmp_path: Path) -> None:
    """A second SIGTERM ends rtstats before a distant monitor has its last records."""
    sender = tmp_path / "rtstats"
    sender.write_text(SLOW_SENDER.format(python=sys.executable))
    sender.chmod(0o755)
    (tmp_path / "logs").mkdir()
    network = load(find("geni5"), {"receivers": 2})
    here = cast(Emulation, Here())
    records = MinuteRecords(here, network, tmp_path, tmp_path, tmp_path)
    near, far = (host.name for host in network.subscribers)
    try:
        for name, sends_s in ((near, "0.1"), (far, "1")):
            records.follow(name, tmp_path / f"logs/{name}.log", {"SENDS_S": sends_s})
            until((tmp_path / f"{name}.ready").exists, "the sender")
        records.finish()
    finally:
        records.stop()
    assert [(tmp_path / f"{name}.signals").read_text() for name in (near, far)] == ["1", "1"]
