# SPDX-License-Identifier: Apache-2.0
"""The settings of ldmd.conf(5) that an experiment may set: names, kinds, bounds. Pure.

The table is that of `ldm7/ldmd/conf_set.c`; a test compares the two.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal

Kind = Literal["real", "whole", "words", "word", "text"]
MAX_TEXT_BYTES: Final = 255


@dataclass(frozen=True)
class Setting:
    """One setting and its values. `words`: the values, or those besides numbers."""

    kind: Kind
    valid: str
    least: float = 0.0
    most: float = math.inf
    words: tuple[str, ...] = ()
    instead: str = ""  # the experiment's key that sets it; "": `set` may


def _whole(least: float, most: float, valid: str, instead: str = "") -> Setting:
    return Setting("whole", valid, least, most, instead=instead)


_PATH: Final = "the network of the cell"
_FILE: Final = "1 to 255 bytes: the path of a file"

SETTINGS: Final[Mapping[str, Setting]] = {
    "fmtp.layout": Setting("words", "2017 or 2021", words=("2017", "2021")),
    "fmtp.f_snd": Setting("real", "a number from 0 to 1e12", 0, 1e12, instead="f_snd"),
    "fmtp.f_rcv": Setting("real", "a number from 0 to 1e12", 0, 1e12, instead="f_rcv"),
    "fmtp.r_mc_bps": _whole(1000, 1e12, "an integer from 1000 to 1e12, in bit/s", "r_mc"),
    "fmtp.b_rcv_bytes": _whole(
        2048, 1 << 30, "an integer from 2048 to 1073741824, in bytes", "b_rcv"
    ),
    "fmtp.b_snd_bytes": _whole(
        0, 1 << 30, "an integer from 0 (the system's default) to 1073741824, in bytes", "b_snd"
    ),
    "fmtp.blocking": Setting("words", "on or off", words=("on", "off")),
    "fmtp.handover_us": Setting(
        "real", "a number from 0 to 1e6, in microseconds for each datagram", 0, 1e6
    ),
    "fmtp.r_uc_bps": _whole(0, 1e12, "an integer from 0 (no limit) to 1e12, in bit/s"),
    "fmtp.held_products": _whole(0, 1e9, "an integer from 0 (no limit) to 1e9"),
    "fmtp.held_s": _whole(0, 1e9, "an integer from 0 (no limit) to 1e9, in seconds"),
    "fmtp.held_share": Setting("real", "a number from 0 (no limit) to 1", 0, 1),
    "fmtp.pdu_bytes": _whole(0, 65504, "0 (automatic) or an integer from 256 to 65504"),
    "fmtp.key_file": Setting("text", _FILE),
    "fmtp.mac_level": Setting(
        "words",
        "auto, 0 (none), 1 (HMAC-SHA256) or 2 (Ed25519)",
        words=("auto", "0", "1", "2"),
        instead="mac_level",
    ),
    "fmtp.repair": Setting(
        "words",
        "unicast, multicast or blocks",
        words=("unicast", "multicast", "blocks"),
        instead="repair",
    ),
    "fmtp.timer_by": Setting("words", "rate or handover", words=("rate", "handover")),
    "fmtp.timer_from": Setting("words", "bop or eop", words=("bop", "eop")),
    "fmtp.ttl": _whole(1, 255, "an integer from 1 to 255"),
    "ldm6.congestion_control": Setting(
        "word",
        "1 to 15 letters, digits, - or _: a name in net.ipv4.tcp_available_congestion_control",
        1,
        15,
    ),
    "ldm6.max_latency_s": Setting("real", "a number from 1 to 1e9, in seconds", 1, 1e9),
    "ldm6.time_offset_s": Setting("real", "a number from 0 to 1e9, in seconds", 0, 1e9),
    "ldm6.anti_dos": _whole(0, 1, "0 or 1"),
    "ldm6.verify_md5": _whole(
        0, 2, "0 (none), 1 (products that peers push) or 2 (requested ones as well)"
    ),
    "ldm7.dead_s": _whole(3, 3600, "an integer from 3 to 3600, in seconds"),
    "ldm7.fallback": _whole(0, 1, "0 or 1"),
    "ldm7.nic": Setting(
        "word", "1 to 15 letters, digits, ., _ or -: the name of an interface", instead="shaped_by"
    ),
    "ldm7.nic_tags": _whole(0, 1, "0 or 1", "shaped_by or vlans_by"),
    "ldm7.nic_buffer_bytes": _whole(
        0, 4e9, "an integer from 0 (no traffic control) to 4e9, in bytes", "b_mc"
    ),
    "ldm7.retry_s": _whole(1, 86400, "an integer from 1 to 86400, in seconds"),
    "ldm7.vlanutil": Setting("text", "1 to 255 bytes: the path of vlanutil, or its name in PATH"),
    "ldm7.verify_md5": _whole(0, 1, "0 or 1"),
    "ldmd.sandbox": Setting("words", "on or off", words=("on", "off")),
    "ldmd.stats": Setting("words", "on or off", words=("on", "off")),
    "path.ca_file": Setting("text", _FILE, instead=_PATH),
    "path.grace_s": _whole(0, 86400, "an integer from 0 to 86400, in seconds"),
    "path.name": Setting(
        "text",
        "6 to 64 letters, digits, ., _ or -, with {feed} among them",
        instead=_PATH,
    ),
    "path.rate_bps": _whole(
        0, 1e12, "an integer from 0 (no guarantee) to 1e12, in bit/s", "headroom"
    ),
    "path.service": Setting(
        "text",
        "unix:/PATH (at most 107 bytes), http://HOST[:PORT] or https://HOST[:PORT], or several "
        "of them with commas between",
        instead=_PATH,
    ),
    "path.timeout_s": _whole(1, 600, "an integer from 1 to 600, in seconds"),
    "path.token_file": Setting("text", _FILE, instead=_PATH),
}
FREE: Final = tuple(name for name, s in SETTINGS.items() if not s.instead)


def checked(name: str, value: object) -> str:
    """Return a value as ldmd.conf writes it. Raises ValueError, which says what would be valid."""
    setting = SETTINGS[name]
    text = f"{value:.0f}" if isinstance(value, float) and value.is_integer() else str(value)
    if isinstance(value, bool) or not _fits(name, setting, text):
        raise ValueError(setting.valid)
    return text


def _fits(name: str, setting: Setting, text: str) -> bool:
    if setting.kind == "words":
        return text.lower() in setting.words
    if setting.kind == "word":
        return re.fullmatch(r"[A-Za-z0-9_-]{1,15}", text) is not None
    if setting.kind == "text":
        # One word of a line: refuse characters that would begin a comment or another word.
        return re.fullmatch(rf"[^\s\"#\x00]{{1,{MAX_TEXT_BYTES}}}", text) is not None
    try:
        number = float(text)
    except ValueError:
        return False
    if name == "fmtp.pdu_bytes" and 0 < number < 256:
        return False
    if not setting.least <= number <= setting.most:  # also refuses NaN
        return False
    return setting.kind == "real" or number == math.floor(number)
