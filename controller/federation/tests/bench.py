# SPDX-License-Identifier: Apache-2.0
"""Controller processes of several domains and a real Open vSwitch (userspace datapath) in a
namespace of their own: the networks of networks.py, patch ports as links within and between
domains, veths as access ports whose other ends are packet sockets of the test.

What a domain's controller sends to another passes through a proxy of the test, which may kill a
controller just before a message arrives, or just before its answer goes back.
"""

from __future__ import annotations

import json
import os
import re
import signal
import socketserver
import subprocess
import threading
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler
from pathlib import Path

import httpx

from controller.client import PathService, PathServiceError
from controller.federation.peers import DOMAIN_HEADER
from controller.tests import process
from controller.tests.ovs_bench import PLAIN_TYPE, receive, run, sockets_in
from topologies.model import Network

FIRST_PORT = 16653
HOSTS_PORT = 9
_COUNTERS = re.compile(r"(duration|n_packets|n_bytes|idle_age|hard_age)=[^ ,]+,? ?")


class Proxy:
    """`hook(kind, phase)` is called with phase 'before' and 'after' for each message; False: it
    gets no further, and the connection is closed."""

    def __init__(self, path: Path, target: Path) -> None:
        self.hook: Callable[[str, str], bool] = lambda _kind, _phase: True
        proxy = self
        self._client = httpx.Client(transport=httpx.HTTPTransport(uds=str(target)))

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                kind = json.loads(body)["kind"]
                self.close_connection = True
                if not proxy.hook(kind, "before"):
                    return
                headers = {DOMAIN_HEADER: self.headers[DOMAIN_HEADER]}
                try:
                    url = f"http://peer{self.path}"
                    answer = proxy._client.post(url, content=body, headers=headers, timeout=60)
                except httpx.HTTPError:
                    return
                if not proxy.hook(kind, "after"):
                    return
                self.close_connection = False
                self.send_response(answer.status_code)
                self.send_header("content-length", str(len(answer.content)))
                self.end_headers()
                self.wfile.write(answer.content)

            def log_message(self, format: str, *args: object) -> None:  # noqa: A002
                pass

            def address_string(self) -> str:
                return "unix"

        class Server(socketserver.ThreadingUnixStreamServer):
            daemon_threads = True

            def handle_error(self, request: object, client_address: object) -> None:
                pass  # a controller that was killed does not read its answer

        self._server = Server(str(path), Handler)
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._client.close()


class Bench:
    def __init__(self, directory: Path, network: Network) -> None:
        self.directory = directory
        self.network = network
        self.domain_of = {
            s.name: s.domain for s in network.switches if not s.domain.startswith("e")
        }
        self.domains = sorted(set(self.domain_of.values()))
        self.namespace = f"fedtest-{os.getpid()}"
        self.inside = ["nsenter", f"--net=/run/netns/{self.namespace}", "--"]
        variables = ("OVS_RUNDIR", "OVS_LOGDIR", "OVS_DBDIR")
        self.env = {**os.environ, **dict.fromkeys(variables, str(directory))}
        self.daemons: list[subprocess.Popen[bytes]] = []
        self.controllers: dict[str, subprocess.Popen[str]] = {}
        self.proxies: dict[tuple[str, str], Proxy] = {}
        self.counter = 0
        (directory / "network.json").write_text(network.to_json())

    # -- making

    def open(self) -> None:
        run("ip", "netns", "add", self.namespace)
        run("ip", "-n", self.namespace, "link", "set", "lo", "up")
        for switch in self.domain_of:
            near, far = f"{switch}-p{HOSTS_PORT}", f"x-{switch}"
            run("ip", "-n", self.namespace, "link", "add", near, "type", "veth", "peer", far)
            for interface in (near, far):
                run("ip", "-n", self.namespace, "link", "set", interface, "up")
        database = self.directory / "conf.db"
        remote = f"unix:{self.directory}/db.sock"
        run("ovsdb-tool", "create", str(database), "/usr/share/openvswitch/vswitch.ovsschema")
        for argv in (
            ["ovsdb-server", str(database), f"--remote=p{remote}"],
            ["ovs-vswitchd", remote],
        ):
            name = argv[0]
            argv += [f"--pidfile={self.directory}/{name}.pid", "-vconsole:off"]
            argv += [f"--log-file={self.directory}/{name}.log"]
            self.daemons.append(subprocess.Popen([*self.inside, *argv], env=self.env))
            process.wait_until(name, (self.directory / f"{name}.pid").exists)
        self._vsctl("init")
        self._make_switches()
        names = [f"x-{switch}" for switch in self.domain_of]
        self.sockets = sockets_in(self.namespace, names)
        for source in self.domains:
            self._make_peers(source)
        for domain in self.domains:
            self.start(domain)
        for domain in self.domains:
            self.wait_ready(domain)

    def _make_switches(self) -> None:
        arguments: list[str] = []
        for switch in self.network.switches:
            if switch.name not in self.domain_of:
                continue
            port = FIRST_PORT + self.domains.index(switch.domain)
            arguments += ["--", "add-br", switch.name]
            arguments += ["--", "set", "bridge", switch.name, "datapath_type=netdev"]
            arguments += ["fail_mode=secure", "protocols=OpenFlow13"]
            arguments += [f"other_config:datapath-id={switch.dpid:016x}"]
            target = f'target="tcp:127.0.0.1:{port}"'
            arguments += ["--", f"--id=@c-{switch.name}", "create", "Controller", target]
            arguments += ["max_backoff=1000", "--", "set", "bridge", switch.name]
            arguments += [f"controller=@c-{switch.name}"]
            near = f"{switch.name}-p{HOSTS_PORT}"
            arguments += ["--", "add-port", switch.name, near]
            arguments += ["--", "set", "interface", near, f"ofport_request={HOSTS_PORT}"]
        for link in self.network.links:
            if link.a.node in self.domain_of and link.b.node in self.domain_of:
                for here, there in ((link.a, link.b), (link.b, link.a)):
                    arguments += ["--", "add-port", here.node, here.interface]
                    arguments += ["--", "set", "interface", here.interface, "type=patch"]
                    arguments += [f"options:peer={there.interface}"]
                    arguments += [f"ofport_request={here.number}"]
        self._vsctl(*arguments[1:])

    def _make_peers(self, source: str) -> None:
        lines = ["peers:"]
        for target in self.domains:
            if target != source:
                path = self.directory / f"{source}-{target}.sock"
                self.proxies[source, target] = Proxy(path, self._socket(target))
                lines.append(f"  {target}: {{ at: unix:{path} }}")
        (self.directory / f"peers-{source}.yaml").write_text("\n".join(lines) + "\n")

    def close(self) -> None:
        for proxy in self.proxies.values():
            proxy.close()
        for controller in self.controllers.values():
            controller.kill()
            controller.communicate()
        for packet in getattr(self, "sockets", {}).values():
            packet.close()
        for daemon in reversed(self.daemons):
            daemon.terminate()
            daemon.wait(timeout=10)
        subprocess.run(["ip", "netns", "del", self.namespace], check=False)

    # -- controllers

    def _socket(self, domain: str) -> Path:
        return self.directory / f"rest-{domain}.sock"

    def start(self, domain: str) -> None:
        port = FIRST_PORT + self.domains.index(domain)
        self.controllers[domain] = process.start(
            [
                *("--network", str(self.directory / "network.json"), "--domain", domain),
                *("--of-listen", f"127.0.0.1:{port}"),
                *("--rest-socket", str(self._socket(domain))),
                *("--store", str(self.directory / f"{domain}.sqlite")),
                *("--peers", str(self.directory / f"peers-{domain}.yaml")),
                *("--log", str(self.directory / f"controller-{domain}.log")),
            ],
            prefix=self.inside,
        )

    def wait_ready(self, domain: str) -> None:
        def ready() -> bool:
            controller = self.controllers[domain]
            assert controller.poll() is None, controller.communicate()
            try:
                with self.client(domain) as client:
                    return all(client.health()["switches"].values())
            except PathServiceError:
                return False

        process.wait_until(f"the switches of {domain} are ready", ready, 60)

    def kill(self, domain: str) -> None:
        """kill -9 of the controller itself; its sockets stay behind."""
        self.controllers[domain].send_signal(signal.SIGKILL)
        self.controllers[domain].wait(timeout=20)

    def restart(self, domain: str) -> None:
        self.controllers[domain].communicate()
        self.start(domain)
        self.wait_ready(domain)

    def client(self, domain: str) -> PathService:
        return PathService(self._socket(domain), timeout_s=60)

    def get(self, domain: str, url: str) -> object:
        with httpx.Client(transport=httpx.HTTPTransport(uds=str(self._socket(domain)))) as client:
            return client.get(f"http://controller{url}", timeout=20).json()

    # -- switches

    def _vsctl(self, *arguments: str) -> str:
        remote = f"--db=unix:{self.directory}/db.sock"
        return run("ovs-vsctl", "--timeout=20", remote, *arguments, env=self.env)

    def state(self) -> dict[str, list[str]]:
        """All flows, groups and meters of every switch, without counters."""
        result: dict[str, list[str]] = {}
        for switch in self.domain_of:
            management = f"unix:{self.directory}/{switch}.mgmt"
            lines: list[str] = []
            for what in ("flows", "groups", "meters"):
                text = run(
                    "ovs-ofctl", "-O", "OpenFlow13", f"dump-{what}", management, env=self.env
                )
                lines += sorted(_COUNTERS.sub("", line.strip()) for line in text.splitlines()[1:])
            result[switch] = lines
        return result

    def wait_for_state(self, expected: dict[str, list[str]], limit_s: float = 60) -> None:
        until = time.monotonic() + limit_s
        while (found := self.state()) != expected:
            if time.monotonic() > until:
                assert found == expected
            time.sleep(0.1)

    # -- frames

    def deliver(self, switch: str, dst: str, src: str, vlan: int) -> list[tuple[str, int | None]]:
        """(switch, VLAN id) of every copy that comes out of an access port, sorted."""
        self.counter += 1
        marker = f"downpour {self.counter:08d}".encode().ljust(60, b".")
        tag = b"\x81\x00" + vlan.to_bytes(2, "big") + PLAIN_TYPE.to_bytes(2, "big")
        raw = bytes.fromhex((dst + src).replace(":", ""))
        self.sockets[f"x-{switch}"].send(raw + tag + marker)
        result: list[tuple[str, int | None]] = []
        quiet_until = time.monotonic() + 0.3
        while time.monotonic() < quiet_until:
            for name, packet in self.sockets.items():
                while (seen := receive(packet)) is not None:
                    if seen.payload.startswith(marker):
                        result.append((name.removeprefix("x-"), seen.vlan))
                        quiet_until = time.monotonic() + 0.3
            time.sleep(0.005)
        return sorted(result)

    def expect(
        self, expected: list[tuple[str, int | None]], switch: str, dst: str, src: str, vlan: int
    ) -> None:
        """Again for up to 5 s: cached data path flows follow the tables a little later."""
        until = time.monotonic() + 5
        while (got := self.deliver(switch, dst, src, vlan)) != expected:
            assert time.monotonic() < until, f"{got} instead of {expected}"
