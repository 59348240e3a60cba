# SPDX-License-Identifier: Apache-2.0
"""Run commands beside an Open vSwitch that nothing else uses."""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Final

from common.places import ROOT

START: Final = """
set -e
mkdir -p /run/openvswitch /run/netns
mount -t tmpfs none /run/openvswitch
mount -t tmpfs none /run/netns
ip link set lo up
export OVS_RUNDIR=/run/openvswitch OVS_DBDIR=$WORK OVS_LOGDIR=$WORK
ovsdb-tool create $WORK/conf.db /usr/share/openvswitch/vswitch.ovsschema
ovsdb-server $WORK/conf.db --remote=punix:/run/openvswitch/db.sock --pidfile --detach --no-chdir
ovs-vsctl --no-wait init
ovs-vswitchd --pidfile --detach --no-chdir --log-file=$WORK/vswitchd.log
"""
LIMIT_S: Final = 300


def beside_open_vswitch(commands: Callable[[Path], str]) -> subprocess.CompletedProcess[str]:
    """Run shell commands as root in their own network, mount and process namespaces, with an Open
    vSwitch. `commands`: returns them for a directory that is removed with them."""
    with tempfile.TemporaryDirectory(prefix="own-ovs-") as work:
        return subprocess.run(
            ["unshare", "--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc",
             "bash", "-c", START + commands(Path(work))],
            cwd=ROOT,
            env={**os.environ, "WORK": work},
            capture_output=True,
            text=True,
            timeout=LIMIT_S,
            check=False,
        )  # fmt: skip
