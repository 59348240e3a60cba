# SPDX-License-Identifier: Apache-2.0
"""A subscription alone grows the tree (DRFSM21 2.2.2, steps 1 to 5), and its end prunes it, even if
ldmd or the controller dies, with Open vSwitch on the emulated network. Print figures."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest

from controller.api.path_client import PathClient
from tests.path_service.ldm import BUILD, FEED, Site, wait_for
from topologies.emulate import lifecycle
from topologies.emulate.emulation import open_emulation
from topologies.model.load import find, load

pytestmark = [
    pytest.mark.root,
    pytest.mark.emulated,
    pytest.mark.skipif(os.geteuid() != 0, reason="SKIPPED: network namespaces need root"),
    pytest.mark.skipif(
        not (BUILD / "ldmd/ldmd").exists(), reason="SKIPPED: run `make build` first"
    ),
]
DEAD_S = 4
LEASE_S = 2.0
# Five receivers in four racks: wsu1 and wsu2 share an endpoint.
RACKS = ("wsu1", "sl1", "uh1", "osf1")


@contextmanager
def open_site(directory: Path, lease_s: float = 0.0) -> Iterator[Site]:
    network = load(find("geni5"), {"receivers": 5})
    with (
        lifecycle.enter(lifecycle.new_run_id("test-subscriptions")) as run,
        open_emulation(network, run.state_dir, lease_s=lease_s) as emulation,
    ):
        site = Site(emulation, directory)
        try:
            yield site
        finally:
            site.close()


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    with open_site(tmp_path) as site:
        yield site


@pytest.fixture
def site_with_lease(tmp_path: Path) -> Iterator[Site]:
    with open_site(tmp_path, LEASE_S) as site:
        yield site


def has_first_product(site: Site, host: str, before: int = 0) -> bool:
    return len(site.lines(host, "Received: {")) > before


def is_receiving(site: Site, host: str) -> bool:
    return bool(site.lines(host, " Receiving"))


def has_leaves(site: Site, *hosts: str) -> bool:
    return site.leaf_keys() == {site.key_of(host) for host in hosts}


def report(text: str) -> None:
    print(f"# {text}", flush=True)


def test_subscriptions_make_the_tree(site: Site) -> None:
    site.start_publisher(f"SET ldm7.dead_s {DEAD_S}", "SET path.grace_s 2")
    wait_for("path", lambda: len(site.paths()) == 1)
    assert site.leaf_keys() == set()
    feeding = site.feed(600)

    for host in RACKS:
        site.start_subscriber(host)
        wait_for("first product", partial(has_first_product, site, host))
        report(f"{host}: {site.join(host)}")
    assert has_leaves(site, *RACKS)

    # A rack's second subscriber shares the leaf; the leaf stays when it leaves.
    added = len(site.lines(site.publisher, "leaf added"))
    site.start_subscriber("wsu2")
    wait_for("first product", partial(has_first_product, site, "wsu2"))
    assert len(site.lines(site.publisher, "leaf added")) == added == 4
    site.stop("wsu2")

    # One subscriber ends, one is killed, and one host falls silent.
    site.stop("uh1")
    took_s = wait_for("prune", partial(has_leaves, site, "wsu1", "sl1", "osf1"))
    report(f"uh1 ended: pruned after {took_s * 1e3:.0f} ms")
    site.kill("sl1")
    took_s = wait_for("prune", partial(has_leaves, site, "wsu1", "osf1"))
    report(f"sl1's processes killed: pruned after {took_s * 1e3:.0f} ms")
    for chain in ("INPUT", "OUTPUT"):
        site.emulation.run("osf1", ["iptables", "-A", chain, "-j", "DROP"])
    took_s = wait_for("prune", partial(has_leaves, site, "wsu1"))
    report(f"osf1 silent, ldm7.dead_s {DEAD_S}: pruned after {took_s * 1e3:.0f} ms")
    assert took_s < DEAD_S + 16
    site.kill("osf1")
    site.emulation.run("osf1", ["iptables", "-F"])

    # After the path service is killed, subscribers keep receiving; new ones wait for its return.
    (domain,) = site.emulation.controller_sockets
    site.emulation.kill_controller(domain)
    count = len(site.lines("wsu1", "Received: {"))
    site.start_subscriber("uh1")
    no_service = "Path service: no service"
    wait_for("a try", lambda: bool(site.lines(site.publisher, no_service)))
    wait_for("products without a controller", partial(has_first_product, site, "wsu1", count + 20))
    site.emulation.start_controller(domain)
    before = len(site.lines("uh1", "Received: {"))
    took_s = wait_for("uh1's products", partial(has_first_product, site, "uh1", before))
    report(f"uh1 subscribed without a controller: first product {took_s:.1f} s after its return")

    # After mldm is killed, all subscribe again; leaves of hosts that do not are pruned.
    site.start_subscriber("sl1")
    wait_for("sl1", partial(has_leaves, site, "wsu1", "sl1", "uh1"))
    site.kill("sl1")
    site.kill(site.publisher, "mldm")
    count = len(site.lines("wsu1", "Received: {"))
    wait_for("products after mldm's death", partial(has_first_product, site, "wsu1", count))
    wait_for("prune", partial(has_leaves, site, "wsu1", "uh1"))

    feeding.terminate()
    feeding.wait()
    site.insert("last")
    for host in ("wsu1", "uh1"):
        wait_for(f"all products at {host}", partial(site.has_all, host))
    report(f"{len(site.products('wsu1'))} products at wsu1, as at the publisher")
    site.stop(site.publisher)
    wait_for("end of the path", lambda: site.paths() == [])


def test_refusal_falls_back_to_ldm6(site: Site) -> None:
    """The publisher refuses an invalid endpoint, in the service's words; LDM6 brings the feed."""
    site.start_publisher()
    site.start_subscriber("wsu1")
    wait_for("multicast", partial(is_receiving, site, "wsu1"))
    site.start_subscriber("uh1", port=99)
    took_s = wait_for("LDM6", lambda: "is willing to be a primary" in site.log("uh1"))
    report(f"the feed comes by LDM6 {took_s * 1e3:.0f} ms after ldmd's start")
    assert took_s < 50  # before LDM7's next attempt, after a minute
    (line, *_) = site.lines(site.publisher, "Path service: refused")
    assert ":99:" in line and "problem=" in line
    report(line.split("Path service: ", 1)[1])
    assert has_leaves(site, "wsu1")
    site.insert("product")
    for host in ("wsu1", "uh1"):
        wait_for(f"the product at {host}", partial(site.has_all, host))
    assert f"refused the subscription to {FEED}" in site.log("uh1")


def test_subscriber_makes_its_vlan(site: Site) -> None:
    """If hosts tag, the subscriber makes the VLAN's interface with the reply's address, and the
    publisher admits FMTP from there alone (DRFSM21 2.2.2 and 2.2.3)."""
    if site.emulation.facts.edge_tags:
        pytest.skip("this kernel has no 802.1Q: VLANs made by subscribers were NOT tested")
    site.start_publisher(fixed=False)
    settings = f"SET ldm7.vlanutil {BUILD}/vlanutil"
    for host in ("wsu1", "wsu2", "uh1"):
        site.emulation.run(host, ["ip", "link", "delete", site.emulation.nic1_of(host)])
        nic1 = site.network.host(host).nic1.interface
        site.start_subscriber(host, settings, interface=nic1)
        wait_for("multicast", partial(is_receiving, site, host))
        (reply,) = re.findall(r"ifaceCidrAddr=(\S+)", site.log(host))
        vlan = site.key_of(host)[2]
        shown = site.emulation.run(
            host, ["ip", "-o", "-4", "addr", "show", f"{nic1}.{vlan}"]
        ).stdout
        assert f"inet {reply} " in shown
        assert f"Host {reply.split('/')[0]} is authorized" in site.log(site.publisher)
    assert has_leaves(site, "wsu1", "uh1")
    site.insert("product")
    for host in ("wsu1", "wsu2", "uh1"):
        wait_for(f"the product at {host}", partial(site.has_all, host))
        assert len(site.lines(host, "Received: {")) == 1
    site.stop("uh1")
    wait_for("prune", partial(has_leaves, site, "wsu1"))


def test_standby_controller_takes_over(site_with_lease: Site) -> None:
    """The controller dies and stays dead: subscriptions continue with the standby."""
    site = site_with_lease
    (domain,) = site.emulation.controller_sockets
    standby = site.emulation.start_standby(domain)
    site.start_publisher(standby=standby)
    site.start_subscriber("wsu1")
    wait_for("multicast", partial(is_receiving, site, "wsu1"))
    feeding = site.feed(600)
    site.emulation.kill_controller(domain)
    site.start_subscriber("uh1")
    took_s = wait_for("first product", partial(has_first_product, site, "uh1"))
    report(f"uh1 subscribed after the controller died: first product {took_s:.1f} s later")
    with PathClient(standby) as service:
        leaves = service.get(FEED)["leaves"]
    keys = {(x["switch"], x["port"], x["vlan"]) for x in leaves}
    assert keys == {site.key_of(host) for host in ("wsu1", "uh1")}
    feeding.terminate()
    feeding.wait()
    site.insert("last")
    for host in ("wsu1", "uh1"):
        wait_for(f"all products at {host}", partial(site.has_all, host))
    site.stop(site.publisher)
    with PathClient(standby) as service:
        assert service.paths() == []
