# SPDX-License-Identifier: Apache-2.0
"""The peers file with every kind of mistake, and messages between domains over TCP with tokens."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path

import pytest
from fastapi.testclient import TestClient

from common.http.server import Server
from controller.api.auth import Access
from controller.api.listening import listen_tcp
from controller.api.rest import make_app
from controller.federation.joining import connect, join
from controller.federation.local import problem_of
from controller.federation.peers import NoReply, Peer, PeerAddress, PeerErrors, load_peers
from controller.federation.tests.networks import chain, endpoint, mac
from controller.federation.values import (
    Connection,
    Done,
    FederationError,
    Refused,
    Release,
    Reserve,
    Segment,
    Unknown,
    read_reply,
    read_request,
    reply_json,
    request_json,
)
from controller.paths.core import Endpoint
from controller.service.problems import ServiceError
from controller.service.service import PathService
from controller.service.store import Store
from controller.service.workgroups import Workgroup, Workgroups
from controller.service.workgroups import load as load_workgroups

TOKEN_OF_A, TOKEN_OF_C, TOKEN_OF_USER = ("a" * 32, "c" * 32, "u" * 32)
SEGMENT = Segment(Endpoint("b1", 2, 200, (mac("a1", 1),)), 1_000_000, (endpoint("b2"),))


def token_file(directory: Path, name: str, token: str) -> Path:
    path = directory / f"{name}.token"
    path.write_text(token)
    path.chmod(0o600)
    return path


def test_a_peers_file(tmp_path: Path) -> None:
    token_file(tmp_path, "c", TOKEN_OF_C)
    path = tmp_path / "peers.yaml"
    path.write_text(
        "peers:\n"
        "  b: { at: unix:/run/b.sock }\n"
        "  c: { at: [https://one:1, https://two:2], token_file: c.token, ca_file: ca.pem }\n"
    )
    assert load_peers(path, "abc", "a") == {
        "b": PeerAddress("b", ("unix:/run/b.sock",)),
        "c": PeerAddress(
            "c", ("https://one:1", "https://two:2"), tmp_path / "c.token", tmp_path / "ca.pem"
        ),
    }


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("[]", "1: found no mapping 'peers'; valid: peers: {DOMAIN: {at: unix:PATH}}"),
        ("peers: {}\nmore: 1", "2: found key 'more'; valid: peers"),
        (
            "peers:\n  a: { at: unix:/x }",
            "2: found 'a', which is the controller's own domain; valid: another controller domain",
        ),
        ("peers:\n  z: { at: unix:/x }", "2: found 'z', which is no controller domain; valid: "),
        ("peers:\n  b: unix:/x", "2: found 'unix:/x'; valid: a mapping with at, token_file, ca"),
        ("peers:\n  b: { at: host:1 }", "2: found at: host:1; valid: unix:/PATH, http://HOST:PORT"),
        ("peers:\n  b: {}", "2: found at: None; valid: unix:/PATH"),
        ("peers:\n  b: { at: unix:/x, port: 1 }", "2: found key 'port'; valid: at, token_file"),
        ("peers:\n  b: { at: unix:/x, token_file: no }", "no: No such file or directory; valid: "),
    ],
)
def test_mistakes_of_a_peers_file(tmp_path: Path, text: str, error: str) -> None:
    path = tmp_path / "peers.yaml"
    path.write_text(text)
    with pytest.raises(PeerErrors) as caught:
        load_peers(path, "abc", "a")
    assert error in str(caught.value)


def test_a_token_that_others_can_read_is_refused_and_not_quoted(tmp_path: Path) -> None:
    token_file(tmp_path, "b", TOKEN_OF_A).chmod(0o644)
    path = tmp_path / "peers.yaml"
    path.write_text("peers:\n  b: { at: unix:/x, token_file: b.token }")
    with pytest.raises(PeerErrors, match="others may read or write it") as caught:
        load_peers(path, "abc", "a")
    assert TOKEN_OF_A not in str(caught.value)


def test_nobody_there() -> None:
    peer = Peer("a", PeerAddress("b", ("unix:/nowhere/b.sock", "http://127.0.0.1:9")))
    with pytest.raises(NoReply) as caught:
        peer.exchange(Release(Connection("a", "P"), 1, None), 2)
    assert "unix:/nowhere/b.sock: " in str(caught.value)
    assert "http://127.0.0.1:9: " in str(caught.value)
    peer.close()


@pytest.fixture
def address(tmp_path: Path) -> Iterator[str]:
    """Domain b, served over TCP; its workgroups are the peers a and c, and a user."""

    def digest(token: str) -> str:
        return hashlib.sha256(token.encode()).hexdigest()

    groups = tmp_path / "workgroups.yaml"
    groups.write_text(
        "workgroups:\n"
        f"  - {{ name: a, peer: true, token_sha256: '{digest(TOKEN_OF_A)}',\n"
        "      endpoints: [{ switch: b2, port: 9, vlans: '101-102' }] }\n"
        f"  - {{ name: c, peer: true, token_sha256: '{digest(TOKEN_OF_C)}' }}\n"
        f"  - {{ name: user, token_sha256: '{digest(TOKEN_OF_USER)}' }}\n"
    )
    network = chain("abc")
    store = Store(None, network.name, "b")
    own = PathService(network, "b", lambda _changes: {}, lambda _switches: {}, store=store)
    joined = join(network, "b", own, store, connect("b", {}))
    listener = listen_tcp("--rest-listen", "127.0.0.1", 0)
    port = listener.getsockname()[1]
    app = make_app(joined.service, Access(load_workgroups(groups)), [joined.router])
    server = Server(app, [listener])
    joined.federation.start()
    server.start()
    yield f"http://127.0.0.1:{port}"
    server.stop(5)
    joined.federation.stop()


def peer_at(address: str, directory: Path, token: str | None, home: str) -> Peer:
    file = token_file(directory, home, token) if token is not None else None
    return Peer(home, PeerAddress("b", (address,), file))


@pytest.mark.slow
def test_a_token_says_who_sends(address: str, tmp_path: Path) -> None:
    connection = Connection("a", "P")
    reserve = Reserve(connection, 1, SEGMENT, 10.0)
    a = peer_at(address, tmp_path, TOKEN_OF_A, "a")
    assert a.exchange(reserve, 10) == Done()
    # The header does not make a user a peer, or one peer another.
    for token, why in ((TOKEN_OF_C, "HTTP 403"), (TOKEN_OF_USER, "HTTP 403"), (None, "HTTP 401")):
        with pytest.raises(NoReply, match=why):
            peer_at(address, tmp_path, token, "a").exchange(Release(connection, 2, None), 10)
    assert a.exchange(Release(connection, 2, None), 10) == Done()


def test_a_peer_uses_only_the_endpoints_that_it_was_granted(address: str, tmp_path: Path) -> None:
    a = peer_at(address, tmp_path, TOKEN_OF_A, "a")
    wrong = Segment(SEGMENT.root, 1_000_000, (endpoint("b2", 3),))
    reply = a.exchange(Reserve(Connection("a", "P"), 1, wrong, 10.0), 10)
    assert isinstance(reply, Refused)
    assert reply.problem.status == 403
    assert "valid VLANs there: 101-102" in reply.problem.detail
    # Through to another domain: hand-offs are for all.
    through = Segment(SEGMENT.root, 1_000_000, (Endpoint("b2", 2, 203, (mac("c1", 1),)),))
    assert a.exchange(Reserve(Connection("a", "P"), 2, through, 10.0), 10) == Done()


@pytest.mark.parametrize(
    ("root", "leaf", "status", "why"),
    [
        (endpoint("b1"), endpoint("b2"), 422, "b1:9:101 is not a hand-off to another domain; "),
        (Endpoint("b1", 2, 199), endpoint("b2"), 422, "valid: 200..205"),
        (SEGMENT.root, Endpoint("b2", 2, 500), 422, "VLAN id 500 on hand-off link 'b2:c1'"),
        (Endpoint("c1", 2, 200), endpoint("b2"), 422, "switch 'c1' is not in domain 'b'"),
        (SEGMENT.root, endpoint("c1"), 403, "may not use VLAN 101 on port 9 of switch 'c1'"),
    ],
)
def test_segments_that_cannot_be(
    address: str, tmp_path: Path, root: Endpoint, leaf: Endpoint, status: int, why: str
) -> None:
    a = peer_at(address, tmp_path, TOKEN_OF_A, "a")
    reply = a.exchange(Reserve(Connection("a", "P"), 1, Segment(root, 1000, (leaf,)), 9.0), 10)
    assert isinstance(reply, Refused)
    assert reply.problem.status == status
    assert why in reply.problem.detail


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ((b'"vlan":200', b'"vlan":0'), "VLAN id 0 of b1:2:0 is not within 1..4094"),
        ((mac("a1", 1).encode(), b"01:00:00:00:00:01"), "valid: a unicast address"),
        ((mac("a1", 1).encode(), b"nonsense"), "valid: a unicast address"),
        ((b'"version":1', b'"version":0'), "version"),
        ((b'"hold_s":10.0', b'"hold_s":1e9'), "hold_s"),
        ((b'"rate_bps":1000000', b'"rate_bps":-1'), "rate_bps"),
        ((b'"kind":"reserve"', b'"kind":"obey"'), "kind"),
        ((b'"switch":"b2","port":9,"vlan":101', b'"switch":"b1","port":2,"vlan":200'), "twice"),
        ((b"{", b"["), "Invalid JSON"),
    ],
)
def test_broken_requests(change: tuple[bytes, bytes], why: str) -> None:
    body = request_json(Reserve(Connection("a", "P"), 1, SEGMENT, 10.0))
    assert read_request(body) == Reserve(Connection("a", "P"), 1, SEGMENT, 10.0)
    assert change[0] in body
    with pytest.raises(FederationError, match=why):
        read_request(body.replace(*change))


def test_replies_survive_the_wire() -> None:
    for reply in (Done(), Unknown()):
        assert read_reply(reply_json(reply)) == reply
    with pytest.raises(FederationError):
        read_reply(b'{"kind":"maybe"}')


def test_a_peer_is_told_what_anybody_may_read() -> None:
    public = ServiceError(409, "hold-exists", "Hold exists", "the hold id 'h' is in use")
    problem = ServiceError(409, "hold-exists", "Hold exists", "hold 'h' of path 'secretpath'")
    assert problem_of(problem).detail == "hold 'h' of path 'secretpath'"
    assert problem_of(problem.only_for("unidata", public)).detail == "the hold id 'h' is in use"


def test_a_hidden_path_has_the_answer_of_a_missing_one() -> None:
    network = chain("abc")
    store = Store(None, network.name, "b")
    own = PathService(network, "b", lambda _changes: {}, lambda _switches: {}, store=store)
    joined = join(network, "b", own, store, connect("b", {}))
    user = Workgroup("user", (hashlib.sha256(TOKEN_OF_USER.encode()).digest(),))
    app = make_app(joined.service, Access(Workgroups([user])), [joined.router])
    own.create("NGRID", endpoint("b2", 9), 0, workgroup="other")
    http = TestClient(app, client=("192.0.2.1", 1))
    http.headers["authorization"] = f"Bearer {TOKEN_OF_USER}"
    hidden, missing = (http.get(f"/v1/domains/paths/{name}") for name in ("NGRID", "NGRIE"))
    assert hidden.status_code == missing.status_code == 404
    assert hidden.text.replace("NGRID", "NGRIE") == missing.text
