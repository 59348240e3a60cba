# SPDX-License-Identifier: Apache-2.0
"""Which addresses count as one client where bounds apply per address. Pure."""

from __future__ import annotations

import ipaddress

IPV6_PREFIX_BITS = 64  # the least that a customer has: addresses within it cost nothing


def origin_of(address: str) -> str:
    """Return the origin of `address`, to which bounds apply: an IPv4 address, or an IPv6 network.

    IPv4 addresses mapped into IPv6 (RFC 4291, 2.5.5.2) count as IPv4. Anything else ("": the Unix
    socket) is its own origin.
    """
    try:
        found = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return address
    if isinstance(found, ipaddress.IPv4Address):
        return str(found)
    if found.ipv4_mapped is not None:
        return str(found.ipv4_mapped)
    return str(ipaddress.IPv6Network((int(found), IPV6_PREFIX_BITS), strict=False))
