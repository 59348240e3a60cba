#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""ldmd end to end in network namespaces: one publisher, three subscribers, both protocols.

Usage: integration.py LDMD TOOLS_DIRECTORY [CASE...]. Needs root (exit 77 = skipped otherwise).
Each host has NIC1 (10.77.1.0/24, the path) and NIC2 (10.77.2.0/24, the control network) on two
bridges in their own namespace. Only namespaces and processes made here are touched.
"""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from subprocess import PIPE
from typing import Any

SUBSCRIBERS = ("r1", "r2", "r3")
HOSTS = ("s", *SUBSCRIBERS)
PORT = 3880
AS_ROOT = ("--user", "root")  # in the test's own namespaces
MARK = f"ldmdtest{os.getpid()}"
NETWORKS = 4  # side by side
LONGEST = ("kill_anything", "nobody_holds_the_feed", "nobody_holds_the_feed6")
FROM_INPUT = "-"  # instead of cases: standard input names them
ENDED = "ended="  # and then 1 or 0, behind each


class Failure(Exception):
    """An assertion about the programs under test does not hold."""


def sh(*argv: str, check: bool = True) -> subprocess.CompletedProcess[str]:
    result = subprocess.run(argv, capture_output=True, text=True, timeout=60, check=False)
    if check and result.returncode != 0:
        raise Failure(f"{' '.join(argv)}: exit {result.returncode}: {result.stderr.strip()}")
    return result


def netns(host: str) -> str:
    return f"{MARK}{host}"


def path_ip(host: str) -> str:
    return f"10.77.1.{HOSTS.index(host) + 1}"


def control_ip(host: str) -> str:
    return f"10.77.2.{HOSTS.index(host) + 1}"


def inside(host: str, *argv: str) -> list[str]:
    return ["ip", "netns", "exec", netns(host), *argv]


def expect(condition: bool, text: str) -> None:
    if not condition:
        raise Failure(text)


def wait_for(what: str, condition: Callable[[], bool], timeout_s: float = 40) -> None:
    end = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > end:
            raise Failure(f"no {what} within {timeout_s:.0f} s")
        time.sleep(0.05)


def link_bridge(bridge: str, host: str, nic: str) -> None:
    port = f"{host}p{nic}"
    peer = ("peer", "name", f"nic{nic}", "netns", netns(host))
    sh("ip", "-n", bridge, "link", "add", port, "type", "veth", *peer)
    sh("ip", "-n", bridge, "link", "set", port, "master", f"br{nic}", "up")


@contextmanager
def network(hosts: tuple[str, ...]) -> Iterator[None]:
    """Two bridges; for two hosts two cables, which need less of the kernel."""
    bridge = netns("b")
    try:
        sh("ip", "netns", "add", bridge)
        for host in hosts:
            sh("ip", "netns", "add", netns(host))
            sh("ip", "-n", netns(host), "link", "set", "lo", "up")
        for nic in ("1", "2"):
            if len(hosts) == 2:
                here, there = (netns(host) for host in hosts)
                peer = ("peer", "name", f"nic{nic}", "netns", there)
                sh("ip", "-n", here, "link", "add", f"nic{nic}", "type", "veth", *peer)
                continue
            kind = ("type", "bridge", "mcast_snooping", "0")
            sh("ip", "-n", bridge, "link", "add", f"br{nic}", *kind)
            sh("ip", "-n", bridge, "link", "set", f"br{nic}", "up")
            for host in hosts:
                link_bridge(bridge, host, nic)
        for host in hosts:
            for nic, address in (("1", path_ip(host)), ("2", control_ip(host))):
                sh("ip", "-n", netns(host), "addr", "add", f"{address}/24", "dev", f"nic{nic}")
                sh("ip", "-n", netns(host), "link", "set", f"nic{nic}", "up")
        yield
    finally:
        for host in (*hosts, "b"):
            sh("ip", "netns", "del", netns(host), check=False)


def _drop(host: str, match: Sequence[str], *which: str) -> None:
    rule = ("-A", "INPUT", "-i", "nic1", *match, "-m", "statistic", *which, "-j", "DROP")
    sh(*inside(host, "iptables", *rule))


def lose(host: str, *match: str, probability: float) -> None:
    _drop(host, match, "--mode", "random", "--probability", str(probability))


def lose_every(host: str, *match: str, nth: int) -> None:
    """Not the first one: a receiver has what came before its first from the backlog."""
    _drop(host, match, "--mode", "nth", "--every", str(nth), "--packet", str(nth - 1))


def lose_nothing() -> None:
    for host in SUBSCRIBERS:
        sh(*inside(host, "iptables", "-F", "INPUT"), check=False)


class Servers:
    """Queues, configurations and running ldmds of one case."""

    def __init__(self, ldmd: Path, tools: Path, work: Path) -> None:
        self.ldmd = ldmd
        self.tools = tools
        self.work = work
        self.running: dict[str, subprocess.Popen[bytes]] = {}
        for host in HOSTS:
            (work / host).mkdir()
            self.tool("pqcreate", "-s", "48m", "-S", "2000", "-q", str(self.queue(host)))

    def tool(self, name: str, *args: str) -> str:
        return sh(str(self.tools / name), *args).stdout

    def queue(self, host: str) -> Path:
        return self.work / host / "ldm.pq"

    def log(self, host: str) -> str:
        path = self.work / host / "ldmd.log"
        return path.read_text(errors="replace") if path.exists() else ""

    def count(self, host: str, text: str) -> int:
        return self.log(host).count(text)

    def start(self, host: str, conf: str, *options: str) -> None:
        path = self.work / host / "ldmd.conf"
        path.write_text(conf)
        argv = [
            str(self.ldmd),
            *AS_ROOT,
            "-f",
            "-v",
            "-q",
            str(self.queue(host)),
            "-P",
            str(PORT),
            "-I",
            control_ip(host),
            "-l",
            str(self.work / host / "ldmd.log"),
            *options,
            str(path),
        ]
        output = (self.work / host / "ldmd.out").open("ab")  # noqa: SIM115
        self.running[host] = subprocess.Popen(inside(host, *argv), stdout=output, stderr=output)
        output.close()

    def stop(self, host: str) -> None:
        process = self.running.pop(host)
        process.send_signal(signal.SIGTERM)
        code = process.wait(timeout=60)
        expect(code == 0, f"ldmd of {host} ended with {code}")

    def stop_all(self) -> None:
        for host in list(self.running):
            self.stop(host)

    def kill_all(self) -> None:
        for process in self.running.values():
            process.kill()
            process.wait()
        self.running.clear()

    def insert(self, prefix: str, sizes: list[int], seed: int = 1, feed: str = "NGRID") -> None:
        rng = random.Random(f"{prefix}{seed}")
        names = []
        for i, size in enumerate(sizes):
            path = self.work / f"{prefix}.{i:03d}"
            path.write_bytes(rng.randbytes(size))
            names.append(str(path))
        self.tool("pqinsert", "-q", str(self.queue("s")), "-f", feed, *names)

    def products(self, host: str) -> list[str]:
        return sorted(self.tool("pqcat", "-q", str(self.queue(host)), "--list").splitlines())

    def has(self, host: str, count: int) -> bool:
        return len(self.products(host)) >= count

    def logged(self, host: str, text: str, times: int = 1) -> bool:
        return self.count(host, text) >= times

    def expect_logged(self, host: str, text: str, times: int) -> None:
        """A product is in the queue a moment before the line about it is in the log."""
        wait_for(f"{times} times {text!r} at {host}", partial(self.logged, host, text, times))
        found = self.count(host, text)
        expect(found == times, f"{host} logged {text!r} {found} times, not {times}")

    def same_everywhere(
        self, count: int, hosts: tuple[str, ...] = SUBSCRIBERS, timeout_s: float = 60
    ) -> None:
        want = self.products("s")
        expect(len(want) == count, f"publisher has {len(want)} products, not {count}")
        for host in hosts:
            wait_for(f"{count} products at {host}", partial(self.has, host, count), timeout_s)
            expect(self.products(host) == want, f"products of {host} differ from the publisher's")

    def descendants(self, host: str) -> list[int]:
        found, todo = [], [self.running[host].pid]
        while todo:
            pid = todo.pop()
            with contextlib.suppress(OSError):  # it has ended
                children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
                found.append(pid)
                todo += [int(child) for child in children]
        return found

    def running_command(self, host: str, name: str) -> int:
        """Wait for a descendant that runs this command: its child is called ldmd until then."""

        def found() -> list[int]:
            pids = self.descendants(host)
            return [p for p in pids if command_name(p) == name]

        wait_for(name, lambda: bool(found()))
        return found()[0]


def command_name(pid: int) -> str:
    """Return what a process runs; empty: it has ended."""
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/comm").read_text().strip()
    return ""


def mixed_sizes(n: int, tiny: bool = True) -> list[int]:
    """tiny: products of 0 and 1 bytes too; two of those in one queue would be duplicates."""
    rng = random.Random(n)
    fixed = [0, 1, 1447, 1448, 1449, 400_000] if tiny else [1447, 1448, 1449, 400_000]
    return fixed + [int(rng.lognormvariate(9, 1.5)) % 300_000 for _ in range(n - len(fixed))]


def publisher7(extra: str = "", allow: str = "^10\\.77\\.[12]\\.", subnet: int = 24) -> str:
    return (
        f"ALLOW NGRID {allow}\n"
        f"MULTICAST NGRID 224.0.77.1:38800 {path_ip('s')} {subnet} 101 sw p1\n{extra}"
    )


def subscriber7(host: str, extra: str = "") -> str:
    return f"RECEIVE NGRID {control_ip('s')}:{PORT} {path_ip(host)} sw p{host} 0\n{extra}"


def start7(servers: Servers, extra: str = "") -> None:
    servers.start("s", publisher7(extra))
    for host in SUBSCRIBERS:
        servers.start(host, subscriber7(host, extra))
    await_receiving(servers)


def await_receiving(servers: Servers, hosts: tuple[str, ...] = SUBSCRIBERS, times: int = 1) -> None:
    for host in hosts:
        wait_for(f"'Receiving' at {host}", partial(servers.logged, host, " Receiving\n", times))


def case_ldm7_lossless(servers: Servers) -> None:
    start7(servers, "SET ldm7.verify_md5 1\n")
    servers.insert("a", mixed_sizes(50))
    servers.same_everywhere(50)
    for host in SUBSCRIBERS:
        servers.expect_logged(host, "Received: {delay:", 50)
        expect(servers.count(host, "Missed:") == 0, f"{host} missed products")
    servers.expect_logged("s", "Multicasted: prodIndex=", 50)
    servers.expect_logged("s", "why=all-done", 50)
    servers.stop_all()
    expect("FMTP sender: products=50 " in servers.log("s"), "sender's counters")
    expect("FMTP receiver: " in servers.log("r1"), "receiver's counters")


def case_ldm7_loss(servers: Servers) -> None:
    for host in SUBSCRIBERS:
        lose(host, "-p", "udp", probability=0.02)
    start7(servers, "SET fmtp.repair unicast\n")  # parity would leave nothing to retransmit
    servers.insert("a", mixed_sizes(50))
    time.sleep(0.2)
    servers.insert("tail", [5000])  # a wholly lost last product needs a successor to be noticed
    servers.same_everywhere(51)
    retrans = sum(
        " retrans: 0," not in line
        for host in SUBSCRIBERS
        for line in servers.log(host).splitlines()
        if "Received: {" in line
    )
    expect(retrans > 0, "2 % loss and not one retransmission")
    servers.stop_all()


def case_ldm7_layout_2017(servers: Servers) -> None:
    for host in SUBSCRIBERS:
        lose(host, "-p", "udp", probability=0.02)
    start7(servers, "SET fmtp.layout 2017\n")
    servers.insert("a", mixed_sizes(20))
    time.sleep(0.2)
    servers.insert("tail", [5000])
    servers.same_everywhere(21)
    servers.stop_all()


def case_backstop(servers: Servers) -> None:
    """The sender timer is (almost) zero: losses are rejected and come over NIC2."""
    for host in SUBSCRIBERS:
        lose(host, "-p", "udp", probability=0.2)
    start7(servers, "SET fmtp.f_snd 0.000001\nSET fmtp.r_mc_bps 1000000000000\n")
    servers.insert("a", mixed_sizes(50))
    lose_nothing()
    time.sleep(0.5)
    servers.insert("tail", [5000])
    servers.same_everywhere(51)
    for host in SUBSCRIBERS:
        expect(servers.count(host, "Missed: index=") > 0, f"{host} missed nothing")
        expect(servers.count(host, "Inserted: ") > 0, f"{host} got nothing by the backstop")
    expect(servers.count("s", "Missed product sent: index=") > 0, "up7 sent nothing")
    expect(servers.count("s", "why=timeout") > 0, "the sender timer did not expire")
    servers.stop_all()


def case_backlog(servers: Servers) -> None:
    start7(servers)
    servers.insert("a", mixed_sizes(20))
    servers.same_everywhere(20)
    servers.stop("r2")
    servers.insert("b", mixed_sizes(10, tiny=False))
    servers.same_everywhere(30, ("r1", "r3"))
    servers.start("r2", subscriber7("r2"))
    await_receiving(servers, ("r2",), 2)
    servers.insert("c", [777])
    servers.same_everywhere(31)
    servers.expect_logged("r2", "Backlog: ", 10)
    # The publisher restarts: indices continue, every subscriber subscribes again by itself.
    servers.stop("s")
    servers.start("s", publisher7())
    await_receiving(servers, ("r1", "r3"), 2)
    await_receiving(servers, ("r2",), 3)
    servers.insert("d", [888])
    servers.same_everywhere(32)
    expect(
        "Multicasted: prodIndex=31," in servers.log("s"), "product index does not continue at 31"
    )
    servers.stop_all()


def case_not_authorized(servers: Servers) -> None:
    servers.start("s", publisher7(allow="^10\\.77\\.2\\.2$", subnet=32))
    servers.start("r1", subscriber7("r1"))
    servers.start("r2", subscriber7("r2"))
    wait_for("refused subscription", lambda: "not authorized" in servers.log("r2"))
    wait_for(
        "refused FMTP connection",
        lambda: f"Host {path_ip('r1')} is not authorized" in servers.log("s"),
    )
    servers.stop_all()


def publisher6() -> str:
    return "ALLOW NGRID ^10\\.77\\.\n"


def subscriber6() -> str:
    return f"REQUEST NGRID .* {control_ip('s')}:{PORT}\n"


def start6(servers: Servers) -> None:
    for host in HOSTS:
        servers.start(host, publisher6() if host == "s" else subscriber6())
    for host in SUBSCRIBERS:
        wait_for(f"feed at {host}", partial(servers.logged, host, "is willing to be a primary"))


def case_ldm6(servers: Servers) -> None:
    servers.insert("before", mixed_sizes(10, tiny=False))
    start6(servers)
    servers.insert("a", mixed_sizes(50))
    servers.same_everywhere(60)
    for host in SUBSCRIBERS:
        servers.expect_logged(host, "Inserted: ", 60)
        saved = [
            x for x in servers.log(host).splitlines() if "dh_saveProd" in x and "Inserted: " in x
        ]
        expect(len(saved) == 60, f"{host} saved {len(saved)}")
    servers.stop("r1")
    servers.insert("b", mixed_sizes(10, tiny=False))
    servers.same_everywhere(70, ("r2", "r3"))
    servers.start("r1", subscriber6())
    servers.same_everywhere(70)
    expect(servers.count("r1", "duplicate:") == 0, "resumed before the last product, not after it")
    servers.expect_logged("s", "sending: ", 3 * 70)
    servers.stop_all()


def case_kill(servers: Servers) -> None:
    start7(servers)
    pids = {host: servers.descendants(host) for host in HOSTS}
    expect(len(pids["s"]) == 5, f"publisher: {pids['s']}: ldmd, mldm and three up7 expected")
    names = sorted(Path(f"/proc/{pid}/comm").read_text().strip() for pid in pids["s"])
    expect(names == ["ldmd", "mldm", "up7", "up7", "up7"], f"process names: {names}")
    args = sorted(
        Path(f"/proc/{p}/cmdline").read_bytes().split(b"\0")[0].decode() for p in pids["s"][1:]
    )
    expect(args == ["mldm", "up7", "up7", "up7"], f"first words: {args}")
    servers.kill_all()

    def gone() -> bool:
        return not any(Path(f"/proc/{p}").exists() for ps in pids.values() for p in ps)

    try:
        wait_for("end of all children after kill -9", gone, 5)
    finally:
        for pid in (p for ps in pids.values() for p in ps):
            cmdline = Path(f"/proc/{pid}/cmdline")
            if cmdline.exists() and str(servers.work).encode() in cmdline.read_bytes():
                os.kill(pid, signal.SIGKILL)


def case_mldm_dies(servers: Servers) -> None:
    """A crashed multicast sender is restarted and the subscribers return."""
    start7(servers)
    servers.insert("a", mixed_sizes(6))
    servers.same_everywhere(6)
    mldm = [
        pid
        for pid in servers.descendants("s")
        if Path(f"/proc/{pid}/comm").read_text().strip() == "mldm"
    ]
    os.kill(mldm[0], signal.SIGKILL)
    await_receiving(servers, times=2)
    servers.insert("b", mixed_sizes(5, tiny=False)[:3])
    servers.same_everywhere(9)
    expect("Multicasted: prodIndex=8," in servers.log("s"), "product index does not continue")
    expect("was killed by signal 9" in servers.log("s"), "the crash is not logged")
    servers.stop_all()


def case_exec(servers: Servers) -> None:
    witness = servers.work / "witness"
    servers.start("s", f'EXEC "touch \\"{witness}\\""\nEXEC "sleep 600"\n')
    wait_for("effect of EXEC", witness.exists)
    sleeper = servers.running_command("s", "sleep")
    expect("will be restarted" not in servers.log("s"), "what succeeded is restarted")
    os.kill(sleeper, signal.SIGKILL)
    again = '"sleep" will be restarted in 1 s'
    wait_for("a second start", lambda: again in servers.log("s"))
    sleeper = servers.running_command("s", "sleep")
    os.kill(sleeper, signal.SIGKILL)
    wait_for("back-off", lambda: again.replace("1 s", "2 s") in servers.log("s"))
    sleeper = servers.running_command("s", "sleep")
    servers.stop("s")
    expect(not Path(f"/proc/{sleeper}").exists(), "EXEC child survives SIGTERM of ldmd")
    servers.start("s", f'EXEC "ls {servers.work}/none"\n')
    wait_for("the reason of an EXEC command", lambda: "No such file" in servers.log("s"))
    servers.stop("s")


def case_command_line(servers: Servers) -> None:
    base = [
        str(servers.ldmd),
        *AS_ROOT,
        "-f",
        "-q",
        str(servers.queue("s")),
        "-P",
        str(PORT),
        "-I",
        control_ip("s"),
    ]
    conf = servers.work / "x.conf"
    servers.start("s", publisher6())
    wait_for("listener", lambda: "Starting Up" in servers.log("s"))
    conf.write_text(publisher6())
    second = subprocess.run(
        inside("s", *base, str(conf)), capture_output=True, text=True, timeout=20
    )
    expect(
        second.returncode == 1
        and second.stderr.count("\n") == 1
        and f"cannot listen on {control_ip('s')}:{PORT}: address already in use" in second.stderr,
        f"port in use: {second.returncode} {second.stderr}",
    )
    servers.stop_all()
    base[base.index("-q") + 1] = str(servers.work / "missing.pq")
    missing = subprocess.run(
        inside("s", *base, str(conf)), capture_output=True, text=True, timeout=20
    )
    expect(
        missing.returncode == 1 and "pqcreate" in missing.stderr, f"missing queue: {missing.stderr}"
    )
    conf.write_text("ALLOW NGRYD .*\nFROB\n")
    broken = subprocess.run(
        [str(servers.ldmd), "-n", str(conf)], capture_output=True, text=True, timeout=20
    )
    expect(
        broken.returncode == 2
        and f'{conf}:1: found "NGRYD"' in broken.stderr
        and f'{conf}:2: found "FROB"' in broken.stderr,
        f"bad configuration: {broken.stderr}",
    )
    leftovers = sorted(p.name for p in (servers.work / "s").iterdir())
    pages = list((servers.work / "s" / "ldm.pq.stats").iterdir())
    expect(
        leftovers == ["ldm.pq", "ldm.pq.stats", "ldmd.conf", "ldmd.log", "ldmd.out"] and not pages,
        f"left behind: {leftovers}, {pages}",
    )


def cases_in(names: Mapping[str, Any]) -> dict[str, Callable[..., None]]:
    """Return the functions `case_NAME` of a module by NAME; `names`: its globals()."""
    return {n.removeprefix("case_"): case for n, case in names.items() if n.startswith("case_")}


CASES = cases_in(globals())


def run_case(name: str, case: Callable[[Servers], None], ldmd: Path, tools: Path) -> bool:
    work = Path(tempfile.mkdtemp(prefix=f"{MARK}-{name}-"))
    start = time.monotonic()
    servers = Servers(ldmd, tools, work)
    try:
        case(servers)
        sanitizer = [p for p in work.glob("*/ldmd.out") if p.read_text(errors="replace").strip()]
        expect(not sanitizer, f"output on stderr: {[p.read_text()[:2000] for p in sanitizer]}")
    except (Failure, subprocess.TimeoutExpired) as error:
        print(f"not ok {name}: {error}", flush=True)
        for host in HOSTS:
            print(f"--- {host}\n" + "\n".join(servers.log(host).splitlines()[-12:]), flush=True)
            output = work / host / "ldmd.out"
            print(output.read_text(errors="replace")[:3000] if output.exists() else "", flush=True)
        print(f"kept: {work}", flush=True)
        return False
    finally:
        servers.kill_all()
        lose_nothing()
    shutil.rmtree(work)
    print(f"ok {name} ({time.monotonic() - start:.1f} s)", flush=True)
    return True


def run_side_by_side(names: list[str]) -> int:
    """Run the cases in several networks at a time, as they wait most of their time; return how
    many fail. The longest come first."""
    todo = deque(sorted(names, key=LONGEST.__contains__, reverse=True))

    def take_cases() -> int:
        argv = [sys.executable, "-B", *sys.argv[:3], FROM_INPUT]
        bad = 0
        with subprocess.Popen(argv, stdin=PIPE, stdout=PIPE, text=True) as worker:
            assert worker.stdin and worker.stdout
            while todo:
                name = todo.popleft()
                worker.stdin.write(f"{name}\n")
                worker.stdin.flush()
                for line in worker.stdout:
                    if line.startswith(ENDED):
                        bad += line.strip() != f"{ENDED}1"
                        break
                    print(line, end="", flush=True)
                else:
                    print(f"not ok {name}: no network, or its worker died", flush=True)
                    return bad + 1
            worker.stdin.close()
        return bad

    with ThreadPoolExecutor(NETWORKS) as pool:
        failed = sum(pool.map(lambda _: take_cases(), range(NETWORKS)))
    return failed + len(todo)


def run_cases(
    cases: dict[str, Callable[[Servers], None]], usage: str | None, hosts: tuple[str, ...] = HOSTS
) -> int:
    """What the command line asks for. Usage: PROGRAM LDMD TOOLS_DIRECTORY [CASE...]"""
    if len(sys.argv) < 3:
        print(usage, file=sys.stderr)
        return 2
    if os.geteuid() != 0:
        print("SKIPPED: network namespaces need root", flush=True)
        return 77
    probe = sh("ip", "netns", "add", f"{MARK}probe", check=False)
    sh("ip", "netns", "del", f"{MARK}probe", check=False)
    if probe.returncode != 0:
        print(f"SKIPPED: cannot make a network namespace: {probe.stderr.strip()}", flush=True)
        return 77
    programs = Path(sys.argv[1]).resolve(), Path(sys.argv[2]).resolve()
    names = sys.argv[3:]
    if names == [FROM_INPUT]:
        with network(hosts):
            for name in map(str.strip, sys.stdin):
                print(f"{ENDED}{run_case(name, cases[name], *programs):d}", flush=True)
        return 0
    if not names:
        return 1 if run_side_by_side(list(cases)) else 0
    with network(hosts):
        failed = sum(not run_case(name, cases[name], *programs) for name in names)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(run_cases(CASES, __doc__))
