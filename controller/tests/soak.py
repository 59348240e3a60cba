# SPDX-License-Identifier: Apache-2.0
"""Ask a controller process with four switches for path after path: what grows?

    python -m controller.tests.soak CYCLES [REPORT_EACH]

A cycle makes a path, lets three leaves join, one leave and come back, holds and commits a fourth
branch of another path, and deletes both. The switches are at the other end of real connections and
confirm everything.
"""

from __future__ import annotations

import contextlib
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from controller.api.path_client import PathClientError
from controller.paths.core import Endpoint
from controller.tests.process import wait_until
from controller.tests.sample import LEAF_2, LEAF_3, LEAF_4, ROOT
from controller.tests.test_hostile import Running

RATE_BPS = 20_000_000


@dataclass(frozen=True)
class Size:
    """What a controller uses. `store_kb`: including SQLite's log."""

    rss_kb: int
    threads: int
    files: int
    store_kb: int
    log_kb: int


class Soaked:
    """The controller, and the requests to it."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        options = ("--store", str(directory / "store"), "--liveness-period-ms", "0")
        self.running = Running(directory, options)
        self._switches = [self.running.switch(number) for number in (1, 2, 3, 4)]
        wait_until("all are ready", lambda: all(self.running.client.health()["switches"].values()))

    def close(self) -> None:
        """End the controller."""
        for switch in self._switches:
            switch.close()
        self.running.close()

    def cycle(self, number: int) -> None:
        """Make two paths, change them, and delete them."""
        client, name = self.running.client, f"path-{number}"
        client.create_path(name, ROOT, RATE_BPS)
        for leaf in (LEAF_2, LEAF_3, LEAF_4):
            client.add_leaf(name, leaf)
        client.remove_leaf(name, LEAF_3)
        client.add_leaf(name, LEAF_3)
        other = Endpoint("s1", 1, 200 + number % 1000)
        hold = client.hold(f"{name}-b", other, RATE_BPS, hold_s=60)
        client.commit(hold["id"])
        client.delete_path(f"{name}-b")
        client.delete_path(name)

    def size(self) -> Size:
        """Return what the process and its files use now."""
        status = self.running.status
        files = len(list(Path(f"/proc/{self.running.process.pid}/fd").iterdir()))
        store = sum(path.stat().st_size for path in self._directory.glob("store*"))
        log = self.running.log.stat().st_size
        return Size(status("VmRSS"), status("Threads"), files, store // 1024, log // 1024)


@contextlib.contextmanager
def soaking(directory: Path) -> Iterator[Soaked]:
    """Yield a controller that takes requests."""
    soaked = Soaked(directory)
    try:
        yield soaked
    finally:
        soaked.close()


def main(cycles: int, each: int) -> None:
    """Print a line of sizes after every `each` cycles."""
    with tempfile.TemporaryDirectory() as work, soaking(Path(work)) as soaked:
        print("cycles rss_kb threads files store_kb log_kb", flush=True)
        for number in range(cycles + 1):
            if number % each == 0:
                size = soaked.size()
                print(
                    number, size.rss_kb, size.threads, size.files, size.store_kb, size.log_kb,
                    flush=True,
                )  # fmt: skip
            try:
                soaked.cycle(number)
            except PathClientError as error:
                if error.status != 504:  # a machine under load: not confirmed within 5 s
                    raise
                print(f"cycle {number}: {error}", flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]), int([*sys.argv, "500"][2]))
