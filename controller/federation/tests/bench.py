# SPDX-License-Identifier: Apache-2.0
"""Controller processes of several domains, and the networks of networks.py as Open vSwitch's
bridges: patch ports are links within and between domains.

Messages from one domain's controller to another pass through a proxy of the test, which may kill a
controller just before a message arrives, or just before its answer goes back.
"""

from __future__ import annotations

import json
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

from controller.api.path_client import PathClient, PathClientError
from controller.federation.peers import DOMAIN_HEADER
from controller.tests import process
from controller.tests.switches import Bridge, PatchPort, Switches
from topologies.model.network import Network

FIRST_PORT = 16653
HOSTS_PORT = 9
_COUNTERS = re.compile(r"(duration|n_packets|n_bytes|idle_age|hard_age)=[^ ,]+,? ?")


class Proxy:
    """`hook(kind, phase)` is called with phase 'before' and 'after' for each message; if it returns
    False, the message gets no further, and the connection is closed."""

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


class Bench(Switches):
    def __init__(self, directory: Path, network: Network) -> None:
        super().__init__(directory, "fedtest")
        self.network = network
        self.domain_of = {
            s.name: s.domain for s in network.switches if not s.domain.startswith("e")
        }
        self.domains = sorted(set(self.domain_of.values()))
        self.controllers: dict[str, subprocess.Popen[str]] = {}
        self.proxies: dict[tuple[str, str], Proxy] = {}
        (directory / "network.json").write_text(network.to_json())

    # -- making

    def open(self) -> None:
        self.open_switches(
            (
                Bridge(s.name, s.dpid, HOSTS_PORT, (f"tcp:127.0.0.1:{self._port(s.domain)}",))
                for s in self.network.switches
                if s.name in self.domain_of
            ),
            (
                PatchPort(here.node, here.interface, here.number, there.interface)
                for link in self.network.links
                if link.a.node in self.domain_of and link.b.node in self.domain_of
                for here, there in ((link.a, link.b), (link.b, link.a))
            ),
            controller={"max_backoff": "1000"},
        )
        for source in self.domains:
            self._make_peers(source)
        for domain in self.domains:
            self.start(domain)
        for domain in self.domains:
            self.wait_ready(domain)

    def _port(self, domain: str) -> int:
        return FIRST_PORT + self.domains.index(domain)

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
        self.close_switches()

    # -- controllers

    def _socket(self, domain: str) -> Path:
        return self.directory / f"rest-{domain}.sock"

    def start(self, domain: str) -> None:
        self.controllers[domain] = process.start(
            [
                *("--network", str(self.directory / "network.json"), "--domain", domain),
                *("--of-listen", f"127.0.0.1:{self._port(domain)}"),
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
            except PathClientError:
                return False

        process.wait_until(f"the switches of {domain} are ready", ready, 60)

    def kill(self, domain: str) -> None:
        """Do kill -9 on the controller itself; its sockets stay behind."""
        self.controllers[domain].send_signal(signal.SIGKILL)
        self.controllers[domain].wait(timeout=20)

    def restart(self, domain: str) -> None:
        self.controllers[domain].communicate()
        self.start(domain)
        self.wait_ready(domain)

    def client(self, domain: str) -> PathClient:
        return PathClient(self._socket(domain), timeout_s=60)

    def get(self, domain: str, url: str) -> object:
        with httpx.Client(transport=httpx.HTTPTransport(uds=str(self._socket(domain)))) as client:
            return client.get(f"http://controller{url}", timeout=20).json()

    # -- switches

    def state(self) -> dict[str, list[str]]:
        """Return all flows, groups and meters of every switch, without counters."""
        result: dict[str, list[str]] = {}
        for switch in self.domain_of:
            lines: list[str] = []
            for what in ("flows", "groups", "meters"):
                lines += sorted(_COUNTERS.sub("", x.strip()) for x in self.dump(what, switch)[1:])
            result[switch] = lines
        return result

    def wait_for_state(self, expected: dict[str, list[str]], limit_s: float = 60) -> None:
        until = time.monotonic() + limit_s
        while (found := self.state()) != expected:
            if time.monotonic() > until:
                assert found == expected
            time.sleep(0.1)
