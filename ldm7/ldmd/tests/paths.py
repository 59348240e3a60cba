#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""ldmd and the path service: subscriptions make paths grow, their ends prune them; over loopback.

Usage: paths.py LDMD TOOLS_DIRECTORY [CASE...]. No privileges. The path service is path_fake.py.
Cases run side by side: each has a service and its own ldmd, and mostly waits for time-outs.
"""

from __future__ import annotations

import os
import signal
import ssl
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

from integration import cases_in
from path_fake import Answer, PathService, Request, problem
from wire import Daemon, Peer, call, expect, string

CASES_AT_ONCE = 4
OK, TIMEDOUT, INVAL, REFUSED, MCAST = 0, 3, 5, 8, 10  # LDM-6.13.17
EXP = 0x40000000
CREATE, LEAVES = "POST /v1/paths", "POST /v1/paths/EXP/leaves"
TOKEN = "secret-token-0123456789"
PATIENCE_S = 5  # longer than a busy machine lets the service in this process wait


def wait_for(what: str, condition: Callable[[], bool], timeout_s: float = 60) -> float:
    """How long it took."""
    start = time.monotonic()
    while not condition():
        if time.monotonic() > start + timeout_s:
            raise AssertionError(f"no {what} within {timeout_s:g} s")
        time.sleep(0.01)
    return time.monotonic() - start


class World:
    """A fake service, an ldmd with a MULTICAST entry, and subscribers that are bare connections."""

    def __init__(self, ldmd: Path, tools: Path, work: Path) -> None:
        self.ldmd, self.tools, self.work = ldmd, tools, work
        self.service = PathService()

    @contextmanager
    def publisher(self, where: str, settings: str = "") -> Iterator[Daemon]:
        conf = (
            "ALLOW EXP ^127[.]\nMULTICAST EXP 224.0.77.9:38899 127.0.0.1 24 101 s1 1\n"
            f"SET path.service {where}\nSET path.grace_s 1\n{settings}"
        )
        with TemporaryDirectory(dir=self.work) as directory:
            daemon = Daemon(self.ldmd, self.tools, Path(directory), conf, 16)
            try:
                yield daemon
                daemon.process.send_signal(signal.SIGTERM)
                ended = daemon.process.wait(20)
                expect(ended in (0, -signal.SIGKILL), f"exit status {ended}")
                expect(not (daemon.work / "stderr").read_text(), "something on stderr")
                expect(TOKEN not in daemon.log(), "the token is in the log")
            except BaseException:
                print(daemon.log()[-4000:], (daemon.work / "stderr").read_text()[:3000], sep="\n")
                print(*self.service.seen(), sep="\n")
                raise
            finally:
                daemon.process.kill()
                daemon.process.wait()
                daemon.errors.close()


def ask(daemon: Daemon, switch: str, port: str, vlan: int) -> Peer:
    peer = daemon.connect()
    peer.sock.settimeout(120)
    body = struct.pack(">I", EXP) + string(switch.encode()) + string(port.encode())
    peer.sock.sendall(call(7, 1, body + struct.pack(">I", vlan)))
    return peer


def status(peer: Peer) -> int:
    reply = peer.record()
    expect(reply[:24] == struct.pack(">6I", 7, 1, 0, 0, 0, 0), f"reply {reply.hex()}")
    return int(struct.unpack(">I", reply[24:28])[0])


def process_ids(daemon: Daemon, name: str) -> list[int]:
    children = Path(f"/proc/{daemon.process.pid}/task/{daemon.process.pid}/children")
    found = []
    for pid in children.read_text().split():
        with suppress(FileNotFoundError, ProcessLookupError):  # it has ended meanwhile
            if Path(f"/proc/{pid}/comm").read_text().strip() == name:
                found.append(int(pid))
    return found


def case_grows_and_shrinks(w: World) -> None:
    """The path from the start; a leaf per endpoint, from its first subscriber to its last."""
    service = w.service
    token = w.work / "token"
    token.write_text(TOKEN + "\n")
    token.chmod(0o600)
    where = service.listen_unix(w.work / "sock")
    settings = f"SET path.token_file {token}\nSET path.rate_bps 30000000\n"
    with w.publisher(where, settings) as daemon:
        wait_for("path", lambda: "EXP" in service.paths)
        root = {"switch": "s1", "port": 1, "vlan": 101}
        want = {"name": "EXP", "root": root, "rate_bps": 30_000_000}
        expect(service.requests[0].body == want, f"created by {service.requests[0].body}")
        first = ask(daemon, "s2", "7", 202)
        expect(status(first) == OK, "first subscriber")
        expect(service.leaves() == [("s2", 7, 202)], f"leaves {service.leaves()}")
        second = ask(daemon, "s2", "7", 202)
        expect(status(second) == OK, "second subscriber")
        third = ask(daemon, "s/3", "9", 203)
        expect(status(third) == OK, "third subscriber")
        expect(service.seen() == [CREATE, LEAVES, LEAVES], f"requests {service.seen()}")
        dummy = ask(daemon, "dummy", "dummy", 0)
        expect(status(dummy) == OK, "subscriber without an endpoint")
        first.sock.close()
        time.sleep(0.3)
        expect(len(service.leaves()) == 2, "the leaf went with the first of two")
        second.sock.close()
        took = wait_for("prune", lambda: service.leaves() == [("s/3", 9, 203)])
        print(f"# pruned {took * 1000:.0f} ms after the connection was closed")
        wait_for("two subscribers left", lambda: len(process_ids(daemon, "up7")) == 2)
        for pid in process_ids(daemon, "up7"):
            os.kill(pid, signal.SIGKILL)
        wait_for("prune after kill -9 of up7", lambda: service.leaves() == [])
        expect("DELETE /v1/paths/EXP/leaves/s%2F3/9/203" in service.seen(), "not encoded")
        fourth = ask(daemon, "s2", "7", 202)
        expect(status(fourth) == OK, "subscribed again")
    expect(service.paths == {}, f"left behind: {service.paths}")
    expect(service.seen()[-1] == "DELETE /v1/paths/EXP", f"requests {service.seen()[-2:]}")
    tokens = {request.token for request in service.requests}
    expect(tokens == {f"Bearer {TOKEN}"}, f"tokens {tokens}")


def case_answers(w: World) -> None:
    """Each answer of the service as the subscriber sees it."""
    service = w.service
    where = service.listen_tcp()
    with w.publisher(where, "SET path.timeout_s 6\n") as daemon:
        wait_for("path", lambda: "EXP" in service.paths)
        answers: list[Answer | None] = []

        def next_answer(request: Request) -> Answer | None:
            is_leaf = str(request) == LEAVES
            return answers.pop(0) if is_leaf and answers else None

        service.override = next_answer
        busy = problem(429, "too-many", **{"Retry-After": "1"})
        for given, want in (
            ([problem(400, "bad")], REFUSED),
            ([problem(401, "token")], REFUSED),
            ([problem(403, "workgroup")], REFUSED),
            ([problem(404, "unknown-switch")], REFUSED),
            ([problem(409, "no-capacity")], REFUSED),
            ([problem(422, "invalid-endpoint")], REFUSED),
            ([Answer(302, None, {"Location": "http://127.0.0.1:1/"})], REFUSED),
            ([problem(409, "path-held")], OK),
            ([problem(502, "refused")], OK),
            ([problem(503, "standby"), problem(504, "unconfirmed")], OK),
            ([busy], OK),
            ([Answer(200, {"name": "EXP"})], OK),
            ([problem(504, "unconfirmed")] * 99, TIMEDOUT),
        ):
            answers[:] = given
            start = time.monotonic()
            peer = ask(daemon, "s2", "7", 202)
            got, took = status(peer), time.monotonic() - start
            expect(got == want, f"{given[0].status}: subscription status {got}, not {want}")
            expect(took < 40, f"{given[0].status}: {took:.1f} s")
            answers.clear()
            peer.sock.close()
            wait_for("prune", lambda: service.leaves() == [])
        expect(took > 5.9, f"TIMEDOUT after {took:.1f} s, not 6")
        expect('problem="No-Capacity: the detail of no-capacity"' in daemon.log(), "problem text")
        for switch, port, vlan in (
            ("s2", "et-1", 5),
            ("s2", "7", 0),
            ("s2", "7", 4095),
            ("s 2", "7", 5),
        ):
            expect(status(ask(daemon, switch, port, vlan)) == INVAL, f"{switch} {port} {vlan}")
        expect(service.leaves() == [], "a senseless endpoint is at the service")


def case_service_comes_and_goes(w: World) -> None:
    """Not there: TIMEDOUT; there: served; gone: who is subscribed stays so."""
    socket_path = w.work / "sock"
    with w.publisher(f"unix:{socket_path}", f"SET path.timeout_s {PATIENCE_S}\n") as daemon:
        start = time.monotonic()
        expect(status(ask(daemon, "s2", "7", 202)) == TIMEDOUT, "without a service")
        expect(
            time.monotonic() - start < 10 * PATIENCE_S,
            "waited far beyond path.timeout_s",
        )
        service = w.service
        service.listen_unix(socket_path)
        wait_for("path", lambda: "EXP" in service.paths)
        first = ask(daemon, "s2", "7", 202)
        expect(status(first) == OK, "with the service")
        service.override = lambda _request: problem(503, "standby")
        expect(status(ask(daemon, "s3", "8", 203)) == TIMEDOUT, "503 all the time")
        again = ask(daemon, "s2", "7", 202)
        expect(status(again) == OK, "an endpoint that is there needs no service")
        first.sock.settimeout(0.2)
        with suppress(TimeoutError):
            expect(first.sock.recv(1) != b"", "the first subscriber was cut off")
        service.override = lambda _request: None
        first.sock.close()
        again.sock.close()
        wait_for("prune when the service is back", lambda: service.leaves() == [])
        expect(daemon.log().count("Path service: no service:") <= 3, "a log line per attempt")
        service.override = lambda _request: problem(503, "standby")
        daemon.process.send_signal(signal.SIGTERM)
        daemon.process.wait(20)
        expect("remains there" in daemon.log(), "an unfinished end is not logged")


def case_standby(w: World) -> None:
    """Two services over the same store: the active one is found, also when that changes."""
    one, two = w.work / "one", w.work / "two"
    other = PathService()
    w.service.listen_unix(one)
    other.listen_unix(two)
    stands_by = problem(503, "standby")
    w.service.override = lambda _request: stands_by
    with w.publisher(f"unix:{one},unix:{two}", "SET path.timeout_s 20\n") as daemon:
        wait_for("path at the second", lambda: "EXP" in other.paths)
        first = ask(daemon, "s2", "7", 202)
        expect(status(first) == OK, "by the second")
        w.service.paths = other.paths  # the store
        other.override, w.service.override = (lambda _request: stands_by), (lambda _request: None)
        start = time.monotonic()
        second = ask(daemon, "s2", "8", 202)
        expect(status(second) == OK, "by the first, after the change")
        print(f"# a subscription during a take-over took {time.monotonic() - start:.2f} s")
        expect(len(w.service.leaves()) == 2, "both leaves")
    other.close()
    expect(w.service.paths == {}, "the path is gone")


def instead_of_leaves(answer: Answer, request: Request) -> Answer | None:
    return answer if str(request) == LEAVES else None


def case_hostile(w: World) -> None:
    """Answers without end, without sense, drop by drop: bounded, and over with the last one."""
    service = w.service
    where = service.listen_tcp()
    head = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
    answers = {
        "endless body": Answer(0, raw=head + b"\r\n" + b"[" * 65536),
        "endless headers": Answer(
            0, raw=b"HTTP/1.1 200 OK\r\n" + b"X-Y: " + b"z" * 60000 + b"\r\n"
        ),
        "no HTTP": Answer(0, raw=b"\x16\x03\x01" + bytes(4000)),
        "drop by drop": Answer(0, raw=head, drip_s=0.05),
        "deep JSON": Answer(0, raw=head + b"Content-Length: 900000\r\n\r\n" + b"[" * 900000),
    }
    with w.publisher(where, f"SET path.timeout_s {PATIENCE_S}\n") as daemon:
        wait_for("path", lambda: "EXP" in service.paths)
        (mldm,) = process_ids(daemon, "mldm")
        for name, answer in answers.items():
            service.override = partial(instead_of_leaves, answer)
            start = time.monotonic()
            got = status(ask(daemon, "s2", "7", 202))
            took = time.monotonic() - start
            expect(got == TIMEDOUT, f"{name}: status {got}")
            expect(took < 10 * PATIENCE_S, f"{name}: {took:.1f} s")
            service.override = lambda _request: None
        took = wait_for("answer", lambda: status(ask(daemon, "s2", "7", 202)) == OK)
        rss = [x for x in Path(f"/proc/{mldm}/status").read_text().splitlines() if "VmHWM" in x]
        peak_kb = int(rss[0].split()[1])
        print(
            f"# mldm's memory at most {peak_kb} kB; served {took:.1f} s after the last bad answer"
        )
        expect(peak_kb < 400_000, f"mldm used {peak_kb} kB")


def case_restarts(w: World) -> None:
    """kill -9 of mldm, of ldmd: what no subscriber came back for is gone, and only that."""
    service = w.service
    where = service.listen_unix(w.work / "sock")
    with w.publisher(where) as daemon:
        wait_for("path", lambda: "EXP" in service.paths)
        one, two = (ask(daemon, "s2", port, 202) for port in ("7", "8"))
        expect((status(one), status(two)) == (OK, OK), "subscribers")
        os.kill(process_ids(daemon, "mldm")[0], signal.SIGKILL)
        expect(one.closed() and two.closed(), "subscribers must subscribe again")
        expect(len(service.leaves()) == 2, "a leaf is missing")
        again = ask(daemon, "s2", "7", 202)
        expect(status(again) == OK, "after mldm's death")
        wait_for("prune of the other", lambda: service.leaves() == [("s2", 7, 202)])
        expect("DELETE /v1/paths/EXP/leaves/s2/7/202" not in service.seen(), "disturbed")
        service.paths["EXP"]["leaves"].clear()  # the service has lost its memory
        log = len(service.seen())
        os.kill(daemon.process.pid, signal.SIGKILL)
        daemon.process.wait()
        took = wait_for("prune after kill -9 of ldmd", lambda: service.paths == {})
        print(f"# path deleted {took * 1000:.0f} ms after kill -9 of ldmd")
        expect(service.seen()[log:] == ["DELETE /v1/paths/EXP"], f"{service.seen()[log:]}")


def case_tls_and_token(w: World) -> None:
    """https with the CA only; a token file that others may read is not used."""
    service = w.service
    key, certificate = w.work / "key.pem", w.work / "cert.pem"
    request = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2"]
    names = ["-subj", "/CN=path service", "-addext", "subjectAltName=IP:127.0.0.1"]
    files = ["-keyout", str(key), "-out", str(certificate)]
    subprocess.run([*request, *names, *files], check=True, capture_output=True)
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(certificate, key)
    where = service.listen_tcp(tls)
    token = w.work / "token"
    token.write_text(TOKEN)
    token.chmod(0o640)
    settings = f"SET path.timeout_s {PATIENCE_S}\nSET path.token_file {token}\n"
    with w.publisher(where, settings) as daemon:
        expect(status(ask(daemon, "s2", "7", 202)) == TIMEDOUT, "token for all")
        expect("has mode 0640; valid: 0600 or 0400" in daemon.log(), "why is not logged")
        token.chmod(0o600)
        wait_for("certificate", lambda: "ertificate" in daemon.log())  # verified before the token
        expect(status(ask(daemon, "s2", "7", 202)) == TIMEDOUT, "unknown CA")
    expect(service.requests == [], "the token was shown to a stranger")
    with w.publisher(where, f"{settings}SET path.ca_file {certificate}\n") as daemon:
        wait_for("path", lambda: "EXP" in service.paths)
        expect(status(ask(daemon, "s2", "7", 202)) == OK, "over TLS")
    expect(service.paths == {}, "not deleted over TLS")


CASES = cases_in(globals())


def run_case(name: str) -> None:
    ldmd, tools = Path(sys.argv[1]).resolve(), Path(sys.argv[2]).resolve()
    with TemporaryDirectory(prefix="ldmdpath") as work:
        world = World(ldmd, tools, Path(work))
        start = time.monotonic()
        try:
            CASES[name](world)
        except BaseException:
            print(f"not ok {name}", flush=True)
            raise
        finally:
            world.service.close()
        print(f"ok {name} ({time.monotonic() - start:.1f} s)", flush=True)


def main() -> int:
    with ThreadPoolExecutor(CASES_AT_ONCE) as pool:
        for ended in [pool.submit(run_case, name) for name in sys.argv[3:] or CASES]:
            ended.result()
    return 0


if __name__ == "__main__":
    sys.exit(main())
