# SPDX-License-Identifier: Apache-2.0
"""Parts on other machines: what one machine asks of another, and how that one serves.

The machine with the calendar connects and sends an order (`Work`). The other starts the guests
behind the same walls as its own, and a proxy that keeps the connection until they have ended.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import re
import shutil
import socket
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from common.places import BUILD, PROGRAMS, ROOT
from virtual.guest import MEMORY_BYTES, PATH, ROOMS, GuestError, GuestSpec
from virtual.kernel_build import Kernel
from virtual.parts.calendar import MOST_NS, CalendarError
from virtual.parts.links import LinkFile
from virtual.parts.messages import Kind, Message
from virtual.parts.peer import Peer
from virtual.parts.together import Far, Together

MOST_PARTS: Final = 16  # of one order, with four links each
CONNECT_S: Final = 10.0
TOOLS: Final = ("python3", "ip", "tc", "ethtool", "nsenter")  # what parts use of their machine
_LINK: Final = re.compile(r"[0-9a-z][0-9a-z-]{0,40}")
_FILE: Final = re.compile(r"[a-z]{1,40}\.json")  # no name of the launcher's own
_DIGITS: Final = 16  # of a digest


@dataclass(frozen=True)
class Work:
    """What another machine runs. `same`: what both must have (`sameness`); `files`: put into each
    exchange directory."""

    same: Mapping[str, str]
    window_ns: int
    links: Sequence[LinkFile]
    parts: Mapping[int, GuestSpec]
    files: Mapping[str, str]

    def to_json(self) -> bytes:
        """Return the text for `from_json`."""
        parts = [
            {"part": part, "argv": spec.argv, "seed": spec.seed, "memory": spec.memory_bytes}
            for part, spec in self.parts.items()
        ]
        return json.dumps({**dataclasses.asdict(self), "parts": parts}).encode()

    @classmethod
    def from_json(cls, text: bytes) -> Work:
        """Return the order in a text from another machine. Raises ValueError."""
        try:
            return _work(json.loads(text))
        except (KeyError, TypeError, AttributeError, RecursionError) as error:
            raise ValueError(
                f"found an order without {error}; valid: one of this version"
            ) from None


def _work(raw: Any) -> Work:
    links = [
        LinkFile(_name(k["name"], _LINK), _part(k["writer"]), _part(k["reader"]))
        for k in raw["links"]
    ]
    parts = {
        _part(one["part"]): GuestSpec(
            argv=tuple(_text(word) for word in one["argv"]),
            reads=(BUILD,),
            seed=_number(one["seed"], 0, 2**63),
            memory_bytes=_number(one["memory"], 1, 64 * MEMORY_BYTES),
        )
        for one in raw["parts"]
    }
    if not 0 < len(parts) <= MOST_PARTS or len(links) > 4 * MOST_PARTS:
        raise ValueError(
            f"found {len(parts)} parts and {len(links)} links; valid: up to {MOST_PARTS} parts"
        )
    files = {_name(name, _FILE): _text(text) for name, text in raw["files"].items()}
    same = {_text(name): _text(text) for name, text in raw["same"].items()}
    return Work(same, _number(raw["window_ns"], 1, MOST_NS), links, parts, files)


def _name(value: Any, valid: re.Pattern[str]) -> str:
    if not isinstance(value, str) or not valid.fullmatch(value):
        raise ValueError(f"found '{str(value)[:40]!r}'; valid: a name such as 1-down, parts.json")
    return value


def _part(value: Any) -> int:
    return _number(value, 0, 1000)


def _number(value: Any, least: int, most: int) -> int:
    if type(value) is not int or not least <= value <= most:
        raise ValueError(f"found '{str(value)[:40]}'; valid: a number from {least} to {most}")
    return value


def _text(value: Any) -> str:
    if not isinstance(value, str) or "\0" in value:
        raise ValueError(f"found '{str(value)[:40]!r}'; valid: a text")
    return value


def sameness(kernel: Kernel) -> dict[str, str]:
    """Return what decides what a guest does: digests of the kernel and of the host's programs."""
    rooms = [
        p for room in ROOMS for p in sorted((ROOT / room).rglob("*.py")) if "tests" not in p.parts
    ]
    tools = [Path(found) for tool in TOOLS if (found := shutil.which(tool, path=PATH))]
    return {
        "kernel": kernel.digest,
        "Python files": _digest(rooms),
        "C programs": _digest([BUILD / PROGRAMS[name] for name in sorted(PROGRAMS)]),
        "system's programs": _digest(tools),
    }


def _digest(paths: Sequence[Path]) -> str:
    contents = [p.read_bytes() if p.is_file() else b"absent" for p in paths]
    names = [str(p.relative_to(ROOT) if p.is_relative_to(ROOT) else p.name) for p in paths]
    whole = hashlib.sha256()
    for name, content in zip(names, contents, strict=True):
        whole.update(f"{name} {hashlib.sha256(content).hexdigest()}\n".encode())
    return whole.hexdigest()[:_DIGITS]


def address_of(text: str) -> tuple[str, int]:
    """Return the host and the port of HOST:PORT. Raises ValueError."""
    host, colon, port = text.rpartition(":")
    if not host or not colon or not port.isdigit() or not 0 < int(port) < 65536:
        raise ValueError(f"found '{text}'; valid: HOST:PORT, as 10.0.0.2:7080")
    return host, int(port)


def hire(
    machines: Sequence[str],
    work: Callable[[Mapping[int, GuestSpec]], Work],
    specs: Mapping[int, GuestSpec],
) -> list[Far]:
    """Send each machine its share of the parts. Raises GuestError."""
    found: list[Far] = []
    try:
        for number, machine in enumerate(machines):
            share = dict(list(specs.items())[number :: len(machines)])
            if not share:
                break
            connection = socket.create_connection(address_of(machine), timeout=CONNECT_S)
            found.append(Far(machine, connection, sorted(share)))
            Peer(machine, connection).send([Message(Kind.ORDER, body=work(share).to_json())])
    except (OSError, ValueError, CalendarError) as error:
        for one in found:
            one.connection.close()
        raise GuestError(f"{machine}: {error}") from None
    return found


def serve(listener: socket.socket, kernel: Kernel, say: Callable[[str], None]) -> None:
    """Serve one machine after another, until this process is interrupted."""
    same = sameness(kernel)
    while True:
        connection, address = listener.accept()
        with closing(Peer(address[0], connection)) as peer:
            try:
                codes = _serve(peer, connection, kernel, same)
                say(f"{peer.name}: ended: exit codes {codes}")
            except CalendarError as error:
                say(str(error))
            except (GuestError, ValueError) as error:
                text = str(error)
                say(text if text.startswith(peer.name) else f"{peer.name}: {text}")
                peer.complain(text)


def _serve(
    peer: Peer, connection: socket.socket, kernel: Kernel, same: Mapping[str, str]
) -> list[int]:
    """Serve a machine. Raises CalendarError, GuestError, ValueError."""
    message = peer.one()
    if message.kind != Kind.ORDER:
        raise ValueError(f"found {message.kind.name}; valid: ORDER")
    work = Work.from_json(message.body)
    for what, here in same.items():
        if work.same.get(what) != here:
            raise ValueError(f"found another {what}; valid: the same ({here})")
    others = {part for link in work.links for part in (link.writer, link.reader)} - set(work.parts)
    far = Far(peer.name, connection, sorted(others))

    def prepare(exchange: Path) -> None:
        for name, text in work.files.items():
            (exchange / name).write_text(text, encoding="utf-8")

    with Together(
        kernel, work.parts, work.links, work.window_ns, prepare=prepare, far=[far], is_proxy=True
    ) as parts:
        return parts.wait()
