# SPDX-License-Identifier: Apache-2.0
"""The two ends of a TCP connection whose timers are watched from outside.

`python -m virtual.selftest.talk serve PORT` accepts one connection, delays its acknowledgements and
answers nothing; `call ADDRESS PORT syn|data|acks SECONDS` does the named thing and waits that long.
`data` waits for a line on stdin before it sends. Both print "ready".
"""

from __future__ import annotations

import contextlib
import socket
import sys
import time

ACKS = 3
PAST_DELAY_S = 0.2


def serve(port: int) -> None:
    """Serve one connection until the peer closes."""
    with socket.create_server(("", port)) as server:
        print("ready", flush=True)
        connection, _ = server.accept()
        with connection:
            while True:
                # The kernel acknowledges at once after each delay; this asks for delays again.
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK, 0)
                if not connection.recv(4096):
                    return
                time.sleep(PAST_DELAY_S)


def call(address: str, port: int, what: str, seconds: float) -> None:
    """Connect and do `what` (see above)."""
    if what == "syn":
        print("ready", flush=True)
        with contextlib.suppress(OSError):
            socket.create_connection((address, port), timeout=seconds)
        return
    with socket.create_connection((address, port), timeout=10) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        print("ready", flush=True)
        if what == "data":
            sys.stdin.readline()
            connection.sendall(bytes(100))
            time.sleep(seconds)
            return
        for _ in range(ACKS):
            time.sleep(seconds)
            connection.sendall(bytes(100))
        time.sleep(seconds)


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["serve", port]:
            serve(int(port))
        case ["call", address, port, ("syn" | "data" | "acks") as what, seconds]:
            call(address, int(port), what, float(seconds))
        case _:
            sys.exit(f"{__doc__}")
