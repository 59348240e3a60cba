# SPDX-License-Identifier: Apache-2.0
"""What the published senders did differently: LDM6's sent less than its bucket's rate, LDM7's sent
pulled files through the queue of FMTP's repairs."""

from __future__ import annotations

from pathlib import Path

import pytest

from controller.api.path_client import endpoints_of
from experiments.design import configs
from experiments.design.expansion import expand
from experiments.design.networks import Networks
from experiments.design.spec import SpecErrors, load
from experiments.tests.test_table_one import GOOD, spec_of, varied


def test_a_ceiling_bounds_the_bucket_alone(tmp_path: Path) -> None:
    """8 x 20 Mbit/s are 160. The bucket's limit is 2 x 160 Mbit/s x 89 ms = 3.56 MB, however much
    passes it, and the path is reserved for what Table II asks for."""
    changes = ("protocol: [ldm7, ldm6]", "protocol: [ldm6]\n  sender_bps: [80Mbps, 500Mbps]")
    low, high = expand(spec_of(tmp_path, changes))
    assert (low.shaped_bps, high.shaped_bps) == (80_000_000, 160_000_000)
    assert low.r_vn_bps == high.r_vn_bps >= 160_000_000
    assert low.tbf_limit_bytes(89.0) == high.tbf_limit_bytes(89.0) == 3_560_000
    assert low.cell == "ldm6-m8-r20-p0-cap80"


def test_pulls_by_the_path(tmp_path: Path) -> None:
    """Publisher and subscriber name NIC1; ldmd asks for no path, since the cell makes it first."""
    by_path, beside = varied(tmp_path, "pull_path", "nic1, nic2")
    assert by_path.makes_path
    assert not beside.makes_path
    network = Networks().of(by_path)
    root, leaves = endpoints_of(network)
    host = network.subscribers[0]
    leaf = leaves[network.segment_of(host.name).name]
    for cell, publisher_ip, host_ip in (
        (by_path, network.publisher.nic1.ip, host.nic1.ip),
        (beside, network.publisher.nic2.ip, host.nic2.ip),
    ):
        conf = configs.publisher_conf(network, cell, {"NGRID": root}, Path("/s"))
        (request,) = [
            line
            for line in configs.subscriber_conf(
                network, cell, host, cell.feeds[0], leaf
            ).splitlines()
            if line.startswith("RECEIVE ")
        ]
        assert f'ALLOW NGRID "^{host_ip.replace(".", "[.]")}$"' in conf
        assert f"{publisher_ip}:388" in request
        assert ("path.service" in conf) == (cell is beside)


def test_the_timer_and_the_threads(tmp_path: Path) -> None:
    """Both are settings of ldmd.conf, so they vary by the factor `set`."""
    _, cell = varied(
        tmp_path,
        "set",
        "{}, {fmtp.timer_by: handover, fmtp.handover_us: 36, fmtp.blocking: on}",
    )
    network = Networks().of(cell)
    conf = configs.publisher_conf(network, cell, {"NGRID": endpoints_of(network)[0]}, Path("/s"))
    assert {
        "SET fmtp.timer_by handover",
        "SET fmtp.handover_us 36",
        "SET fmtp.blocking on",
    } <= set(conf.splitlines())


@pytest.mark.parametrize(
    ("protocols", "more", "found"),
    [
        ("ldm7, ldm6", "sender_bps: [80Mbps]", "ldm7, ldm6 with sender_bps; valid: [ldm6]"),
        ("ldm7, ldm6", "pull_path: [nic1]", "ldm7, ldm6 with pull_path nic1; valid: [ldm7]"),
        (
            "ldm7",
            "pull_path: [nic1]\n  without_multicast: [2]",
            "pull_path nic1 with without_multicast; valid: pull_path nic2",
        ),
    ],
)
def test_what_does_not_go_together(tmp_path: Path, protocols: str, more: str, found: str) -> None:
    changes = ("protocol: [ldm7, ldm6]", f"protocol: [{protocols}]\n  {more}")
    with pytest.raises(SpecErrors) as caught:
        load(_written(tmp_path, *changes))
    assert found in str(caught.value)


def _written(folder: Path, old: str, new: str) -> Path:
    path = folder / "x.yaml"
    path.write_text(GOOD.replace(old, new, 1))
    return path
