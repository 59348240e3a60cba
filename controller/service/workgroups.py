# SPDX-License-Identifier: Apache-2.0
"""Workgroups: who sends a request, and which VLANs they may use on which edge ports (as in OESS).

A workgroup is identified by its bearer tokens. The file has their SHA-256 digests, or names a file
that has the token. A token has enough entropy for an unsalted digest: `MIN_TOKEN_CHARS`.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import stat
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from controller.paths.core import Endpoint
from topologies.model.document import Document, TopologyErrors, read_document

MIN_TOKEN_CHARS = 16
MAX_TOKEN_CHARS = 512
MAX_NAME_CHARS = 64
# Not only dots: '.' and '..' mean something else in URLs.
NAME_PATTERN = r"[.]*[A-Za-z0-9_-][A-Za-z0-9._-]*"
_NAME = re.compile(rf"(?=.{{1,{MAX_NAME_CHARS}}}\Z){NAME_PATTERN}")
_TOKEN = re.compile(r"[A-Za-z0-9._~+/=-]+")  # RFC 6750, 2.1 (b68token)
_DIGEST = re.compile(r"[0-9A-Fa-f]{64}")


class WorkgroupErrors(Exception):
    """All mistakes in a workgroups file, one per line: `file:line: found ...; valid: ...`."""


@dataclass(frozen=True)
class VlanSet:
    """VLAN ids as sorted, disjoint, inclusive ranges."""

    ranges: tuple[tuple[int, int], ...]

    @classmethod
    def parse(cls, text: str) -> VlanSet:
        """Parse '100-199,205'. Raises ValueError, which says what is wrong."""
        found: list[tuple[int, int]] = []
        for part in text.split(","):
            match = re.fullmatch(r"\s*(\d{1,4})\s*(?:-\s*(\d{1,4})\s*)?", part, re.ASCII)
            if match is None:
                raise ValueError(f"'{part.strip()}' is not a VLAN id or a range")
            low = int(match[1])
            high = int(match[2]) if match[2] else low
            if not 1 <= low <= high <= 4094:
                raise ValueError(f"'{part.strip()}' is not within 1..4094, low end first")
            found.append((low, high))
        merged: list[tuple[int, int]] = []
        for low, high in sorted(found):
            if merged and low <= merged[-1][1] + 1:
                merged[-1] = (merged[-1][0], max(high, merged[-1][1]))
            else:
                merged.append((low, high))
        return cls(tuple(merged))

    def __contains__(self, vlan: int) -> bool:
        return any(low <= vlan <= high for low, high in self.ranges)

    def __str__(self) -> str:
        return ",".join(f"{low}" if low == high else f"{low}-{high}" for low, high in self.ranges)


@dataclass(frozen=True)
class Grant:
    """VLAN ids that may be used on one access port."""

    switch: str
    port: int
    vlans: VlanSet

    def __str__(self) -> str:
        return f"{self.switch}:{self.port} VLANs {self.vlans}"


@dataclass(frozen=True)
class Workgroup:
    """Clients with a token.

    `is_admin`: sees and may change everything. `is_peer`: another domain's controller.
    """

    name: str
    digests: tuple[bytes, ...] = ()  # SHA-256 of its tokens
    is_admin: bool = False
    is_peer: bool = False
    grants: tuple[Grant, ...] = ()

    def may_see(self, workgroup: str) -> bool:
        """Return whether it may see the paths of `workgroup`."""
        return self.is_admin or self.name == workgroup

    def objection_to(self, endpoint: Endpoint) -> str:
        """Return why the workgroup may not use the endpoint, and what it may use; '' if it may."""
        if self.is_admin:
            return ""
        here = [g for g in self.grants if (g.switch, g.port) == (endpoint.switch, endpoint.port)]
        if any(endpoint.vlan in grant.vlans for grant in here):
            return ""
        what = (
            f"workgroup '{self.name}' may not use VLAN {endpoint.vlan} on port {endpoint.port} of "
            f"switch '{endpoint.switch}'"
        )
        if here:
            return f"{what}; valid VLANs there: {','.join(str(g.vlans) for g in here)}"
        return f"{what}; valid: {', '.join(map(str, self.grants)) or 'no endpoint at all'}"


# The sender of a request without a token on the Unix socket, which only its owner can open.
OWNER = Workgroup("owner", is_admin=True)


class Workgroups:
    """All workgroups. Immutable; reading the file again makes a new one."""

    def __init__(self, groups: Iterable[Workgroup] = ()) -> None:
        self._groups = {group.name: group for group in groups}

    def __len__(self) -> int:
        return len(self._groups)

    def all(self) -> Iterable[Workgroup]:
        """Return all workgroups."""
        return self._groups.values()

    def get(self, name: str) -> Workgroup | None:
        """Return the workgroup with that name, if there is one."""
        return OWNER if name == OWNER.name else self._groups.get(name)

    def by_token(self, token: str) -> Workgroup | None:
        """Return the workgroup of a token.

        Every digest is compared, even after a match, so that the time taken reveals nothing.
        """
        digest = hashlib.sha256(token.encode("utf-8", "surrogateescape")).digest()
        found: Workgroup | None = None
        for group in self._groups.values():
            for known in group.digests:
                if hmac.compare_digest(known, digest):
                    found = group
        return found


def read_token(path: Path) -> str:
    """Return the token in a file that only its owner can read.

    Raises ValueError, which never quotes it.
    """
    try:
        mode = path.stat().st_mode
        text = path.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise ValueError(f"{path}: {getattr(error, 'strerror', None) or 'not UTF-8'}") from error
    if mode & (stat.S_IRWXG | stat.S_IRWXO):
        raise ValueError(f"{path}: others may read or write it (mode {stat.S_IMODE(mode):04o})")
    if not MIN_TOKEN_CHARS <= len(text) <= MAX_TOKEN_CHARS or not _TOKEN.fullmatch(text):
        raise ValueError(f"{path}: not a token of {MIN_TOKEN_CHARS}..{MAX_TOKEN_CHARS} characters")
    return text


def load(path: Path) -> Workgroups:
    """Read a workgroups file. Raises WorkgroupErrors with every mistake found."""
    try:
        document = read_document(path, "a list 'workgroups'")
    except TopologyErrors as error:
        raise WorkgroupErrors(str(error)) from None
    groups = _Reader(document, path.parent).read()
    if document.errors:
        raise WorkgroupErrors("\n".join(str(e) for e in sorted(set(document.errors))))
    return Workgroups(groups)


class _Reader:
    def __init__(self, document: Document, directory: Path) -> None:
        self._document = document
        self._directory = directory

    def read(self) -> list[Workgroup]:
        data = self._document.data
        if not isinstance(data, dict) or not isinstance(data.get("workgroups"), list):
            self._document.report((), "no list 'workgroups'", "workgroups: a list")
            return []
        self._only_keys((), data, ("workgroups",))
        groups: list[Workgroup] = []
        names: set[str] = set()
        digests: set[bytes] = set()
        for index, raw in enumerate(data["workgroups"]):
            group = self._workgroup(("workgroups", index), raw)
            if group is None:
                continue
            if group.name in names:
                self._document.report(
                    ("workgroups", index, "name"), f"name '{group.name}' again", "each name once"
                )
            if digests & set(group.digests):
                self._document.report(
                    ("workgroups", index),
                    f"a token of '{group.name}' that another workgroup has",
                    "a separate token for each workgroup",
                )
            names.add(group.name)
            digests.update(group.digests)
            groups.append(group)
        return groups

    def _workgroup(self, place: tuple[str | int, ...], raw: object) -> Workgroup | None:
        keys = ("name", "token_sha256", "token_file", "admin", "peer", "endpoints")
        if not isinstance(raw, dict):
            self._document.report(place, f"{raw!r}", f"a mapping with {', '.join(keys)}")
            return None
        self._only_keys(place, raw, keys)
        name = raw.get("name")
        if not isinstance(name, str) or not _NAME.fullmatch(name) or name == OWNER.name:
            self._document.report(
                (*place, "name"),
                f"name {name!r}",
                f"1..{MAX_NAME_CHARS} letters, digits or ._-, not dots alone (and not "
                f"'{OWNER.name}', which needs no token)",
            )
            return None
        flags = {}
        for key in ("admin", "peer"):
            flags[key] = raw.get(key, False)
            if not isinstance(flags[key], bool):
                self._document.report((*place, key), f"{flags[key]!r}", "true or false")
        return Workgroup(
            name,
            self._digests(place, raw, name),
            flags["admin"] is True,
            flags["peer"] is True,
            self._grants((*place, "endpoints"), raw.get("endpoints", [])),
        )

    def _digests(
        self, place: tuple[str | int, ...], raw: Mapping[str, object], name: str
    ) -> tuple[bytes, ...]:
        result: list[bytes] = []
        for key, convert in (("token_sha256", self._digest), ("token_file", self._digest_of_file)):
            value = raw.get(key, [])
            for item in value if isinstance(value, list) else [value]:
                try:
                    result.append(convert(item))
                except ValueError as error:
                    self._document.report((*place, key), *error.args)
        if "token_sha256" not in raw and "token_file" not in raw:
            self._document.report(
                place, f"workgroup '{name}' without a token", "token_sha256 or token_file"
            )
        return tuple(result)

    @staticmethod
    def _digest(value: object) -> bytes:
        if not isinstance(value, str) or not _DIGEST.fullmatch(value):
            # It may be a token, put there by mistake: do not quote it.
            raise ValueError("an invalid digest", "64 hexadecimal digits in quotes (of: sha256sum)")
        return bytes.fromhex(value)

    def _digest_of_file(self, value: object) -> bytes:
        if not isinstance(value, str):
            raise ValueError(f"{value!r}", "the name of a file that holds a token")
        try:
            return hashlib.sha256(read_token(self._directory / value).encode()).digest()
        except ValueError as error:
            raise ValueError(
                str(error), "a file of mode 0600 with a token (e.g. of: openssl rand -hex 32)"
            ) from None

    def _grants(self, place: tuple[str | int, ...], raw: object) -> tuple[Grant, ...]:
        keys = ("switch", "port", "vlans")
        if not isinstance(raw, list):
            self._document.report(place, f"{raw!r}", "a list of {switch, port, vlans}")
            return ()
        grants: list[Grant] = []
        for index, item in enumerate(raw):
            here = (*place, index)
            if not isinstance(item, dict):
                self._document.report(here, f"{item!r}", f"a mapping with {', '.join(keys)}")
                continue
            self._only_keys(here, item, keys)
            switch, port, vlans = (item.get(key) for key in keys)
            if not isinstance(switch, str) or not switch:
                self._document.report((*here, "switch"), f"{switch!r}", "a switch's name")
                continue
            if not isinstance(port, int) or isinstance(port, bool) or port < 1:
                self._document.report((*here, "port"), f"{port!r}", "a port number of the switch")
                continue
            try:
                allowed = VlanSet.parse(str(vlans))
            except ValueError as error:
                self._document.report((*here, "vlans"), str(error), '"100-199,205"')
                continue
            grants.append(Grant(switch, port, allowed))
        return tuple(grants)

    def _only_keys(
        self, place: tuple[str | int, ...], raw: Mapping[str, object], keys: tuple[str, ...]
    ) -> None:
        for key in raw.keys() - set(keys):
            self._document.report((*place, key), f"key '{key}'", ", ".join(keys))


def unknown_endpoints(groups: Workgroups, is_access_port: Callable[[str, int], bool]) -> list[str]:
    """Return, in words, the grants that do not name an access port of the domain."""
    return [
        f"workgroup '{group.name}': {grant.switch}:{grant.port} is not an access port of this "
        "domain"
        for group in groups.all()
        for grant in group.grants
        if not is_access_port(grant.switch, grant.port)
    ]
