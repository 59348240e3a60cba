# SPDX-License-Identifier: Apache-2.0
"""One end of links that are cut between two guests of a calendar: `cut-link` and what it needs."""

from __future__ import annotations

import os
import select
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from common.shell import NetworkError, check, die_with_parent
from topologies.emulate import marks

PATIENCE_S: Final = 30.0  # to open its interfaces, or to end
_QDISC: Final = (
    *("fq", "nopacing", "orphan_mask", "0", "limit", "1000000", "flow_limit", "1000000"),
    *("timer_slack", "0", "horizon", "600s"),
)


@dataclass(frozen=True)
class CutInterface:
    """An interface and how long frames from the other end take to it. `pid`: of a process in its
    network namespace; None: the caller's."""

    name: str
    delay_ns: int
    pid: int | None = None

    @property
    def words(self) -> tuple[str, str]:
        """Return the interface and its delay as cut-link reads them."""
        place = self.name if self.pid is None else f"{self.pid}/{self.name}"
        return place, str(self.delay_ns)


def hold_frames(interface: str) -> list[str]:
    """Return the command that makes an interface hold each frame until its time. All are one flow:
    frames of the same instant keep their order."""
    return ["tc", "qdisc", "replace", "dev", interface, "root", *_QDISC]


def tag_beside(interface: str, vlan: int) -> str:
    """Return a script that keeps the tag of frames which cut-link sends beside them, as the kernel
    does: taps then see what is in them."""
    return (
        f"tc qdisc add dev {interface} clsact || exit 1\n"
        f"tc filter add dev {interface} egress protocol 802.1q prio 1 matchall "
        f"action vlan modify id {vlan} || exit 1\n"
    )


class CutLink:
    """A running cut-link, started by the constructor. `out`, `into`: files of batches."""

    def __init__(
        self,
        program: Path,
        window_ns: int,
        out: Path,
        into: Path,
        interfaces: Sequence[CutInterface],
    ) -> None:
        """Raises NetworkError."""
        self._said = ""
        words = [word for one in interfaces for word in one.words]
        # The end of a run must not end it: the other end would miss it.
        env = {name: value for name, value in os.environ.items() if name != marks.MARK}
        self._process = subprocess.Popen(
            [str(program), str(window_ns), str(out), str(into), *words],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=env,
            start_new_session=True,
            preexec_fn=die_with_parent(),
        )
        assert self._process.stdout is not None
        ready, _, _ = select.select([self._process.stdout], [], [], PATIENCE_S)
        if not ready or self._process.stdout.readline() != "ready\n":
            self._process.kill()
            raise NetworkError(self.complaint())

    @property
    def alive(self) -> bool:
        """Return whether it runs."""
        return self._process.poll() is None

    @property
    def failed(self) -> bool:
        """Return whether it has ended with an error."""
        return self._process.poll() not in (None, 0)

    @property
    def pid(self) -> int:
        """Return its process."""
        return self._process.pid

    def complaint(self) -> str:
        """Return why it ended. Call it after the end."""
        if not self._said:
            _, said = self._process.communicate()
            self._said = said.strip() or f"cut-link: it ended with {self._process.returncode}"
        return self._said

    def end(self) -> None:
        """Tell the other end, and end. Idempotent. Raises NetworkError if a frame was lost or
        late."""
        if self._process.poll() is None:
            self._process.terminate()
            try:
                self._process.wait(PATIENCE_S)
            except subprocess.TimeoutExpired:
                self._process.kill()
                raise NetworkError("cut-link: it does not end") from None
        if self._process.returncode != 0:
            raise NetworkError(self.complaint())

    def kill(self) -> None:
        """End it at once."""
        self._process.kill()
        self._process.wait()


def make_pair(inner: str, outer: str, mac: str = "") -> None:
    """Make a cable whose `outer` end cut-link serves. Raises NetworkError."""
    address = ["address", mac] if mac else []
    check(["ip", "link", "add", outer, "type", "veth", "peer", "name", inner, *address])
    check(["sysctl", "-qe", "-w", f"net.ipv6.conf.{outer}.disable_ipv6=1"])
    check(["sysctl", "-qe", "-w", f"net.ipv6.conf.{inner}.disable_ipv6=1"])
    check(["ip", "link", "set", outer, "up"])
    check(hold_frames(outer))
