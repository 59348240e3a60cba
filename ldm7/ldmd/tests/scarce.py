#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""ldmd without disk, memory or room in its queue: it continues with what it can, and
says what it cannot.

Usage: scarce.py LDMD TOOLS_DIRECTORY [CASE...], as integration.py. Disks are small tmpfs in the
test's mount namespace.
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path

from integration import (
    PORT,
    Failure,
    Servers,
    await_receiving,
    cases_in,
    control_ip,
    expect,
    inside,
    mixed_sizes,
    path_ip,
    publisher7,
    run_cases,
    sh,
    subscriber7,
    wait_for,
)

MB = 1 << 20
MOST_S = 120.0  # for what takes three seconds on a quiet machine


@contextmanager
def small_disk(servers: Servers, host: str, spare_bytes: int) -> Iterator[Path]:
    """The host's directory on a disk that its queue fills but for about `spare_bytes`."""
    directory = servers.work / host
    sh("mount", "-t", "tmpfs", "-o", f"size={50 * MB + spare_bytes}", "tmpfs", str(directory))
    try:
        servers.tool("pqcreate", "-s", "48m", "-S", "2000", "-q", str(servers.queue(host)))
        yield directory
    finally:
        servers.kill_all()
        sh("umount", "-l", str(directory))


def fill(directory: Path) -> Path:
    """Take all room that is left."""
    filler = directory / "filler"

    def full() -> bool:  # ldmd may have given back what it failed to write
        with filler.open("ab", buffering=0) as f, suppress(OSError):
            while True:
                f.write(bytes(4096))
        return os.statvfs(directory).f_bavail == 0

    wait_for("full disk", full)
    return filler


def case_full_disk_at_the_subscriber(servers: Servers) -> None:
    """No room for its log and its memory of the session: every product comes nevertheless."""
    with small_disk(servers, "r1", 2 * MB) as directory:
        servers.start("s", publisher7())
        servers.start("r1", subscriber7("r1"))
        await_receiving(servers, ("r1",))
        fill(directory)
        for turn in range(3):
            servers.insert(f"a{turn}", mixed_sizes(7, tiny=False), seed=turn)
            servers.same_everywhere(7 * (turn + 1), ("r1",))
        check = sh(str(servers.tools / "pqcheck"), "-c", "-q", str(servers.queue("r1")))
        expect(check.returncode == 0, "pqcheck")
        (directory / "filler").unlink()
        servers.insert("b", mixed_sizes(7, tiny=False), seed=9)
        servers.same_everywhere(28, ("r1",))
        servers.stop_all()
        left = [path.name for path in directory.iterdir() if path.name.endswith(".tmp")]
        expect(not left, f"left behind: {left}")


def case_full_disk_at_the_publisher(servers: Servers) -> None:
    """No room for the map of product indices: that is said, and the feed comes nevertheless."""
    with small_disk(servers, "s", MB // 4) as directory:
        (directory / "ldmd.conf").write_text(" " * 4096)  # its room
        (directory / "ldmd.out").touch()
        filler = fill(directory)
        (servers.work / "log").mkdir()
        log = servers.work / "log/ldmd.log"  # elsewhere: the test reads what it says
        log.touch()
        servers.start("s", publisher7(), "-l", str(log))
        servers.start("r1", subscriber7("r1", "SET ldm7.retry_s 2\n"))
        wait_for("refusal", lambda: "cannot open the product-index map" in log.read_text())
        servers.insert("a", mixed_sizes(7, tiny=False))
        servers.same_everywhere(7, ("r1",))
        filler.unlink()
        await_receiving(servers, ("r1",))
        servers.insert("b", mixed_sizes(7, tiny=False), seed=2)
        servers.same_everywhere(14, ("r1",))
        servers.stop_all()


def case_no_room_for_a_queue(servers: Servers) -> None:
    """A queue that does not fit is refused before it takes any room."""
    with small_disk(servers, "s", MB) as directory:
        before = os.statvfs(directory).f_bavail
        argv = [str(servers.tools / "pqcreate"), "-s", "40m", "-S", "100", "-q"]
        done = subprocess.run([*argv, str(directory / "second")], capture_output=True, text=True)
        expect(done.returncode != 0 and done.stderr.count("\n") == 1, done.stderr)
        expect("of disk (data and tables), but" in done.stderr, done.stderr)
        expect(os.statvfs(directory).f_bavail == before, "room is gone")
        fill(directory)
        servers.insert("a", mixed_sizes(9))  # a full disk is not the queue's
        expect(len(servers.products("s")) == 9, "products inserted on a full disk")


@contextmanager
def limited_memory(bytes_: int) -> Iterator[None]:
    """What is started meanwhile may have so much address space."""
    before = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (bytes_, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)


def has_batch(servers: Servers, host: str, turn: int, n: int) -> bool:
    return sum(f"/a{turn}." in line for line in servers.products(host)) == n


def case_little_memory(servers: Servers) -> None:
    """With little more memory than the queue needs a feed of several times that comes complete."""
    if b"__asan_init" in servers.ldmd.read_bytes():
        print("# SKIPPED: AddressSanitizer takes terabytes of address space", flush=True)
        return
    with limited_memory(140 * MB):
        servers.start("s", publisher7())
        servers.start("r1", subscriber7("r1"))
    await_receiving(servers, ("r1",))
    for turn in range(5):
        servers.insert(f"a{turn}", [400_000] * 40, seed=turn)
        wait_for(f"batch {turn}", partial(has_batch, servers, "r1", turn, 40))
    for host in ("s", "r1"):
        expect("was killed by" not in servers.log(host), f"{host}: {servers.log(host)[-2000:]}")
    servers.stop_all()
    with limited_memory(40 * MB):  # less than the queue
        argv = [str(servers.ldmd), "--user", "root", "-f", "-P", "3881", "-I", "127.0.0.1"]
        argv += ["-q", str(servers.queue("s")), str(servers.work / "s/ldmd.conf")]
        done = subprocess.run(argv, capture_output=True, text=True, timeout=20)
    expect(done.returncode == 1 and done.stderr.count("\n") == 1, f"{done}")
    expect("Cannot allocate memory" in done.stderr, done.stderr)


RELAY_PORT = 3881
# The first connection that has brought so many bytes brings no more, and stays.
STALLING_RELAY = """
import socket, sys, threading
left = [1]
def carry(source, sink, most):
    while data := source.recv(65536):
        most -= len(data)
        if most < 0 and left:
            left.pop()
            print("stalled", flush=True)
            threading.Event().wait()
        sink.sendall(data)
    sink.shutdown(socket.SHUT_WR)
with socket.create_server(("127.0.0.1", int(sys.argv[1]))) as server:
    print("ready", flush=True)
    while True:
        here, _ = server.accept()
        there = socket.create_connection((sys.argv[2], int(sys.argv[3])))
        for pair in ((here, there), (there, here)):
            threading.Thread(target=carry, args=(*pair, 5_000_000), daemon=True).start()
"""


@contextmanager
def stalling(host: str, to: str) -> Iterator[subprocess.Popen[str]]:
    """A relay in `host` to the server of another."""
    words = (STALLING_RELAY, str(RELAY_PORT), control_ip(to), str(PORT))
    argv = inside(host, sys.executable, "-c", *words)
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as relay:
        try:
            assert relay.stdout is not None and relay.stdout.readline() == "ready\n"
            yield relay
        finally:
            relay.kill()


def room_is_made(servers: Servers, relay: subprocess.Popen[str]) -> None:
    """A product that comes no further keeps most of r1's queue: another finds room anyway,
    and the first one comes later."""
    assert relay.stdout is not None and relay.stdout.readline() == "stalled\n"
    stats = partial(servers.tool, "pqutil", "-q", str(servers.queue("r1")), "stats")
    # What the relay passed on may still wait in the socket of a busy machine's receiver.
    wait_for("product that arrives", lambda: "reserved_slots=1\n" in stats())
    other = servers.work / "other"
    other.write_bytes(os.urandom(12_000_000))
    servers.tool("pqinsert", "-q", str(servers.queue("r1")), "-f", "EXP", str(other))
    line = "was dropped to make room in the full"
    wait_for("line", lambda: servers.logged("r1", line), MOST_S)


def small_queue(servers: Servers) -> None:
    servers.queue("r1").unlink()
    servers.tool("pqcreate", "-s", "20m", "-S", "500", "-q", str(servers.queue("r1")))
    servers.insert("large", [14_000_000])


def has_large(servers: Servers) -> bool:
    return any("large" in name for name in servers.products("r1"))


def case_stalled_feed6(servers: Servers) -> None:
    small_queue(servers)
    servers.start("s", "ALLOW NGRID ^10\\.77\\.\n")
    wait_for("start", lambda: "Starting Up" in servers.log("s"))
    with stalling("r1", "s") as relay:
        servers.start("r1", f"REQUEST NGRID .* 127.0.0.1:{RELAY_PORT}\n")
        room_is_made(servers, relay)
        wait_for("the large one", partial(has_large, servers), MOST_S)
        servers.stop_all()


def case_stalled_backlog7(servers: Servers) -> None:
    small_queue(servers)
    servers.start("s", publisher7())
    wait_for("start", lambda: "Starting Up" in servers.log("s"))
    with stalling("r1", "s") as relay:
        servers.start("r1", f"RECEIVE NGRID 127.0.0.1:{RELAY_PORT} {path_ip('r1')} sw pr1 0\n")
        room_is_made(servers, relay)
        wait_for("the large one", partial(has_large, servers), MOST_S)
        servers.stop_all()


def case_stalled_push6(servers: Servers) -> None:
    small_queue(servers)
    servers.start("r1", "ACCEPT NGRID .* ^10\\.77\\.\n")
    wait_for("start", lambda: "Starting Up" in servers.log("r1"))
    ldmsend = servers.ldmd.parent / "ldmsend"
    to_relay = ("-h", "127.0.0.1", "-P", str(RELAY_PORT), "-f", "NGRID")
    argv = inside("s", str(ldmsend), *to_relay, str(servers.work / "large.000"))
    with stalling("s", "r1") as relay:
        pushing = subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            room_is_made(servers, relay)
        finally:
            pushing.kill()
            pushing.wait()
        sh(*argv)
        expect(has_large(servers), "it did not come again")
        servers.stop_all()


CASES = cases_in(globals())

if __name__ == "__main__":
    if os.geteuid() == 0 and "SCARCE_MOUNTS" not in os.environ:
        os.environ["SCARCE_MOUNTS"] = "own"
        again = ["unshare", "--mount", "--propagation", "private", sys.executable, *sys.argv]
        os.execvp("unshare", again)
    try:
        sys.exit(run_cases(CASES, __doc__, ("s", "r1")))
    except Failure as error:
        print(f"not ok: {error}")
        sys.exit(1)
