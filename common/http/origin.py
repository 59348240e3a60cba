# SPDX-License-Identifier: Apache-2.0
"""Where a client is: what counts as one address when bounds per address are kept. Pure."""

from __future__ import annotations

import ipaddress

IPV6_PREFIX_BITS = 64  # what one customer has at least: addresses below it cost nothing


def origin_of(address: str) -> str:
    """Return what stands for `address` in bounds: an IPv4 address itself, an IPv6 network.

    IPv4 addresses mapped into IPv6 (RFC 4291, 2.5.5.2) count as IPv4. Anything else ('': the Unix
    socket) stands for itself.
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
