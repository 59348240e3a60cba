# SPDX-License-Identifier: Apache-2.0
"""Netlink messages: ask the kernel for interfaces, queues, routes and rules without starting a
program, and read its reports of changes."""

from __future__ import annotations

import os
import socket
import struct
from collections.abc import Iterator
from typing import Final

from common.shell import NetworkError, namespace_of

# linux/netlink.h, linux/rtnetlink.h
NETLINK_ROUTE: Final = 0
NETLINK_NETFILTER: Final = 12
NLM_F_REQUEST: Final = 0x001
NLM_F_DUMP: Final = 0x300
NLMSG_ERROR: Final = 2
NLMSG_DONE: Final = 3
NESTED: Final = 0x3FFF  # an attribute's type without its flags
SOL_NETLINK: Final = 270
NETLINK_ADD_MEMBERSHIP: Final = 1
RTM_NEWLINK, RTM_DELLINK, RTM_GETLINK = 16, 17, 18
RTM_NEWADDR, RTM_DELADDR, RTM_GETADDR = 20, 21, 22
RTM_NEWROUTE, RTM_DELROUTE, RTM_GETROUTE = 24, 25, 26
RTM_NEWNEIGH, RTM_DELNEIGH, RTM_GETNEIGH = 28, 29, 30
RTM_NEWRULE, RTM_DELRULE, RTM_GETRULE = 32, 33, 34
RTM_NEWQDISC, RTM_DELQDISC, RTM_GETQDISC = 36, 37, 38
RTM_NEWTCLASS, RTM_DELTCLASS, RTM_GETTCLASS = 40, 41, 42
RTM_NEWTFILTER, RTM_DELTFILTER, RTM_GETTFILTER = 44, 45, 46
MESSAGE: Final = struct.Struct("=IHHII")
TC: Final = struct.Struct("=BxxxiIII")  # tcmsg: family, interface, handle, parent, info
_ATTRIBUTE: Final = struct.Struct("=HH")
_RECEIVE_BYTES: Final = 1 << 16  # the kernel answers in pieces of 32 kB at most


def attributes(data: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield (type, value) of netlink attributes. Raises ValueError on an impossible length."""
    at = 0
    while at + _ATTRIBUTE.size <= len(data):
        length, kind = _ATTRIBUTE.unpack_from(data, at)
        if length < _ATTRIBUTE.size or at + length > len(data):
            raise ValueError(f"netlink attribute of {length} bytes, {len(data) - at} are left")
        yield kind & NESTED, data[at + _ATTRIBUTE.size : at + length]
        at += (length + 3) & ~3


def messages(data: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield (type, body) of netlink messages. Raises ValueError if one is malformed, OSError if the
    kernel refuses."""
    at = 0
    while at + MESSAGE.size <= len(data):
        length, kind, *_ = MESSAGE.unpack_from(data, at)
        if length < MESSAGE.size or at + length > len(data):
            raise ValueError(f"netlink message of {length} bytes, {len(data) - at} are left")
        body = data[at + MESSAGE.size : at + length]
        if kind == NLMSG_ERROR:
            number = -struct.unpack_from("=i", body)[0]
            if number:
                raise OSError(number, os.strerror(number))
        yield kind, body
        at += (length + 3) & ~3


def open_socket(pid: int | None, family: int, groups: tuple[int, ...] = ()) -> socket.socket:
    """Return a netlink socket in the namespace of process `pid` (None: here) that receives changes
    in `groups`. Raises NetworkError."""

    def opened() -> socket.socket:
        one = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, family)
        try:
            one.bind((0, 0))
            for group in groups:
                one.setsockopt(SOL_NETLINK, NETLINK_ADD_MEMBERSHIP, group)
        except OSError:
            one.close()
            raise
        return one

    try:
        if pid is None:
            return opened()
        with namespace_of(pid):
            return opened()
    except OSError as error:
        raise NetworkError(f"netlink: {error.strerror}") from error


def dump(one: socket.socket, kind: int, header: bytes) -> Iterator[bytes]:
    """Request all objects of a kind; yield the bodies of the answers. Raises OSError,
    ValueError."""
    length = MESSAGE.size + len(header)
    one.send(MESSAGE.pack(length, kind, NLM_F_REQUEST | NLM_F_DUMP, 1, 0) + header)
    while True:
        for answer, body in messages(one.recv(_RECEIVE_BYTES)):
            if answer == NLMSG_DONE:
                return
            yield body


def handle_text(handle: int) -> str:
    """Return a handle as tc prints it: 1:, 1:2, root, ingress."""
    if handle in (0xFFFFFFFF, 0):
        return "root" if handle else "0:"
    names = {0xFFFFFFF1: "clsact", 0xFFFF0000: "ffff:", 0xFFFFFFF2: "ingress", 0xFFFFFFF3: "egress"}
    if handle in names:
        return names[handle]
    minor = handle & 0xFFFF
    return f"{handle >> 16:x}:{minor:x}" if minor else f"{handle >> 16:x}:"


def text_of(value: bytes) -> str:
    """Return an attribute's value as text."""
    return value.rstrip(b"\0").decode(errors="replace")
