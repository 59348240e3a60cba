# SPDX-License-Identifier: Apache-2.0
"""Hosts on other machines: the inventory, the tunnels, and an agent's programs and files."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from common import checkout
from common.places import PROGRAMS, ROOT
from common.shell import NetworkError
from topologies.remote import channel, connection, inventory
from topologies.remote.connection import Connection
from topologies.remote.host import Host
from topologies.remote.inventory import InventoryError, RemoteHost
from topologies.remote.tunnels import Tunnel

FILE = Path("hosts.ini")


def test_a_host_has_what_the_inventory_says() -> None:
    given = {
        "ansible_host": "192.0.2.1",
        "ansible_port": 2222,
        "ansible_user": "me",
        "ansible_ssh_common_args": "-J gate",
        "downpour_host": "umass",
        "downpour_tunnel": "10.0.0.1",
        "downpour_root": "/opt/downpour/",
    }
    (found,) = inventory.hosts_of({"node1": given}, FILE)
    assert found == RemoteHost(
        name="umass",
        address="192.0.2.1",
        tunnel="10.0.0.1",
        port=2222,
        user="me",
        ssh_arguments="-J gate",
        root="/opt/downpour",
    )
    assert inventory.from_json(inventory.to_json([found])) == [found]
    argv = connection.ssh_argv(found)
    assert argv[-5:] == ["-p", "2222", "-J", "gate", "me@192.0.2.1"]
    assert connection.agent_command(found).startswith("exec sudo -n sh -c ")


@pytest.mark.parametrize(
    ("variables", "message"),
    [
        ({}, "hosts.ini: found no host; valid: a line for each host on another machine"),
        (
            {"a": {"ansible_connection": "local"}},
            "hosts.ini, a: found ansible_connection=local; valid: ssh; a host that is not in the "
            "inventory is on this machine",
        ),
        (
            {"a": {}, "b": {"downpour_host": "a"}},
            "hosts.ini: found host 'a' twice; valid: each once (downpour_host)",
        ),
        (
            {"a": {"ansible_port": "ssh"}},
            "hosts.ini, a: found ansible_port='ssh'; valid: 1 to 65535",
        ),
        (
            {"a": {"downpour_circuit": "e1", "downpour_hub_circuit": "e2,e3"}},
            "hosts.ini, a: found downpour_circuit='e1'; valid: two interfaces, for the path and "
            "for control (eth1.701,eth1.702), together with downpour_hub_circuit",
        ),
        (
            {"a": {"downpour_circuit": "e1,e2"}},
            "hosts.ini, a: found downpour_hub_circuit=''; valid: two interfaces, for the path and "
            "for control (eth1.701,eth1.702), together with downpour_circuit",
        ),
        (
            {
                "a": {"downpour_circuit": "e1,e2", "downpour_hub_circuit": "x1,x2"},
                "b": {"downpour_circuit": "e1,e2", "downpour_hub_circuit": "x2,x3"},
            },
            "hosts.ini: found interface 'x2' twice; valid: each once (downpour_hub_circuit)",
        ),
    ],
)
def test_wrong_inventories(variables: dict[str, dict[str, str]], message: str) -> None:
    with pytest.raises(InventoryError) as caught:
        inventory.hosts_of(variables, FILE)
    assert str(caught.value) == message


def test_a_host_that_the_topology_lacks() -> None:
    with pytest.raises(InventoryError, match="found host 'x'; valid: p, q"):
        inventory.check_names([RemoteHost("x", "a", "a")], ["p", "q"], FILE)


def test_an_inventory_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(InventoryError, match="found no inventory .*; valid: a file of Ansible"):
        inventory.read(tmp_path / "none.ini")


# As ansible-inventory breaks its messages after 79 columns.
WRAPPED = """[WARNING]:  * Failed to parse /home/somebody/testbed/inventories/hosts.ini with
ini plugin: /home/somebody/testbed/inventories/hosts.ini:5: Expected key=value
host variable assignment, got: binary
[WARNING]: Unable to parse /home/somebody/testbed/inventories/hosts.ini as an
inventory source
ERROR! Completely failed to parse inventory source /home/somebody/testbed/inven
"""


@pytest.fixture
def said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An inventory that ansible-inventory, here a script, does not accept."""
    script = tmp_path / "ansible-inventory"
    script.write_text(f"#!/bin/sh\ncat >&2 <<'END'\n{WRAPPED}END\nexit 1\n")
    script.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    (tmp_path / "hosts.ini").touch()
    yield tmp_path / "hosts.ini"


def test_what_ansible_says_is_told_whole(said: Path) -> None:
    with pytest.raises(InventoryError) as caught:
        inventory.read(said)
    assert str(caught.value) == (
        f"{said}: found what Ansible cannot read (Failed to parse "
        "/home/somebody/testbed/inventories/hosts.ini with ini plugin: "
        "/home/somebody/testbed/inventories/hosts.ini:5: Expected key=value host variable "
        "assignment, got: binary; Unable to parse /home/somebody/testbed/inventories/hosts.ini as "
        "an inventory source; Completely failed to parse inventory source "
        "/home/somebody/testbed/inven); valid: a file of Ansible (INI or YAML)"
    )


def test_an_inventory_that_takes_too_long(said: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (said.parent / "ansible-inventory").write_text("#!/bin/sh\nexec sleep 60\n")
    monkeypatch.setattr(inventory, "READ_S", 0.5)
    with pytest.raises(NetworkError, match=r"hosts.ini: found no answer .* within 0.5 s; valid: "):
        inventory.read(said)


def test_both_ends_of_a_tunnel_agree() -> None:
    tunnel = Tunnel("p-nic1", "02:00:00:00:00:01", 77, "10.0.0.1", "10.0.0.2")
    here, there = tunnel.make_here(1)[0], tunnel.make_there()[0]
    assert here[here.index("local") + 1] == there[there.index("remote") + 1] == "10.0.0.1"
    assert here[here.index("remote") + 1] == there[there.index("local") + 1] == "10.0.0.2"
    assert here[here.index("id") + 1] == there[there.index("id") + 1] == "77"
    assert ["ip", "link", "set", "dpv77", "address", tunnel.mac] in tunnel.make_there()


def test_a_host_with_vlans_that_the_site_gives() -> None:
    given = {"downpour_circuit": "eth1.701, eth1.702", "downpour_hub_circuit": "e701,e702"}
    (found,) = inventory.hosts_of({"a": given}, FILE)
    assert (found.circuit, found.hub_circuit) == (("eth1.701", "eth1.702"), ("e701", "e702"))
    assert inventory.from_json(inventory.to_json([found])) == [found]


def machine(directory: Path) -> tuple[Path, Path]:
    """Make a checkout of one Python file and one program. Return it and its build directory."""
    build = directory / "build"
    for path in (directory / "common/a.py", build / PROGRAMS["ldmd"]):
        path.parent.mkdir(parents=True)
        path.write_text("1")
    return directory, build


def test_machines_with_the_same_files_agree(tmp_path: Path) -> None:
    one, other = machine(tmp_path / "one"), machine(tmp_path / "other/tests")
    (one[0] / "common/tests").mkdir()
    (one[0] / "common/tests/test_a.py").write_text("hosts do not run tests")
    assert checkout.difference(checkout.describe(*one), checkout.describe(*other)) == ""


@pytest.mark.parametrize(
    ("file", "what"),
    [
        ("common/a.py", "Python files"),
        ("topologies/remote/b.py", "Python files"),
        (f"build/{PROGRAMS['ldmd']}", "C programs"),
        (f"build/{PROGRAMS['pqcat']}", "C programs"),
    ],
)
def test_machines_with_other_files_differ(file: str, what: str, tmp_path: Path) -> None:
    one, other = machine(tmp_path / "one"), machine(tmp_path / "other")
    (other[0] / file).parent.mkdir(parents=True, exist_ok=True)
    (other[0] / file).write_text("2")
    here, there = checkout.describe(*one), checkout.describe(*other)
    found = f"other {what} (digest {there[what]}, on this machine {here[what]})"
    assert checkout.difference(here, there) == found
    assert checkout.difference(here, {}).startswith("other Python files (digest none, ")


def test_the_default_place_is_that_of_the_playbooks() -> None:
    place = (ROOT / "ansible/roles/place/tasks/main.yml").read_text()
    assert f"else ansible_env.HOME ~ '/{inventory.ROOT}')" in place


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Host]:
    """Start an agent of this checkout, without ssh."""
    monkeypatch.setattr(connection, "ssh_argv", lambda _host: ["sh", "-c"])
    one = RemoteHost("p", "127.0.0.1", "127.0.0.1", root=str(ROOT))
    found = Host(one, Connection(one, tmp_path / "log"))
    yield found
    found.close()


needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="SKIPPED: namespaces need root")


@pytest.mark.root
@needs_root
def test_programs_and_files_of_an_agent(host: Host, tmp_path: Path) -> None:
    scratch = Path(host.scratch)
    host.share(tmp_path)
    assert host.there(f"-q {tmp_path}/a") == f"-q {scratch}{tmp_path}/a"
    own = tmp_path / "conf"
    own.write_text(f"SET x {tmp_path}/y\n")
    host.put(own)
    assert (scratch / str(own)[1:]).read_text() == f"SET x {scratch}{tmp_path}/y\n"
    with (tmp_path / "out").open("wb") as out:
        program = host.popen(
            ["sh", "-c", "cat $0; echo $V; exit 3", str(own)], stdout=out, env={"V": "v"}
        )
    assert program.wait(timeout=20) == 3
    assert (tmp_path / "out").read_text() == f"SET x {scratch}{tmp_path}/y\nv\n"
    asked = host.popen(["echo", "hello"], stdout=subprocess.PIPE)
    assert asked.communicate(timeout=20) == (b"hello\n", b"")
    log = tmp_path / "log.txt"
    host.mirror(log)
    sleeper = host.popen(["sh", "-c", 'echo on > "$0"; sleep 1000', str(log)])
    deadline = time.monotonic() + 20
    while not host.contents(host.there(str(log))) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert sleeper.poll() is None
    sleeper.send_signal(signal.SIGTERM)
    assert sleeper.wait(timeout=20) == -signal.SIGTERM
    assert log.read_text() == "on\n"
    assert host.run(["ip", "-o", "link"]).stdout.count("\n") == 1, "a namespace with lo alone"
    with pytest.raises(NetworkError, match="p .127.0.0.1.: .*no-such-program"):
        host.run(["no-such-program"])
    assert abs(host.clock().offset_ms) <= host.clock().error_ms + 5


@pytest.mark.root
@needs_root
def test_a_machine_with_other_programs_is_refused(host: Host, tmp_path: Path) -> None:
    host.built_in(ROOT / "build")
    with pytest.raises(NetworkError) as caught:
        host.built_in(tmp_path)  # without programs
    assert str(caught.value).startswith("p (127.0.0.1): found other C programs (digest ")
    assert str(caught.value).endswith(
        "; valid: the same as here (--install copies and builds them)"
    )


@pytest.mark.root
@needs_root
def test_an_agent_whose_connection_ends_leaves_nothing(host: Host) -> None:
    scratch = Path(host.scratch)
    sleeper = host.popen(["sleep", "1000"])
    assert scratch.exists() and Path(f"/proc/{sleeper.pid}").exists()
    host.close()
    assert not scratch.exists() and not Path(f"/proc/{sleeper.pid}").exists()


@pytest.mark.parametrize("answer", ["Welcome to p!", "[]", "{}", "7"])
def test_a_shell_that_prints_more_than_the_agent(
    answer: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    argv = ["sh", "-c", f"echo '{answer}'; cat >/dev/null"]
    monkeypatch.setattr(connection, "ssh_argv", lambda _host: argv)
    found = Connection(RemoteHost("p", "127.0.0.1", "127.0.0.1"), tmp_path / "log")
    try:
        with pytest.raises(NetworkError, match=r"^p \(127.0.0.1\): found b.*; valid: the agent's"):
            found.call("hello")
    finally:
        found.close()


@pytest.mark.parametrize("said", ["", '{"is": '])
def test_a_silent_agent_is_given_up(
    said: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    argv = ["sh", "-c", f"printf '{said}'; cat >/dev/null"]
    monkeypatch.setattr(connection, "ssh_argv", lambda _host: argv)
    monkeypatch.setattr(channel, "SILENT_S", 0.5)
    found = Connection(RemoteHost("p", "127.0.0.1", "127.0.0.1"), tmp_path / "log")
    try:
        with pytest.raises(NetworkError, match="p .127.0.0.1.: no answer to 'hello' within 0.5 s"):
            found.call("hello")
        with pytest.raises(NetworkError, match="lost the connection"):
            found.call("hello")
    finally:
        found.close()
