# SPDX-License-Identifier: Apache-2.0
"""M2C: m2c-send and m2c-recv, a file on layers. Each receiver joins the layers that its path can
carry.

The base channel has the path's group, and the other channels have the groups that follow.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from common.places import program
from protocols.adapter import Adapter, Setup

SENDER: Final = "m2c/m2c-send"
RECEIVER: Final = "m2c/m2c-recv"
CHANNELS_MOST: Final = 255  # besides the base channel
UNLIMITED_BPS: Final = 200_000_000  # of all layers; a receiver takes what its path allows


def send_argv(s: Setup, rate_bps: int, file: Path, options: Sequence[str]) -> list[str]:
    """Return the sender's command line. `rate_bps`: of all layers, from the IP header on."""
    return [
        str(program("m2c-send", s.build)),
        *("--base", s.group_port, "--interface", s.sender.address),
        *("--max-rate", str(rate_bps), "--cache", str(s.work), *options, str(file)),
    ]


def receive_argv(s: Setup, receiver: int, inbox: Path, options: Sequence[str]) -> list[str]:
    """Return a receiver's command line. The receiver leaves when it has the file."""
    return [
        str(program("m2c-recv", s.build)),
        *("--base", s.group_port, "--interface", s.receivers[receiver].address),
        *options,
        str(inbox),
    ]


def _sender(s: Setup, files: Sequence[Path]) -> list[str]:
    return send_argv(s, s.rate_bps or UNLIMITED_BPS, files[0], ())


def _receiver(s: Setup, receiver: int) -> list[str]:
    return receive_argv(s, receiver, s.inbox(receiver), ())


M2C: Final = Adapter(
    name="m2c",
    title="m2c-send/recv",
    feed="carousel",
    needs=(SENDER, RECEIVER),
    receiver=_receiver,
    sender=_sender,
    repairs="further symbols; each receiver joins the layers that its way carries",
    settings="m2c-send(1) and m2c-recv(1): the rate of all layers, else the defaults.",
    limits=("It sends one file that is known when it starts: no stream of products.",),
)
