# SPDX-License-Identifier: Apache-2.0
"""Cells at workers: addresses, what travels, what comes back, and what Slurm says."""

from __future__ import annotations

import dataclasses
import io
import json
import os
import subprocess
import tarfile
import threading
import time
from pathlib import Path

import pytest

from experiments import cli
from experiments.cells.job import Job
from experiments.design.expansion import CellSpec
from experiments.design.spec import UsageError
from experiments.runs.cell_process import CellProblem
from experiments.workers import environment, local, parcel, slurm_clock
from experiments.workers.address import DaskAddress, SlurmAddress, parse
from experiments.workers.parcel import Ended, Parcel, ParcelError, Terms
from experiments.workers.remote import Told, Workers
from experiments.workers.slurm_clock import State, environment_of, parse_queue, script

ONE = {"commit": "1", "kernel": "7.3 a", "libc6": "2.36"}
OTHER = {"commit": "1", "kernel": "7.3 b", "libc6": "2.36"}


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("tcp://10.0.0.1:8786", DaskAddress("tcp://10.0.0.1:8786")),
        ("tls://head.example.org:1", DaskAddress("tls://head.example.org:1")),
        ("tcp://[::1]:8786", DaskAddress("tcp://[::1]:8786")),
        ("slurm:short", SlurmAddress("short")),
    ],
)
def test_an_address_names_an_engine(text: str, address: object) -> None:
    assert parse(text) == address


def test_a_machine_is_not_filled_with_workers() -> None:
    assert local.worker_count(None, 2) == 2
    assert local.worker_count(8, 2) == 8
    with pytest.raises(UsageError, match="--count: found 9; valid: at most 8, 4 for each core"):
        local.worker_count(9, 2)


@pytest.mark.parametrize(
    "text",
    ["", "tcp://host", "tcp://host:0", "tcp://host:70000", "http://h:1", "slurm:", "slurm:a b"],
)
def test_other_addresses_are_refused(text: str) -> None:
    with pytest.raises(UsageError, match="--at: found '.*'; valid: tcp://HOST:PORT"):
        parse(text)


def test_environments_differ_by_name() -> None:
    assert environment.difference(ONE, dict(ONE)) == ""
    assert environment.digest(ONE) == environment.digest(dict(reversed(ONE.items())))
    assert environment.digest(ONE) != environment.digest(OTHER)
    assert environment.difference(ONE, OTHER) == "kernel: 7.3 a and 7.3 b"
    many = dict.fromkeys("abcde", "2")
    assert environment.difference({}, many).endswith("c: none and 2; 2 more")


def test_a_workers_environment_names_what_moves_figures() -> None:
    found = environment.describe()
    assert {"commit", "kernel", "python", "programs", "Python packages"} <= found.keys()
    version = subprocess.run(
        ["dpkg-query", "--show", "--showformat=${Version}", "libc6"], capture_output=True, text=True
    )
    if version.returncode == 0:
        assert found["libc6"] == version.stdout


# -- what travels -----------------------------------------------------------------------------
def _job(cell: CellSpec, place: Path) -> Job:
    (place / "network").write_text('{"nodes": []}')
    (place / "trace").write_text("39 20150615000000.000\n")
    return Job(
        cell=cell,
        run_id="x",
        network=place / "network",
        trace=place / "trace",
        trace_info={"source": "t", "products": 1, "bytes": 39},
        build=Path("/elsewhere/build"),
        work=Path("/elsewhere/work"),
        keep_work=False,
        digest="d",
    )


def test_a_cell_arrives_as_it_was_sent(cells: dict[str, CellSpec], tmp_path: Path) -> None:
    terms = Terms(None, 60.0, memory_bytes=5, environment=ONE)
    sent = Parcel.of(_job(cells["ldm7"], tmp_path), terms)
    raw = json.loads(json.dumps(sent.to_dict()))  # plain types only
    place = tmp_path / "there"
    place.mkdir()
    Parcel.from_dict(raw).unpack(place)
    assert parcel.terms_in(place) == terms
    job = parcel.job_in(place, Path("/own/build"))
    assert job.cell == cells["ldm7"]
    assert job.build == Path("/own/build")
    assert job.network.read_text() == '{"nodes": []}'
    assert job.trace.read_text() == "39 20150615000000.000\n"
    assert job.work.parent == place


def test_results_arrive_whole(tmp_path: Path) -> None:
    out, there = tmp_path / "out", tmp_path / "there"
    (out / "logs").mkdir(parents=True)
    (out / "logs" / "a.log").write_text("1")
    (out / "cell.json").write_text("{}")
    there.mkdir()
    sums = parcel.sums(out)
    parcel.unpack(parcel.pack(out), there)
    parcel.check(there, sums)
    (there / "logs" / "a.log").write_text("2")
    with pytest.raises(ParcelError, match=r"logs/a\.log did not arrive as the worker wrote it"):
        parcel.check(there, sums)
    (there / "logs" / "a.log").unlink()
    with pytest.raises(ParcelError, match=r"logs/a\.log"):
        parcel.check(there, sums)


def _tar(name: str, kind: bytes = tarfile.REGTYPE, link: str = "") -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as tar:
        member = tarfile.TarInfo(name)
        member.type, member.linkname, member.size = kind, link, 1 if kind == tarfile.REGTYPE else 0
        tar.addfile(member, io.BytesIO(b"x"))
    return packed.getvalue()


@pytest.mark.parametrize(
    "packed",
    [
        _tar("../out"),
        _tar("a/../../out"),
        _tar("/tmp/out"),
        _tar("link", tarfile.SYMTYPE, "/etc/passwd"),
        _tar("hard", tarfile.LNKTYPE, "/etc/passwd"),
        _tar("pipe", tarfile.FIFOTYPE),
        b"no archive",
        _tar("cut")[: len(_tar("cut")) // 2],
    ],
    ids=["above", "above in parts", "absolute", "link", "hard link", "pipe", "none", "cut"],
)
def test_a_result_writes_nothing_outside(packed: bytes, tmp_path: Path) -> None:
    out = tmp_path / "a" / "out"
    out.mkdir(parents=True)
    with pytest.raises(ParcelError):
        parcel.unpack(packed, out)
    assert [p for p in tmp_path.rglob("*") if not p.is_dir() and out not in p.parents] == []


def test_a_result_has_a_bound(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parcel, "RESULT_LIMIT_BYTES", 0)
    with pytest.raises(ParcelError, match="larger than 0 bytes"):
        parcel.unpack(_tar("one"), tmp_path)


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"code": 0, "what": 1}'])
def test_a_damaged_end_is_told(text: str) -> None:
    with pytest.raises(ParcelError, match=r"ended\.json cannot be read"):
        Ended.from_text(text)


# -- what is told -----------------------------------------------------------------------------
PHASE = '{"event": "phase", "text": "x"}'


def test_no_event_is_told_twice() -> None:
    told = Told()
    assert len(told.events("1", 0, [PHASE, PHASE])) == 2
    assert told.events("1", 1, [PHASE]) == []
    assert len(told.events("1", 0, [PHASE, PHASE, PHASE])) == 1
    # The engine has restarted the cell.
    assert len(told.events("2", 0, [PHASE])) == 1


def test_times_are_those_of_the_last_attempt() -> None:
    told = Told()
    told.events("1", 0, ['{"virtual_s": 5.5, "real_s": 2}', "[]", "half a li"])
    assert (told.times.virtual_s, told.times.real_s) == (5.5, 2.0)
    told.events("2", 0, [PHASE])
    assert told.times.virtual_s == 0.0


def test_waiting_is_told_once_for_each_reason() -> None:
    told = Told()
    assert told.waits("waiting for Slurm (Resources)")
    assert not told.waits("waiting for Slurm (Resources)")
    assert told.waits("waiting for Slurm (Priority)")


def _ended(host: str, made_of: dict[str, str], out: Path) -> Ended:
    return Ended(0, "", host, made_of, parcel.sums(out))


def test_the_first_worker_says_what_all_are_made_of(tmp_path: Path) -> None:
    workers = Workers("slurm:a", mixed=False)
    assert workers.demanded is None
    workers.check(_ended("n1", ONE, tmp_path), tmp_path)
    assert workers.demanded == ONE
    with pytest.raises(
        CellProblem, match=r"worker n2 differs from the first worker.*kernel: 7\.3 a and"
    ):
        workers.check(_ended("n2", OTHER, tmp_path), tmp_path)
    found = workers.describe()["workers"]
    assert found["hosts"] == ["n1"]
    assert found["digest"] == environment.digest(ONE)


def test_mixed_workers_are_taken_where_that_is_asked_for(tmp_path: Path) -> None:
    workers = Workers("slurm:a", mixed=True, known=ONE)
    assert workers.demanded is None
    workers.check(_ended("n2", OTHER, tmp_path), tmp_path)
    ended = dataclasses.replace(_ended("n3", ONE, tmp_path), problem="no kernel")
    with pytest.raises(CellProblem, match="no kernel"):
        workers.check(ended, tmp_path)


# -- Slurm ------------------------------------------------------------------------------------
def test_the_queue_of_slurm() -> None:
    text = "7|0|RUNNING|None\n7|1|PENDING|Resources\n\nsqueue: error\n8|0|PENDING|a|b\n"
    assert parse_queue(text) == {
        "7_0": State("RUNNING", "None"),
        "7_1": State("PENDING", "Resources"),
        "8_0": State("PENDING", "a|b"),
    }


def test_commands_of_slurm_find_their_cluster_but_no_surrounding_job() -> None:
    mine = {"PATH": "/bin", "SLURM_CONF": "/site/slurm.conf", "SLURM_JWT": "key"}
    job = {"SLURM_JOB_ID": "7", "SLURM_MEM_PER_NODE": "100", "SLURM_ARRAY_TASK_ID": "1"}
    assert environment_of({**mine, **job}) == mine


def test_the_array_runs_the_cell_of_its_index(tmp_path: Path) -> None:
    places = [tmp_path / "a b", tmp_path / "it's $HOME"]
    text = script("downpour-1", "short", places, 1_500_000_001, tmp_path)
    assert "#SBATCH --array=0-1\n" in text
    assert "#SBATCH --mem=1501M\n" in text
    # The shell sees the place as it is.
    shown = text.replace("exec ", "echo ").replace("</dev/null", "")
    for index, place in enumerate(places):
        done = subprocess.run(
            ["sh", "-c", shown],
            env={"SLURM_ARRAY_TASK_ID": str(index), "PATH": "/usr/bin:/bin"},
            capture_output=True,
            text=True,
            check=True,
        )
        assert done.stdout.endswith(f"worker-cell {place}\n")


@pytest.mark.parametrize("port", ["0", "-1", "65536", "99999", "http"])
def test_a_port_that_does_not_exist_is_refused_before_workers_start(
    port: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(local, "serve", lambda _: pytest.fail("it began"))
    assert cli.main(["workers", "--port", port]) == 2
    assert capsys.readouterr().err == f"--port: found '{port}'; valid: 1 to 65535\n"


def test_a_lease_is_renewed_while_the_run_does_something_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A judgement between two polls may take longer than workers wait for a run."""
    monkeypatch.setattr(slurm_clock, "RENEW_S", 0.05)
    lease = slurm_clock.Lease()
    path = tmp_path / "work/lease"
    lease.keep(path)
    os.utime(path, (0, 0))
    deadline = time.monotonic() + 20
    while path.stat().st_mtime == 0 and time.monotonic() < deadline:
        time.sleep(0.02)
    assert path.stat().st_mtime > 0
    path.unlink()
    time.sleep(0.2)
    assert not path.exists()  # else it would return while the run removes its work
    lease.end()
    assert "lease" not in {thread.name for thread in threading.enumerate()}
