#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""LDM7 in network namespaces: several feeds, kill -9 of anything, LDM6 instead, privileges.

Usage: integration7.py LDMD TOOLS_DIRECTORY [CASE...], as integration.py. KILL_SECONDS (20) and
KILL_SEED in the environment lengthen and repeat the case `kill_anything`.
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
    Lab,
    await_receiving,
    control_ip,
    expect,
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

FEEDS = {"NGRID": 1, "EXP": 2, "NEXRAD3": 3}
DELIVERED = re.compile(
    r'(?:Received: \{.*info: "|Inserted: |Backlog: ) *\d+ [\d.]+ \S+ \d+  ([^"\n]*)'
)


def process_name(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return ""


def names_of(lab: Lab, host: str) -> list[str]:
    return sorted(process_name(pid) for pid in lab.descendants(host))


def deliveries(lab: Lab, host: str) -> Counter[str]:
    """How often each product was put into the queue, by its identifier."""
    return Counter(DELIVERED.findall(lab.log(host)))


def has_all(lab: Lab, host: str, want: list[str]) -> bool:
    return lab.products(host) == want


def case_three_feeds(lab: Lab) -> None:
    """One sender process per feed, started by the first subscription to it."""
    groups = "".join(
        f"MULTICAST {feed} 224.0.77.{n}:{38800 + n} {path_ip('s')} 24 {100 + n} sw p1\n"
        for feed, n in FEEDS.items()
    )
    lab.start("s", f'ALLOW ANY "^10[.]77[.][12][.]"\n{groups}')
    wait_for("start", lambda: "Starting Up" in lab.log("s"))
    expect(names_of(lab, "s") == ["ldmd"], f"before any subscription: {names_of(lab, 's')}")
    wanted = {"r1": list(FEEDS), "r2": ["NGRID", "EXP"], "r3": ["EXP"]}
    for host, count in (("r3", 1), ("r2", 2), ("r1", 3)):
        lab.start(host, "".join(
            f"RECEIVE {feed} {control_ip('s')}:{PORT} {path_ip(host)} sw p{host} 0\n"
            for feed in wanted[host]
        ))  # fmt: skip
        await_receiving(lab, (host,), len(wanted[host]))
        senders = names_of(lab, "s").count("mldm")
        expect(senders == count, f"{senders} senders after {host} came")
    for feed in FEEDS:
        lab.insert(f"{feed}-a", mixed_sizes(15, tiny=False), feed=feed)
    for host, feeds in wanted.items():
        want = [x for x in lab.products("s") if any(f"/{feed}-" in x for feed in feeds)]
        wait_for(f"products at {host}", partial(has_all, lab, host, want))
        expect(set(deliveries(lab, host).values()) == {1}, f"doubles at {host}")
    for feed in FEEDS:
        expect((lab.work / "s" / f"{feed}.pim").exists(), f"no index map of {feed}")
    lab.stop_all()


def case_backlog_at_once(lab: Lab) -> None:
    """What came while a subscriber was away reaches it without waiting for the next product."""
    start7(lab)
    lab.insert("a", mixed_sizes(7))
    lab.same_everywhere(7)
    lab.stop("r2")
    lab.insert("b", mixed_sizes(10, tiny=False))
    lab.same_everywhere(17, ("r1", "r3"))
    lab.start("r2", subscriber7("r2"))
    lab.same_everywhere(17)
    expect(lab.count("r2", "Backlog: ") == 10, "not just the ten products by the backlog")
    time.sleep(2.5)  # the memory is written
    memory = (lab.work / "r2" / f"{control_ip('s')}:{PORT}_NGRID.yaml").read_text()
    last = lab.tool("pqcat", "-q", str(lab.queue("s")), "--list").splitlines()[-1].split()[0]
    expect(f"Signature: {last}\n" in memory, f"memory after the backlog: {memory}")
    lab.stop_all()


def case_addresses(lab: Lab) -> None:
    """Unique addresses of the subnet, the same one again; a dummy endpoint keeps its own."""
    lab.start("s", publisher7(subnet=28))
    for host in ("r1", "r2"):
        lab.start(host, subscriber7(host))
    lab.start("r3", f"RECEIVE NGRID {control_ip('s')}:{PORT} {path_ip('r3')} dummy dummy\n")
    await_receiving(lab)

    def assigned(host: str) -> list[str]:
        return re.findall(r"ifaceCidrAddr=(\S+)", lab.log(host))

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
        lab.stop("r1")
        lab.start("r1", subscriber7("r1"))
        wait_for("subscription", partial(more_than, before))
    expect(set(assigned("r1")) == {first["r1"]}, f"r1 got {assigned('r1')}")
    lab.stop("s")
    lab.start("s", publisher7(subnet=28))
    wait_for("new subscription", lambda: len(assigned("r2")) == 2)
    expect(set(assigned("r2")) == {first["r2"]}, "another address after the server's restart")
    lab.stop_all()


def by_ldm6(lab: Lab, host: str, times: int) -> bool:
    return lab.logged(host, "is willing to be a primary", times)


def case_fallback(lab: Lab) -> None:
    """A server without multicast, then with it, then without: neither gap nor double."""
    settings = "SET ldm7.retry_s 2\nSET ldm7.verify_md5 1\n"
    unicast = 'ALLOW NGRID "^10[.]77[.][12][.]"\n'
    lab.start("s", unicast)
    for host in ("r1", "r2"):
        lab.start(host, subscriber7(host, settings))
    lab.start("r3", f"REQUEST NGRID .* {control_ip('s')}:{PORT}\n")  # never heard of LDM7
    for host in SUBSCRIBERS:
        wait_for(f"LDM6 at {host}", partial(by_ldm6, lab, host, 1))
    lab.insert("a", mixed_sizes(12))
    lab.same_everywhere(12)
    lab.stop("s")
    lab.insert("b", mixed_sizes(8, tiny=False))
    lab.start("s", publisher7())
    lab.insert("c", mixed_sizes(7, tiny=False)[:5])
    await_receiving(lab, ("r1", "r2"))
    lab.insert("d", mixed_sizes(9, tiny=False)[4:])
    lab.same_everywhere(30)
    for host in ("r1", "r2"):
        expect(lab.count(host, "Received: {") > 0, f"{host} got nothing by multicast")
        expect("down6" not in names_of(lab, host), f"LDM6 goes on at {host}")
    lab.stop("s")
    lab.start("s", unicast)
    for host in ("r1", "r2"):
        wait_for(f"LDM6 again at {host}", partial(by_ldm6, lab, host, 2))
    lab.insert("e", mixed_sizes(11, tiny=False)[4:])
    lab.same_everywhere(37)
    for host in SUBSCRIBERS:
        expect(set(deliveries(lab, host).values()) == {1}, f"doubles at {host}")
        expect(len(deliveries(lab, host)) == 37, f"{len(deliveries(lab, host))} at {host}")
    lab.stop_all()


def case_no_path(lab: Lab) -> None:
    """Subscribed, but FMTP is not let in: the feed comes by LDM6."""
    lab.start("s", publisher7(allow="^10\\.77\\.2\\.", subnet=32))
    lab.start("r1", subscriber7("r1", "SET ldm7.retry_s 2\n"))
    wait_for("LDM6", partial(by_ldm6, lab, "r1", 1))
    expect(lab.count("s", "is not authorized to connect") > 0, "FMTP was let in")
    lab.insert("a", mixed_sizes(10))
    lab.same_everywhere(10, ("r1",))
    lab.stop_all()


def case_no_sender(lab: Lab) -> None:
    """FMTP's address is not this host's: subscribers are told at once, and get the feed by LDM6."""
    multicast = "MULTICAST NGRID 224.0.77.1:38800 192.0.2.1 24 101 sw p1\n"
    lab.start("s", f'ALLOW NGRID "^10[.]77[.]"\n{multicast}')
    start = time.monotonic()
    lab.start("r1", subscriber7("r1", "SET ldm7.retry_s 2\n"))
    wait_for("refusal", lambda: "refused the subscription" in lab.log("r1"))
    expect(time.monotonic() < start + 10, "the refusal took too long")
    expect("multicast" in lab.log("r1").split("refused the subscription")[1], "another reason")
    wait_for("LDM6", partial(by_ldm6, lab, "r1", 1), 90)
    lab.insert("a", mixed_sizes(8))
    lab.same_everywhere(8, ("r1",))
    expect("cannot start the FMTP sender of NGRID" in lab.log("s"), "the reason is not logged")
    lab.stop_all()


def status_of(pid: int) -> dict[str, str]:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return {key: value.strip() for key, _, value in (line.partition(":") for line in lines)}


def case_privileges(lab: Lab) -> None:
    """With --user nothing runs as root, and whoever talks to strangers has no capability."""
    (lab.work / "s").chmod(0o777)
    lab.queue("s").chmod(0o666)
    lab.work.chmod(0o755)
    lab.start("s", publisher7() + 'EXEC "sleep 600"\n', "-u", "nobody")
    lab.start("r1", subscriber7("r1"))
    await_receiving(lab, ("r1",))
    nobody = sh("id", "-u", "nobody").stdout.strip()
    for pid in lab.descendants("s"):
        status, name = status_of(pid), process_name(pid)
        expect(status["Uid"].split() == [nobody] * 4, f"{name} runs as {status['Uid']}")
        expect(status["Groups"].split() == sh("id", "-G", "nobody").stdout.split(), name)
        reserve = 1 << 12 | 1 << 10  # CAP_NET_ADMIN, CAP_NET_BIND_SERVICE
        want = {"ldmd": (reserve, 0), "mldm": (reserve, reserve)}.get(name, (0, 0))
        found = (int(status["CapPrm"], 16), int(status["CapEff"], 16))
        expect(found == want, f"{name} has capabilities {found}, not {want}")
        expect(status["NoNewPrivs"] == ("1" if name == "up7" else "0"), f"{name}: NoNewPrivs")
    expect("sleep" in names_of(lab, "s"), "EXEC")
    lab.insert("a", mixed_sizes(7))
    lab.same_everywhere(7, ("r1",))
    lab.stop_all()
    conf = str(lab.work / "s" / "ldmd.conf")
    base = [str(lab.ldmd), "-q", str(lab.queue("s")), "-P", str(PORT), "-I", "127.0.0.1"]
    argv = ["ip", "netns", "exec", netns("s"), *base, "-u", "no-such-user", conf]
    wrong = subprocess.run(argv, capture_output=True, text=True, timeout=20)
    expect(wrong.returncode == 1 and 'no user "no-such-user"' in wrong.stderr, wrong.stderr)


def case_kill_anything(lab: Lab) -> None:
    """kill -9 of any process at any time, 2 % loss: every product everywhere, none twice."""
    rng = random.Random(os.environ.get("KILL_SEED", "7"))
    seconds = float(os.environ.get("KILL_SECONDS", "20"))
    if seconds > 25:
        slots = int(100 * seconds)
        for host in HOSTS:
            lab.queue(host).unlink()
            size = f"{slots * 60 // 1000}m"
            lab.tool("pqcreate", "-s", size, "-S", str(slots), "-q", str(lab.queue(host)))
    configurations = {"s": publisher7(), **{host: subscriber7(host) for host in SUBSCRIBERS}}
    for host in SUBSCRIBERS:
        lose(host, "-p", "udp", probability=0.02)
    for host, conf in configurations.items():
        lab.start(host, conf)
    await_receiving(lab)
    victims: Counter[str] = Counter()
    inserted = 0
    began = time.monotonic()
    end, next_kill = began + seconds, began + 1
    while time.monotonic() < end:
        if inserted < 60 * (time.monotonic() - began):  # the queues must hold them all
            sizes = [min(int(rng.lognormvariate(9, 1.5)) + 8, 200_000) for _ in range(4)]
            lab.insert(f"p{inserted:05d}", sizes, seed=inserted)
            inserted += len(sizes)
        for host, process in lab.running.items():
            if process.poll() is not None:
                lab.start(host, configurations[host])
        if time.monotonic() < next_kill:
            time.sleep(0.02)
            continue
        next_kill = time.monotonic() + rng.uniform(0.1, 1.2)
        host = rng.choice(list(configurations))
        pid = rng.choice(lab.descendants(host))
        victims[process_name(pid)] += 1
        os.kill(pid, signal.SIGKILL)
    time.sleep(1)  # until the last one killed is gone
    for host, process in lab.running.items():
        if process.poll() is not None:
            lab.start(host, configurations[host])
    lab.insert("tail", [777])
    lab.same_everywhere(inserted + 1, timeout_s=120)
    for host in SUBSCRIBERS:
        doubles = {ident: n for ident, n in deliveries(lab, host).items() if n > 1}
        expect(not doubles, f"doubles at {host}: {doubles}")
    ways = Counter(
        word
        for host in SUBSCRIBERS
        for word in re.findall(r"(Received: \{|Inserted: |Backlog: )", lab.log(host))
    )
    print(f"# killed {dict(victims)}; {inserted + 1} products; {dict(ways)}", flush=True)
    lab.stop_all()


CASES = {
    name.removeprefix("case_"): case
    for name, case in list(globals().items())
    if name.startswith("case_")
}

if __name__ == "__main__":
    sys.exit(run_cases(CASES, __doc__))
