#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""LDM7 in network namespaces: several feeds, kill -9 of anything, LDM6 instead, privileges.

Usage: integration7.py LDMD TOOLS_DIRECTORY [CASE...], as integration.py. KILL_SECONDS (10, with
DOWNPOUR_TEST_LONG 40) and KILL_SEED in the environment lengthen and repeat the case
`kill_anything`.
"""

from __future__ import annotations

import os
import random
import re
import signal
import subprocess
import sys
import time
from collections import Counter
from functools import partial
from pathlib import Path

from integration import (
    HOSTS,
    PORT,
    SUBSCRIBERS,
    Failure,
    Servers,
    await_receiving,
    cases_in,
    command_name,
    control_ip,
    expect,
    inside,
    lose,
    mixed_sizes,
    netns,
    path_ip,
    publisher7,
    run_cases,
    sh,
    start7,
    subscriber7,
    wait_for,
)
from wire import feedme

NGRID = 0x00800000
FEEDS = {"NGRID": 1, "EXP": 2, "NEXRAD3": 3}
DELIVERED = re.compile(
    r'(?:Received: \{.*info: "|Inserted: |Backlog: ) *\d+ [\d.]+ \S+ \d+  ([^"\n]*)'
)


def has_ended(pid: int) -> bool:
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return True
    return stat.rpartition(")")[2].split()[0] == "Z"


def names_of(servers: Servers, host: str) -> list[str]:
    return sorted(command_name(pid) for pid in servers.descendants(host))


def deliveries(servers: Servers, host: str) -> Counter[str]:
    """How often each product was put into the queue, by its identifier."""
    return Counter(DELIVERED.findall(servers.log(host)))


def has_lines(servers: Servers, host: str, products: int) -> bool:
    return len(deliveries(servers, host)) >= products


def has_all(servers: Servers, host: str, want: list[str]) -> bool:
    return servers.products(host) == want


def case_three_feeds(servers: Servers) -> None:
    """One sender process per feed, started by the first subscription to it."""
    groups = "".join(
        f"MULTICAST {feed} 224.0.77.{n}:{38800 + n} {path_ip('s')} 24 {100 + n} sw p1\n"
        for feed, n in FEEDS.items()
    )
    servers.start("s", f'ALLOW ANY "^10[.]77[.][12][.]"\n{groups}')
    wait_for("start", lambda: "Starting Up" in servers.log("s"))
    expect(names_of(servers, "s") == ["ldmd"], f"before any subscription: {names_of(servers, 's')}")
    wanted = {"r1": list(FEEDS), "r2": ["NGRID", "EXP"], "r3": ["EXP"]}
    for host, count in (("r3", 1), ("r2", 2), ("r1", 3)):
        servers.start(host, "".join(
            f"RECEIVE {feed} {control_ip('s')}:{PORT} {path_ip(host)} sw p{host} 0\n"
            for feed in wanted[host]
        ))  # fmt: skip
        await_receiving(servers, (host,), len(wanted[host]))
        senders = names_of(servers, "s").count("mldm")
        expect(senders == count, f"{senders} senders after {host} came")
    for feed in FEEDS:
        servers.insert(f"{feed}-a", mixed_sizes(15, tiny=False), feed=feed)
    for host, feeds in wanted.items():
        want = [x for x in servers.products("s") if any(f"/{feed}-" in x for feed in feeds)]
        wait_for(f"products at {host}", partial(has_all, servers, host, want))
        expect(set(deliveries(servers, host).values()) == {1}, f"doubles at {host}")
    for feed in FEEDS:
        expect((servers.work / "s" / f"{feed}.pim").exists(), f"no index map of {feed}")
    servers.stop_all()


def case_backlog_at_once(servers: Servers) -> None:
    """What came while a subscriber was away reaches it without waiting for the next product."""
    start7(servers)
    servers.insert("a", mixed_sizes(7))
    servers.same_everywhere(7)
    servers.stop("r2")
    servers.insert("b", mixed_sizes(10, tiny=False))
    servers.same_everywhere(17, ("r1", "r3"))
    servers.start("r2", subscriber7("r2"))
    servers.same_everywhere(17)
    servers.expect_logged("r2", "Backlog: ", 10)
    time.sleep(2.5)  # the memory is written
    memory = (servers.work / "r2" / f"{control_ip('s')}:{PORT}_NGRID.yaml").read_text()
    last = (
        servers.tool("pqcat", "-q", str(servers.queue("s")), "--list").splitlines()[-1].split()[0]
    )
    expect(f"Signature: {last}\n" in memory, f"memory after the backlog: {memory}")
    servers.stop_all()


def case_addresses(servers: Servers) -> None:
    """Unique addresses of the subnet, the same one again; a dummy endpoint keeps its own."""
    servers.start("s", publisher7(subnet=28))
    for host in ("r1", "r2"):
        servers.start(host, subscriber7(host))
    servers.start("r3", f"RECEIVE NGRID {control_ip('s')}:{PORT} {path_ip('r3')} dummy dummy\n")
    await_receiving(servers)

    def assigned(host: str) -> list[str]:
        return re.findall(r"ifaceCidrAddr=(\S+)", servers.log(host))

    def more_than(count: int) -> bool:
        return len(assigned("r1")) > count

    first = {host: assigned(host)[0] for host in SUBSCRIBERS}
    for host in ("r1", "r2"):
        address, prefix = first[host].split("/")
        number = int(address.removeprefix("10.77.1."))
        expect(prefix == "28" and 2 <= number <= 14, f"{host} got {first[host]}")
    expect(first["r1"] != first["r2"], "the same address twice")
    expect(first["r3"] == f"{control_ip('r3')}/32", f"dummy endpoint got {first['r3']}")
    for _ in range(2):
        before = len(assigned("r1"))
        servers.stop("r1")
        servers.start("r1", subscriber7("r1"))
        wait_for("subscription", partial(more_than, before))
    expect(set(assigned("r1")) == {first["r1"]}, f"r1 got {assigned('r1')}")
    servers.stop("s")
    servers.start("s", publisher7(subnet=28))
    wait_for("new subscription", lambda: len(assigned("r2")) == 2)
    expect(set(assigned("r2")) == {first["r2"]}, "another address after the server's restart")
    servers.stop_all()


def has_no(servers: Servers, host: str, name: str) -> bool:
    return name not in names_of(servers, host)


def by_ldm6(servers: Servers, host: str, times: int) -> bool:
    return servers.logged(host, "is willing to be a primary", times)


def case_fallback(servers: Servers) -> None:
    """A server without multicast, then with it, then without: neither gap nor double."""
    settings = "SET ldm7.retry_s 2\nSET ldm7.verify_md5 1\n"
    unicast = 'ALLOW NGRID "^10[.]77[.][12][.]"\n'
    servers.start("s", unicast)
    for host in ("r1", "r2"):
        servers.start(host, subscriber7(host, settings))
    servers.start("r3", f"REQUEST NGRID .* {control_ip('s')}:{PORT}\n")  # never heard of LDM7
    for host in SUBSCRIBERS:
        wait_for(f"LDM6 at {host}", partial(by_ldm6, servers, host, 1))
    servers.insert("a", mixed_sizes(12))
    servers.same_everywhere(12)
    servers.stop("s")
    servers.insert("b", mixed_sizes(8, tiny=False))
    servers.start("s", publisher7())
    servers.insert("c", mixed_sizes(7, tiny=False)[:5])
    await_receiving(servers, ("r1", "r2"))
    for host in ("r1", "r2"):
        wait_for(f"the end of LDM6 at {host}", partial(has_no, servers, host, "down6"))
    servers.insert("d", mixed_sizes(7, tiny=False)[4:])
    servers.same_everywhere(28)  # some may have come by the backlog, which ends with them
    servers.insert("f", mixed_sizes(6, tiny=False)[4:])
    servers.same_everywhere(30)
    for host in ("r1", "r2"):
        expect(servers.count(host, "Received: {") > 0, f"{host} got nothing by multicast")
    servers.stop("s")
    servers.start("s", unicast)
    for host in ("r1", "r2"):
        wait_for(f"LDM6 again at {host}", partial(by_ldm6, servers, host, 2))
    servers.insert("e", mixed_sizes(11, tiny=False)[4:])
    servers.same_everywhere(37)
    for host in SUBSCRIBERS:
        wait_for(f"37 lines at {host}", partial(has_lines, servers, host, 37))
        expect(set(deliveries(servers, host).values()) == {1}, f"doubles at {host}")
        expect(len(deliveries(servers, host)) == 37, f"{len(deliveries(servers, host))} at {host}")
    servers.stop_all()


def case_no_path(servers: Servers) -> None:
    """Subscribed, but FMTP is not let in: the feed comes by LDM6."""
    servers.start("s", publisher7(allow="^10\\.77\\.2\\.", subnet=32))
    servers.start("r1", subscriber7("r1", "SET ldm7.retry_s 2\n"))
    wait_for("LDM6", partial(by_ldm6, servers, "r1", 1))
    expect(servers.count("s", "is not authorized to connect") > 0, "FMTP was let in")
    servers.insert("a", mixed_sizes(10))
    servers.same_everywhere(10, ("r1",))
    servers.stop_all()


def case_no_sender(servers: Servers) -> None:
    """FMTP's address is not this host's: subscribers are told at once, and get the feed by LDM6."""
    multicast = "MULTICAST NGRID 224.0.77.1:38800 192.0.2.1 24 101 sw p1\n"
    servers.start("s", f'ALLOW NGRID "^10[.]77[.]"\n{multicast}')
    start = time.monotonic()
    servers.start("r1", subscriber7("r1", "SET ldm7.retry_s 2\n"))
    wait_for("refusal", lambda: "refused the subscription" in servers.log("r1"))
    expect(time.monotonic() < start + 10, "the refusal took too long")
    expect("multicast" in servers.log("r1").split("refused the subscription")[1], "another reason")
    wait_for("LDM6", partial(by_ldm6, servers, "r1", 1), 90)
    servers.insert("a", mixed_sizes(8))
    servers.same_everywhere(8, ("r1",))
    expect("cannot start the FMTP sender of NGRID" in servers.log("s"), "the reason is not logged")
    servers.stop_all()


def status_of(pid: int) -> dict[str, str]:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return {key: value.strip() for key, _, value in (line.partition(":") for line in lines)}


def case_privileges(servers: Servers) -> None:
    """With --user nothing runs as root, and a process that talks to strangers has no capability."""
    (servers.work / "s").chmod(0o777)
    servers.queue("s").chmod(0o666)
    servers.work.chmod(0o755)
    servers.start("s", publisher7() + 'EXEC "sleep 600"\n', "-u", "nobody")
    servers.start("r1", subscriber7("r1"))
    await_receiving(servers, ("r1",))
    nobody = sh("id", "-u", "nobody").stdout.strip()
    for pid in servers.descendants("s"):
        status, name = status_of(pid), command_name(pid)
        expect(status["Uid"].split() == [nobody] * 4, f"{name} runs as {status['Uid']}")
        expect(status["Groups"].split() == sh("id", "-G", "nobody").stdout.split(), name)
        reserve = 1 << 12 | 1 << 10  # CAP_NET_ADMIN, CAP_NET_BIND_SERVICE
        want = {"ldmd": (reserve, 0), "mldm": (reserve, reserve)}.get(name, (0, 0))
        found = (int(status["CapPrm"], 16), int(status["CapEff"], 16))
        expect(found == want, f"{name} has capabilities {found}, not {want}")
        walled = "1" if name in ("up7", "mldm") else "0"
        expect(status["NoNewPrivs"] == walled, f"{name}: NoNewPrivs {status['NoNewPrivs']}")
    expect("sleep" in names_of(servers, "s"), "EXEC")
    servers.insert("a", mixed_sizes(7))
    servers.same_everywhere(7, ("r1",))
    servers.stop_all()
    conf = str(servers.work / "s" / "ldmd.conf")
    base = [str(servers.ldmd), "-q", str(servers.queue("s")), "-P", str(PORT), "-I", "127.0.0.1"]
    argv = ["ip", "netns", "exec", netns("s"), *base, "-u", "no-such-user", conf]
    wrong = subprocess.run(argv, capture_output=True, text=True, timeout=20)
    expect(wrong.returncode == 1 and 'no user "no-such-user"' in wrong.stderr, wrong.stderr)


def walls_of(servers: Servers, host: str) -> dict[str, tuple[str, str]]:
    """(Seccomp, NoNewPrivs) of /proc/PID/status of each process of a host, by its name."""
    found = {}
    for pid in servers.descendants(host):
        status = status_of(pid)
        found[command_name(pid)] = (status["Seccomp"], status["NoNewPrivs"])
    return found


def case_walls(servers: Servers) -> None:
    """Every process that talks to peers is behind its walls, and works there; `off` is off."""
    both = f'REQUEST EXP ".*" {control_ip("s")}:{PORT}\n'
    servers.start("s", publisher7('ALLOW EXP ".*"\nEXEC "sleep 600"\n'), "--debug")
    servers.start("r1", subscriber7("r1", both), "--debug")
    servers.start("r2", subscriber7("r2", both), "--no-sandbox")
    servers.start("r3", subscriber7("r3", both + "SET ldmd.sandbox off\n"))
    await_receiving(servers)
    for host in SUBSCRIBERS:
        wait_for("LDM6", partial(servers.logged, host, "is willing to be a primary"))
    free = ("0", "0")
    said = re.search(r"Sandbox: (.*)", servers.log("s"))
    expect(said is not None, "ldmd does not say which walls there are")
    assert said is not None
    behind = ("0" if "no seccomp" in said[1] else "2", "0" if said[1].count("no ") == 2 else "1")
    print(f"# {said[1]}", flush=True)
    for host in ("s", "r1"):
        entered = re.findall(r" sandbox: (.*)", servers.log(host))
        expect(set(entered) == {said[1]}, f"{host} entered {entered}, the kernel has {said[1]}")
    want = {"ldmd": free, "sleep": free, "mldm": behind, "up7": behind, "up6": behind}
    expect(walls_of(servers, "s") == want, f"publisher: {walls_of(servers, 's')}, not {want}")
    want = {"ldmd": free, "down7": behind, "down6": behind}
    expect(walls_of(servers, "r1") == want, f"subscriber: {walls_of(servers, 'r1')}, not {want}")
    for host in ("r2", "r3"):
        expect("WARN Sandbox: off" in servers.log(host), f"{host} does not say that there are none")
        expect(set(walls_of(servers, host).values()) == {free}, f"walls at {host}")
    servers.insert("a", mixed_sizes(7))
    servers.same_everywhere(7)
    servers.insert("b", [1000, 20000], feed="EXP")
    servers.same_everywhere(9)
    servers.stop_all()


def case_kill_anything(servers: Servers) -> None:
    """kill -9 of any process at any time, 2 % loss: every product everywhere, none twice."""
    rng = random.Random(os.environ.get("KILL_SEED", "7"))
    default = "40" if "DOWNPOUR_TEST_LONG" in os.environ else "10"
    seconds = float(os.environ.get("KILL_SECONDS", default))
    if seconds > 25:
        slots = int(100 * seconds)
        for host in HOSTS:
            servers.queue(host).unlink()
            size = f"{slots * 60 // 1000}m"
            servers.tool("pqcreate", "-s", size, "-S", str(slots), "-q", str(servers.queue(host)))
    configurations = {"s": publisher7(), **{host: subscriber7(host) for host in SUBSCRIBERS}}
    for host in SUBSCRIBERS:
        lose(host, "-p", "udp", probability=0.02)
    for host, conf in configurations.items():
        servers.start(host, conf)
    await_receiving(servers)
    victims: Counter[str] = Counter()
    inserted = pid = 0
    began = time.monotonic()
    end, next_kill = began + seconds, began + 1
    while time.monotonic() < end:
        if inserted < 60 * (time.monotonic() - began):  # the queues must hold them all
            sizes = [min(int(rng.lognormvariate(9, 1.5)) + 8, 200_000) for _ in range(4)]
            servers.insert(f"p{inserted:05d}", sizes, seed=inserted)
            inserted += len(sizes)
        for host, process in servers.running.items():
            if process.poll() is not None:
                servers.start(host, configurations[host])
        if time.monotonic() < next_kill:
            time.sleep(0.02)
            continue
        next_kill = time.monotonic() + rng.uniform(0.1, 1.2)
        host = rng.choice(list(configurations))
        pid = rng.choice(servers.descendants(host))
        victims[command_name(pid)] += 1
        os.kill(pid, signal.SIGKILL)
    wait_for("the last one killed to be gone", partial(has_ended, pid))
    for host, process in servers.running.items():
        if process.poll() is not None:
            servers.start(host, configurations[host])
    servers.insert("tail", [777])
    servers.same_everywhere(inserted + 1, timeout_s=120)
    for host in SUBSCRIBERS:
        doubles = {ident: n for ident, n in deliveries(servers, host).items() if n > 1}
        expect(not doubles, f"doubles at {host}: {doubles}")
    ways = Counter(
        word
        for host in SUBSCRIBERS
        for word in re.findall(r"(Received: \{|Inserted: |Backlog: )", servers.log(host))
    )
    print(f"# killed {dict(victims)}; {inserted + 1} products; {dict(ways)}", flush=True)
    servers.stop_all()


SILENT = """
import socket, sys
with socket.create_connection((sys.argv[1], int(sys.argv[2]))) as sender:
    while sender.recv(65536):
        pass
"""


def cut_off(host: str) -> None:
    """From now on `host` says nothing and hears nothing, without a FIN."""
    for chain in ("INPUT", "OUTPUT"):
        sh(*inside(host, "iptables", "-A", chain, "-j", "DROP"))


def reconnect(host: str) -> None:
    for chain in ("INPUT", "OUTPUT"):
        sh(*inside(host, "iptables", "-F", chain))


def process_called(servers: Servers, host: str, name: str) -> int:
    return next(pid for pid in servers.descendants(host) if command_name(pid) == name)


def has_what_is_left(servers: Servers, host: str) -> bool:
    return set(servers.products("s")) <= set(servers.products(host))


def case_nobody_holds_the_feed(servers: Servers) -> None:
    """A receiver that hangs, one that says nothing, one that vanishes: no product is refused."""
    servers.queue("s").unlink()
    servers.tool("pqcreate", "-s", "20m", "-S", "500", "-q", str(servers.queue("s")))
    start7(servers, "SET fmtp.layout 2017\nSET fmtp.r_mc_bps 100000000\nSET ldm7.dead_s 6\n")
    (sender,) = set(re.findall(r"fmtpSrvr=10[.]77[.]1[.]1:(\d+)", servers.log("s")))
    # From an address without a subscription: those that have one have no second place.
    silent = subprocess.Popen(inside("s", sys.executable, "-c", SILENT, path_ip("s"), sender))
    hung = process_called(servers, "r2", "down7")
    try:
        wait_for("the silent one", lambda: "receivers=4" in servers.log("s"))
        os.kill(hung, signal.SIGSTOP)
        cut_off("r3")
        refused = 0
        for number in range(40):
            try:
                servers.insert(f"p{number:02d}", [1_000_000], seed=number)
            except Failure as failure:
                print(f"# {failure}", flush=True)
                refused += 1
            time.sleep(0.2)
        expect(refused == 0, f"{refused} of 40 products were refused")
        wait_for("all 40 products at r1", partial(servers.has, "r1", 40))
        expect(silent.wait(20) == 0, "the silent one ended otherwise")
        wait_for("r1 alone", lambda: "receivers=1\n" in servers.log("s").split("receivers=4")[1])
        dropped = servers.count("s", "holds back too much and is disconnected")
        expect(2 <= dropped <= 3, f"{dropped} receivers were disconnected")
    finally:
        os.kill(hung, signal.SIGCONT)
        reconnect("r3")
        silent.kill()
        silent.wait()
    for host in ("r2", "r3"):
        wait_for(f"the backlog at {host}", partial(has_what_is_left, servers, host))
    await_receiving(servers, ("r2", "r3"), 2)
    servers.insert("tail", [5_000])
    for host in SUBSCRIBERS:
        wait_for(f"the last product at {host}", partial(has_what_is_left, servers, host))
    servers.stop_all()
    (laggards,) = re.findall(r"FMTP sender: .* laggards=(\d+)", servers.log("s"))
    expect(int(laggards) == dropped, f"laggards={laggards}, of {dropped} in the log")


MANY = """
import socket, sys, time
held = [socket.create_connection((sys.argv[1], int(sys.argv[2]))) for _ in range(300)]
print("open", flush=True)
time.sleep(600)
"""


def case_one_place_each(servers: Servers) -> None:
    """300 connections of an authorized host take one place; a new subscriber has its own."""
    layout = "SET fmtp.layout 2017\n"
    servers.start("s", publisher7(layout))
    servers.start("r1", subscriber7("r1", layout))
    await_receiving(servers, ("r1",))
    (sender,) = set(re.findall(r"fmtpSrvr=10[.]77[.]1[.]1:(\d+)", servers.log("s")))
    many = subprocess.Popen(
        inside("r3", sys.executable, "-c", MANY, path_ip("s"), sender), stdout=subprocess.PIPE
    )
    try:
        assert many.stdout is not None
        expect(many.stdout.readline() == b"open\n", "no connections")
        servers.start("r2", subscriber7("r2", layout))
        await_receiving(servers, ("r2",))

        def most() -> int:
            return max(int(n) for n in re.findall(r"receivers=(\d+)", servers.log("s")))

        wait_for("three receivers", lambda: most() >= 3)
        expect(most() == 3, f"{most()} receivers at once")
        refused = servers.count("s", f"Connection of {path_ip('r3')} refused")
        expect(1 <= refused <= 10, f"{refused} lines about what was refused")
        servers.insert("a", mixed_sizes(9))
        servers.same_everywhere(9, ("r1", "r2"))
    finally:
        many.kill()
        many.wait()
    servers.stop_all()
    found = re.search(rf"(\d+) more of these from {re.escape(path_ip('r3'))}", servers.log("s"))
    expect(found is not None and int(found[1]) > 200, "what was not logged is not counted")


SILENT6 = """
import socket, sys
with socket.create_connection((sys.argv[1], int(sys.argv[2]))) as sock:
    sock.sendall(bytes.fromhex(sys.argv[3]))
    sys.stdin.read()
"""


def case_nobody_holds_the_feed6(servers: Servers) -> None:
    """LDM6: one that hangs, many that say nothing, one that vanishes: no product is refused."""
    servers.queue("s").unlink()
    servers.tool("pqcreate", "-s", "20m", "-S", "500", "-q", str(servers.queue("s")))
    servers.start("s", "ALLOW NGRID ^10\\.77\\.\nSET ldm6.anti_dos 0\n")
    for host in SUBSCRIBERS:
        servers.start(host, f"REQUEST NGRID .* {control_ip('s')}:{PORT}\n")
        wait_for(f"feed at {host}", partial(by_ldm6, servers, host, 1))
    wanted = feedme(feed=NGRID).hex()
    argv = inside("r1", sys.executable, "-c", SILENT6, control_ip("s"), str(PORT), wanted)
    silent = [subprocess.Popen(argv, stdin=subprocess.PIPE) for _ in range(12)]
    hung = process_called(servers, "r2", "down6")
    try:
        wait_for("the silent ones", lambda: names_of(servers, "s").count("up6") == 15)
        os.kill(hung, signal.SIGSTOP)
        cut_off("r3")
        for number in range(24):
            servers.insert(f"p{number:02d}", [1_000_000 + 7000 * (number % 5)], seed=number)
            wait_for(f"product {number}", partial(servers.has, "r1", number + 1))
        # Nearly all of the queue at once: all that keep a product must go.
        servers.insert("large", [19_500_000])
        wait_for("the large one at r1", lambda: "/large.000" in "".join(servers.products("r1")))
        expect(servers.count("s", "while the product queue is full; disconnected") > 0, "none went")
    finally:
        os.kill(hung, signal.SIGCONT)
        reconnect("r3")
        for process in silent:
            process.kill()
            process.wait()
    servers.insert("tail", [5_000])
    for host in SUBSCRIBERS:
        wait_for(f"all that is left at {host}", partial(has_what_is_left, servers, host), 90)
    servers.stop_all()


def case_reservations_let_go(servers: Servers) -> None:
    """A product that stopped coming keeps most of a subscriber's queue: it makes room for another,
    and comes later."""
    servers.queue("r1").unlink()
    servers.tool("pqcreate", "-s", "20m", "-S", "500", "-q", str(servers.queue("r1")))
    # The programs send as fast as they can: traffic control makes 2.8 s of the large one.
    sh(
        *inside("s", "tc", "qdisc", "add", "dev", "nic1", "root", "tbf"),
        *("rate", "40mbit", "burst", "100kb", "limit", "30mb"),
    )
    servers.start("s", publisher7("SET fmtp.r_mc_bps 40000000\n"))
    servers.start("r1", subscriber7("r1"))
    await_receiving(servers, ("r1",))
    servers.insert("first", [100_000])
    servers.same_everywhere(1, ("r1",))
    sender = process_called(servers, "s", "mldm")
    servers.insert("large", [14_000_000])

    def is_reserved() -> bool:
        return "reserved_slots=1\n" in servers.tool(
            "pqutil", "-q", str(servers.queue("r1")), "stats"
        )

    wait_for("reservation of the large one", is_reserved)
    os.kill(sender, signal.SIGSTOP)
    try:
        other = servers.work / "other"
        other.write_bytes(os.urandom(12_000_000))
        servers.tool("pqinsert", "-q", str(servers.queue("r1")), "-f", "EXP", str(other))
        wait_for(
            "line", lambda: servers.count("r1", "was dropped to make room in the full queue") == 1
        )
    finally:
        os.kill(sender, signal.SIGCONT)
        sh(*inside("s", "tc", "qdisc", "del", "dev", "nic1", "root"))
    # Should it be back before the other one is in, that one may take its place.
    came = re.compile(r"(?:Inserted|Received): .*large[.]000")
    wait_for("the large one", lambda: came.search(servers.log("r1")) is not None)
    servers.stop_all()


def case_subscription_end(servers: Servers) -> None:
    """When a hung subscriber's up7 ends, so does its FMTP connection."""
    servers.start("s", publisher7().replace(path_ip("s"), control_ip("s")))
    endpoint = f"{control_ip('r1')} dummy dummy"
    servers.start("r1", f"RECEIVE NGRID {control_ip('s')}:{PORT} {endpoint}\n")
    await_receiving(servers, ("r1",))
    hung = process_called(servers, "r1", "down7")
    os.kill(hung, signal.SIGSTOP)
    try:
        os.kill(process_called(servers, "s", "up7"), signal.SIGKILL)
        gone = f"Receiver {control_ip('r1')} disconnected, receivers=0"
        wait_for("end of the FMTP connection", partial(servers.logged, "s", gone), 5)
    finally:
        os.kill(hung, signal.SIGCONT)
    await_receiving(servers, ("r1",), 2)
    servers.insert("a", mixed_sizes(7))
    servers.same_everywhere(7, ("r1",))
    servers.stop_all()


def case_leased_address_is_a_hosts(servers: Servers) -> None:
    """A host whose own address is also leased to another subscriber keeps its connection when that
    one leaves."""
    servers.start("s", publisher7(subnet=30))  # r1's address is the only one that s can lease
    source = f"{control_ip('s')}:{PORT}"
    servers.start("r1", f"RECEIVE NGRID {source} {path_ip('r1')} dummy dummy\n")
    servers.start("r2", subscriber7("r2"))
    await_receiving(servers, ("r1", "r2"))
    leased = f"{control_ip('r2')} subscribed to NGRID: .* ifaceCidrAddr={path_ip('r1')}/30"
    expect(re.search(leased, servers.log("s")) is not None, "another address was leased")
    servers.stop("r2")
    gone = f"Receiver {path_ip('r2')} disconnected"
    wait_for("end of the FMTP connection", partial(servers.logged, "s", gone), 5)
    servers.insert("a", mixed_sizes(7))
    servers.same_everywhere(7, ("r1",))
    expect(servers.count("s", f"Receiver {path_ip('r1')} disconnected") == 0, "r1 lost its own")
    servers.stop_all()


CASES = cases_in(globals())

if __name__ == "__main__":
    sys.exit(run_cases(CASES, __doc__))
