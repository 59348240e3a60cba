# SPDX-License-Identifier: Apache-2.0
"""The controllers of the other domains: where they are, and how a message gets there.

`--peers FILE` (YAML), a block for each domain:

    peers:
      geant: { at: unix:/run/downpour/geant.sock }
      esnet:
        at: [https://pce1.example.net:8443, https://pce2.example.net:8443]   # active, standby
        token_file: esnet.token
        ca_file: ca.pem
"""

from __future__ import annotations

import json
import ssl
import time
from collections.abc import Container
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from controller.federation.values import (
    FederationError,
    Reply,
    Request,
    read_reply,
    request_json,
)
from controller.service.workgroups import read_token
from topologies.model.document import (
    Document,
    Place,
    TopologyErrors,
    read_document,
)

if TYPE_CHECKING:
    import httpx  # import takes 0.1 s, and most controllers have no peers

MESSAGES_URL = "/v1/domains/messages"
# Names the sender if no token does: on a Unix socket, which only its owner can open.
DOMAIN_HEADER = "downpour-domain"
CONNECT_TIMEOUT_S = 3.0
MAX_REPLY_BYTES = 256 * 1024
_KEYS = ("at", "token_file", "ca_file")


class PeerErrors(Exception):
    """All mistakes in a peers file, one per line: `file:line: found ...; valid: ...`."""


class NoReply(Exception):
    """The peer did not answer, and may or may not have acted. The text says what happened."""


@dataclass(frozen=True)
class PeerAddress:
    """`at`: `unix:PATH`, `http://HOST:PORT` or `https://HOST:PORT`, in the order to try."""

    domain: str
    at: tuple[str, ...]
    token_file: Path | None = None
    ca_file: Path | None = None


def load_peers(path: Path, domains: Container[str], home: str) -> dict[str, PeerAddress]:
    """Read a peers file. Raises PeerErrors with every mistake. `domains`: all controller
    domains."""
    try:
        document = read_document(path, "a mapping 'peers'")
    except TopologyErrors as error:
        raise PeerErrors(str(error)) from None
    peers = _read(document, path.parent, domains, home)
    if document.errors:
        raise PeerErrors("\n".join(str(error) for error in sorted(set(document.errors))))
    return peers


def _read(
    document: Document, directory: Path, domains: Container[str], home: str
) -> dict[str, PeerAddress]:
    data = document.data
    if not isinstance(data, dict) or not isinstance(data.get("peers"), dict):
        document.report((), "no mapping 'peers'", "peers: {DOMAIN: {at: unix:PATH}}")
        return {}
    for key in data.keys() - {"peers"}:
        document.report((key,), f"key '{key}'", "peers")
    peers: dict[str, PeerAddress] = {}
    for name, block in data["peers"].items():
        place: Place = ("peers", str(name))
        if name == home or name not in domains:
            what = "the controller's own domain" if name == home else "no controller domain"
            document.report(place, f"'{name}', which is {what}", "another controller domain")
            continue
        if not isinstance(block, dict):
            document.report(place, f"{block!r}", f"a mapping with {', '.join(_KEYS)}")
            continue
        for key in block.keys() - set(_KEYS):
            document.report((*place, str(key)), f"key '{key}'", ", ".join(_KEYS))
        at = block.get("at")
        addresses = at if isinstance(at, list) else [at]
        for address in addresses:
            if not isinstance(address, str) or not address.startswith(
                ("unix:/", "http://", "https://")
            ):
                valid = "unix:/PATH, http://HOST:PORT or https://HOST:PORT"
                document.report((*place, "at"), f"at: {address}", valid)
        files: dict[str, Path | None] = {}
        for key in ("token_file", "ca_file"):
            value = block.get(key)
            files[key] = None if value is None else directory / str(value)
        if files["token_file"] is not None:
            try:
                read_token(files["token_file"])
            except ValueError as error:
                valid = "a file of mode 0600 with a token (e.g. of: openssl rand -hex 32)"
                document.report((*place, "token_file"), str(error), valid)
        peers[name] = PeerAddress(
            name, tuple(str(a) for a in addresses), files["token_file"], files["ca_file"]
        )
    return peers


class Peer:
    """The HTTP connection to a domain's controller. Thread-safe."""

    def __init__(self, home: str, address: PeerAddress) -> None:
        """Connect to the peer. Raises PeerErrors if a certificate or token cannot be read."""
        self.address = address
        headers = {DOMAIN_HEADER: home}
        try:
            if address.token_file is not None:
                headers["authorization"] = f"Bearer {read_token(address.token_file)}"
            self._clients = [(at, _client(at, headers, address.ca_file)) for at in address.at]
        except (OSError, ValueError) as error:
            raise PeerErrors(f"peer '{address.domain}': {error}") from error

    def exchange(self, request: Request, timeout_s: float) -> Reply:
        """Send a request and return the reply. Raises NoReply."""
        import httpx

        body = request_json(request)
        why: list[str] = []
        for at, client in self._clients:
            try:
                status, answer = _post(client, body, timeout_s)
                if status == httpx.codes.OK:
                    return read_reply(answer)
                why.append(f"{at}: HTTP {status}: {_detail(answer)}")
            except httpx.HTTPError as error:
                why.append(f"{at}: {error or type(error).__name__}")
            except FederationError as error:
                why.append(f"{at}: {error}")
        raise NoReply("; ".join(why))

    def close(self) -> None:
        """Close the connections."""
        for _, client in self._clients:
            client.close()


def _client(at: str, headers: dict[str, str], ca_file: Path | None) -> httpx.Client:
    import httpx

    if at.startswith("unix:"):
        transport = httpx.HTTPTransport(uds=at.removeprefix("unix:"), verify=False)
        return httpx.Client(transport=transport, base_url="http://peer", headers=headers)
    verify: ssl.SSLContext | bool = True
    if ca_file is not None:
        verify = ssl.create_default_context(cafile=str(ca_file))
    return httpx.Client(base_url=at, headers=headers, verify=verify)


def _post(client: httpx.Client, body: bytes, timeout_s: float) -> tuple[int, bytes]:
    """Return status and body of the answer. Raises httpx.HTTPError, or FederationError if the
    answer is too long or too slow: a peer must not exhaust the memory."""
    import httpx

    until = time.monotonic() + timeout_s
    headers = {"content-type": "application/json", "accept-encoding": "identity"}
    timeout = httpx.Timeout(timeout_s, connect=CONNECT_TIMEOUT_S)
    with client.stream(
        "POST", MESSAGES_URL, content=body, headers=headers, timeout=timeout
    ) as response:
        answer = bytearray()
        for part in response.iter_raw():
            answer += part
            if len(answer) > MAX_REPLY_BYTES:
                raise FederationError(f"a reply of more than {MAX_REPLY_BYTES} bytes")
            if time.monotonic() > until:
                raise FederationError(f"no whole reply within {timeout_s:g} s")
        return response.status_code, bytes(answer)


def _detail(answer: bytes) -> str:
    """Return a problem's detail, or the beginning of any other answer."""
    try:
        return str(json.loads(answer)["detail"])[:300]
    except (ValueError, KeyError, TypeError, RecursionError):
        return answer[:200].decode("utf-8", "backslashreplace")
