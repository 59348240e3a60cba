# SPDX-License-Identifier: Apache-2.0
"""All protocols: this room's, and those of installed packages.

A package adds a protocol by an entry point in the group `downpour.protocols` that names an
`Adapter`.
"""

from __future__ import annotations

import functools
from importlib.metadata import entry_points
from typing import Final

from common.nearest import did_you_mean
from protocols import aeron, fcast, flute, fmtp, ldm, m2c, norm, quic, tcp, udpcast, uftp
from protocols.adapter import NAME, Adapter

GROUP: Final = "downpour.protocols"
OWN: Final = {
    adapter.name: adapter
    for adapter in (
        *(ldm.LDM7, ldm.LDM6, fcast.FCAST, m2c.M2C, fmtp.FMTP, fmtp.UNICAST),
        *(norm.NORM, norm.FEC),
        *(flute.NO_CODE, flute.RS, flute.RQ, uftp.UFTP, udpcast.UDPCAST, aeron.AERON),
        *(tcp.TCP, quic.QUIC),
    )
}


class ProtocolError(ValueError):
    """There is no such protocol, or its adapter is invalid; the text says what is valid."""


@functools.cache
def _of_packages() -> dict[str, Adapter]:
    """Load the protocols of installed packages. Raises ProtocolError."""
    found: dict[str, Adapter] = {}
    for entry in entry_points(group=GROUP):
        if entry.name in OWN or NAME.fullmatch(entry.name) is None:
            raise ProtocolError(
                f"entry point {GROUP}: found the name '{entry.name}'; valid: a unique name, of "
                "lower-case letters, digits and hyphens"
            )
        try:
            adapter = entry.load()
        except Exception as error:
            raise ProtocolError(
                f"entry point {GROUP}: found '{entry.value}', which does not load: {error}; valid: "
                "MODULE:OBJECT of an installed package"
            ) from error
        if not isinstance(adapter, Adapter) or adapter.name != entry.name:
            raise ProtocolError(
                f"entry point {GROUP}: found {adapter!r:.200}; valid: an Adapter named "
                f"'{entry.name}'"
            )
        found[entry.name] = adapter
    return found


def names() -> tuple[str, ...]:
    """Return the names of all protocols. Raises ProtocolError."""
    return (*OWN, *_of_packages())


def get(name: str) -> Adapter:
    """Return a protocol. Raises ProtocolError."""
    if name in OWN:  # without reading installed packages
        return OWN[name]
    if (adapter := _of_packages().get(name)) is not None:
        return adapter
    valid = names()
    raise ProtocolError(
        f"found protocol '{name}'; valid: {', '.join(valid)}{did_you_mean(name, valid)}"
    )
