# SPDX-License-Identifier: Apache-2.0
"""A cell whose publisher and one receiver are on other machines: network namespaces with an OpenSSH
server each, behind a bridge. The run itself is in a third namespace."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from common.places import PYTHON, ROOT
from common.shell import check
from experiments.tests.built import NEEDS_PROGRAMS

SSHD: Final = shutil.which("sshd", path=f"{os.environ.get('PATH', '')}:/usr/sbin")
HOSTS: Final = ("umass", "wsu1")
pytestmark = [
    pytest.mark.root,
    pytest.mark.emulated,
    pytest.mark.skipif(os.geteuid() != 0, reason="SKIPPED: network namespaces need root"),
    pytest.mark.skipif(SSHD is None, reason="SKIPPED: found no sshd (apt install openssh-server)"),
    NEEDS_PROGRAMS,
]
SETTINGS: Final = """
ListenAddress {address}
HostKey {keys}/host
AuthorizedKeysFile {keys}/user.pub
PermitRootLogin prohibit-password
PasswordAuthentication no
StrictModes no
PidFile none
Subsystem sftp internal-sftp
"""
OPTIONS: Final = " ".join(
    f"-o {option}"
    for option in ("UserKnownHostsFile=/dev/null", "StrictHostKeyChecking=no", "LogLevel=ERROR")
)
VARIABLES: Final = """
[all:vars]
ansible_user=root
ansible_ssh_private_key_file={keys}/user
ansible_ssh_common_args={options}
downpour_root={root}
"""


class Lab:
    """The namespaces: `hub`, and one for each host."""

    def __init__(self, directory: Path) -> None:
        self.keys = directory
        self.tag = f"drh{os.getpid()}"
        self.servers: list[subprocess.Popen[bytes]] = []
        for name in ("host", "user"):
            check(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(directory / name)])
        users = Path("/etc/passwd").read_text()
        if "\nsshd:" not in users:
            users += "sshd:x:74:65534::/run/sshd:/usr/sbin/nologin\n"
        (directory / "passwd").write_text(users)
        Path("/run/sshd").mkdir(exist_ok=True)

    def up(self, mtu: int) -> Path:
        """Make everything; return the inventory."""
        hub = f"{self.tag}-hub"
        check(["ip", "netns", "add", hub])
        for words in (
            f"link add br0 mtu {mtu} type bridge",
            "link set lo up",
            "address add 10.99.0.1/24 dev br0",
            "link set br0 up",
        ):
            check(["ip", "-n", hub, *words.split()])
        lines = []
        for number, name in enumerate(HOSTS, start=2):
            self._host(hub, name, number, mtu)
            lines.append(f"{name} ansible_host=10.99.0.{number}\n")
        path = self.keys / "hosts.ini"
        path.write_text(
            "".join(lines) + VARIABLES.format(keys=self.keys, root=ROOT, options=OPTIONS)
        )
        return path

    def _host(self, hub: str, name: str, number: int, mtu: int) -> None:
        space, address = f"{self.tag}-{name}", f"10.99.0.{number}"
        check(["ip", "netns", "add", space])
        pair = f"link add v{number} mtu {mtu} netns {hub} type veth peer name eth0 mtu {mtu}"
        check(["ip", *pair.split(), "netns", space])
        check(["ip", "-n", hub, "link", "set", f"v{number}", "master", "br0", "up"])
        check(["ip", "-n", space, "link", "set", "lo", "up"])
        check(["ip", "-n", space, "address", "add", f"{address}/24", "dev", "eth0"])
        check(["ip", "-n", space, "link", "set", "eth0", "up"])
        settings, log = self.keys / f"{name}.sshd", self.keys / f"{name}.log"
        settings.write_text(SETTINGS.format(address=address, keys=self.keys))
        start = f'mount --bind {self.keys}/passwd /etc/passwd && exec "$@"'
        server = [str(SSHD), "-D", "-e", "-f", str(settings)]
        inside = ["nsenter", f"--net=/run/netns/{space}", "unshare", "--mount"]
        with log.open("wb") as errors:
            argv = [*inside, "sh", "-c", start, "sh", *server]
            self.servers.append(subprocess.Popen(argv, stdout=errors, stderr=errors))
        for _ in range(100):
            if "Server listening" in log.read_text():
                return
            time.sleep(0.1)
        pytest.skip(f"sshd does not start: {log.read_text()}: NOTHING was tested")

    def circuits(self, inventory: Path) -> Path:
        """Join the hub and each host by two more wires; add them to the inventory's hosts."""
        text = inventory.read_text()
        for number, name in enumerate(HOSTS, start=2):
            for kind in ("path", "control"):
                here, there = f"{kind[0]}{number}", f"{kind}0"
                pair = f"link add {here} netns {self.tag}-hub type veth peer name {there}"
                check(["ip", *pair.split(), "netns", f"{self.tag}-{name}"])
            ends = f"downpour_circuit=path0,control0 downpour_hub_circuit=p{number},c{number}"
            text = text.replace(f"{name} ansible_host", f"{name} {ends} ansible_host")
        inventory.write_text(text)
        return inventory

    def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        """Run `downpour remote lossy` in the hub."""
        argv = [str(PYTHON), "-B", "-m", "downpour", "remote", "lossy", *words]
        return subprocess.run(
            ["nsenter", f"--net=/run/netns/{self.tag}-hub", *argv],
            cwd=ROOT,
            capture_output=True,
            text=True,
            timeout=280,
            check=False,
        )

    def interfaces(self) -> list[str]:
        """Return the interfaces of all its namespaces."""
        spaces = [f"{self.tag}-{name}" for name in ("hub", *HOSTS)]
        return [check(["ip", "-n", space, "-br", "link"]) for space in spaces]

    def down(self) -> None:
        """Remove everything."""
        for server in self.servers:
            server.terminate()
            server.wait()
        for name in ("hub", *HOSTS):
            subprocess.run(["ip", "netns", "delete", f"{self.tag}-{name}"], check=False)


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Lab]:
    """Return the namespaces; remove them at the end."""
    made = Lab(tmp_path)
    try:
        yield made
    finally:
        made.down()


def words(inventory: Path, runs: Path) -> list[str]:
    """Return the options of a short cell: LDM7, one receiver elsewhere and one here."""
    cell = ["--only", "protocol=ldm7", "--receivers", "2", "--duration", "5"]
    return ["--inventory", str(inventory), "--runs", str(runs), *cell]


def test_a_cell_over_three_machines(lab: Lab, tmp_path: Path) -> None:
    inventory = lab.up(1600)
    before = lab.interfaces()
    done = lab.run(*words(inventory, tmp_path / "runs"))
    assert done.returncode in (0, 3), done.stdout + done.stderr
    (cell,) = (tmp_path / "runs/lossy").glob("2*/cells/*")
    verdict = json.loads((cell / "verdict.json").read_text())
    checks: dict[str, dict[str, Any]] = {c["name"]: c for c in verdict["checks"]}
    for name in (
        *("offset of the hosts' clocks", "tunnels to the hosts", "products identical"),
        *("every interface as planned", "nothing changed meanwhile", "datagrams accounted for"),
        *("neighbours' counters", "experiment's settings", "packets lost on the way"),
    ):
        assert checks[name]["status"] in ("pass", "n/a"), checks[name]
    hosts = json.loads((cell / "hosts.json").read_text())
    assert set(hosts) == set(HOSTS)
    assert "FMTP receiver:" in (cell / "logs/wsu1.ldmd.log").read_text()
    assert (cell / "logs/sar.sa").stat().st_size > 0
    assert (cell.parents[1] / "report/index.html").exists()
    manifest = json.loads((cell.parents[1] / "manifest.json").read_text())
    assert manifest["hosts"] == {"umass": "10.99.0.2", "wsu1": "10.99.0.3"}
    assert lab.interfaces() == before
    assert not [path for path in hosts.values() if Path(path["scratch"]).exists()]


def test_a_cell_over_vlans_that_the_site_gives(lab: Lab, tmp_path: Path) -> None:
    inventory = lab.circuits(lab.up(1500))  # too small for a tunnel
    before = lab.interfaces()
    done = lab.run(*words(inventory, tmp_path / "runs"))
    assert done.returncode in (0, 3), done.stdout + done.stderr
    (cell,) = (tmp_path / "runs/lossy").glob("2*/cells/*")
    verdict = json.loads((cell / "verdict.json").read_text())
    checks: dict[str, dict[str, Any]] = {c["name"]: c for c in verdict["checks"]}
    for name in ("tunnels to the hosts", "products identical", "neighbours' counters"):
        assert checks[name]["status"] == "pass", checks[name]
    carried = json.loads((cell / "hosts.json").read_text())["wsu1"]["after"]["tunnels"]
    assert carried["wsu1-nic1"]["received_there"] > 1000
    names = [line.split("@")[0] for one in lab.interfaces() for line in one.splitlines()]
    assert names == [line.split("@")[0] for one in before for line in one.splitlines()]


def test_a_network_below_that_cannot_carry_whole_frames(lab: Lab, tmp_path: Path) -> None:
    done = lab.run(*words(lab.up(1500), tmp_path / "runs"))
    assert done.returncode == 1
    assert "found MTU 1500 of eth0 on 10.99.0.2; valid: 1550 or more" in done.stdout + done.stderr
