# SPDX-License-Identifier: Apache-2.0
"""A controller whose disk is full: store and log are on a file system of 400 kB, in the
controller's own mount namespace."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from controller.api.path_client import PathClientError
from controller.paths.core import Endpoint
from controller.service.store import Store
from controller.tests.process import wait_until
from controller.tests.sample import LEAF_2, ROOT, network
from controller.tests.test_hostile import Running
from controller.tests.wire_switch import WireSwitch

pytestmark = [
    pytest.mark.slow,
    pytest.mark.root,
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to mount a small file system"),
    pytest.mark.skipif(shutil.which("unshare") is None, reason="unshare is not installed"),
]


@dataclass
class Small:
    """`disk`: the controller's file system, as seen from outside."""

    running: Running
    disk: Path
    switches: list[WireSwitch]

    def fill(self) -> None:
        """Fill it to the last byte."""
        with (self.disk / "filler").open("ab", buffering=0) as filler:
            for size in (4096, 1):
                with contextlib.suppress(OSError):
                    while True:
                        filler.write(bytes(size))

    def make_room(self) -> None:
        """Remove what `fill` has written."""
        (self.disk / "filler").unlink()


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Small]:
    place = tmp_path / "disk"
    place.mkdir()
    mount = f'mount -t tmpfs -o size=400k tmpfs {place} && exec "$@"'
    running = Running(
        tmp_path,
        (
            *("--store", str(place / "store"), "--log", str(place / "log")),
            *("--liveness-period-ms", "0"),
        ),
        ("unshare", "-m", "sh", "-c", mount, "sh"),
    )
    switches = [running.switch(number) for number in (1, 2, 3, 4)]
    wait_until("all are ready", lambda: all(running.client.health()["switches"].values()))
    yield Small(running, Path(f"/proc/{running.process.pid}/root{place}"), switches)
    for switch in switches:
        switch.close()
    running.close()


def refusal(small: Small, name: str, vlan: int) -> PathClientError | None:
    try:
        small.running.client.create_path(name, Endpoint("s1", 1, vlan), 0)
    except PathClientError as error:
        return error
    return None


def test_full_disk(small: Small, tmp_path: Path) -> None:
    client = small.running.client
    client.create_path("before", ROOT, 0)
    client.add_leaf("before", LEAF_2)
    small.fill()
    made = ["before"]
    for number in range(400):  # SQLite's log has some room left
        error = refusal(small, f"path-{number}", 200 + number)
        if error is not None:
            break
        made.append(f"path-{number}")
    assert error is not None and error.status == 507, error
    assert "nothing was changed" in error.detail
    for number in range(400, 430):
        error = refusal(small, f"path-{number}", 200 + number)
        assert error is not None and error.status == 507
    with pytest.raises(PathClientError) as caught:
        client.remove_leaf("before", LEAF_2)
    assert caught.value.status == 507
    assert {path["name"] for path in client.paths()} == set(made)
    assert len(client.get("before")["leaves"]) == 1
    assert client.health()["status"] == "ok"
    small.switches[1].close()  # a switch comes and goes in between
    small.switches[1] = small.running.switch(2)
    small.make_room()
    assert refusal(small, "after", 700) is None
    client.remove_leaf("before", LEAF_2)
    client.delete_path(made[-1])
    made[-1] = "after"
    assert {path["name"] for path in client.paths()} == set(made)
    log = (small.disk / "log").read_text()
    assert log.count("the store cannot be written") <= 2  # the log was full too
    assert "Traceback" not in log
    for path in small.disk.glob("store*"):
        shutil.copyfile(path, tmp_path / path.name)
    loaded = Store(tmp_path / "store", network().name, "core").load()
    assert {path.name for path in loaded.paths} == set(made)
    small.running.process.terminate()
    _, said = small.running.process.communicate(timeout=60)
    assert "Traceback" not in said
    assert len(said.splitlines()) < 10, said
