#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A second reader of FCAST, from the RFCs alone, reads what fcast-send emits without a code.

Usage: independent.py FCAST-SEND. It shares no code with fcast/: LCT (RFC 5651), ALC (5775), the
no-code FTI (5445), blocks (5052) and compound objects (6968). Packets stay on the loopback.
"""

from __future__ import annotations

import base64
import hashlib
import os
import random
import socket
import subprocess
import sys
import tempfile
from pathlib import Path
from urllib.parse import unquote

Fti = tuple[int, int, int]  # length, bytes of a symbol, symbols of a block at most
SECONDS = 30


def number(data: bytes, start: int, size: int) -> int:
    """Return the big-endian number of `size` bytes at `start`."""
    return int.from_bytes(data[start : start + size], "big")


def packet(data: bytes) -> tuple[int, Fti | None, bytes]:
    """Return the TOI, the FTI if it is there, and what follows the LCT header."""
    assert data[0] >> 4 == 1 and data[3] == 0, f"found LCT {data[:4].hex()}; valid: V 1, FEC ID 0"
    half = data[1] >> 4 & 1
    start = 8 + 4 * (data[0] >> 2 & 3) + 4 * (data[1] >> 7) + 2 * half
    end = start + 4 * (data[1] >> 5 & 3) + 2 * half
    toi, at, fti = number(data, start, end - start), end, None
    while at < 4 * data[2]:
        if data[at] == 64:
            fti = number(data, at + 2, 6), number(data, at + 10, 2), number(data, at + 12, 4)
        at += 4 if data[at] >= 128 else 4 * data[at + 1]
    return toi, fti, data[4 * data[2] :]


def first_symbol(block: int, fti: Fti) -> int:
    """Return the number of the first symbol of a block (RFC 5052, 9.1)."""
    symbols = -(-fti[0] // fti[1])
    blocks = -(-symbols // fti[2])
    small, larger = divmod(symbols, blocks)
    return block * small + min(block, larger)


def compound(data: bytes) -> tuple[bool, dict[str, str], bytes]:
    """Return whether it is a CID, the metadata and the content; checks the header's sum."""
    header = number(data, 4, 4)
    summed = data[: len(data) if data[0] & 2 else header]
    summed += bytes(len(summed) % 2)
    total = sum(number(summed, i, 2) for i in range(0, len(summed), 2))
    assert total and total % 0xFFFF == 0, f"checksum of {data[:header]!r}"
    lines = data[8:header].decode().split("\r\n")
    meta = dict(line.split(": ", 1) for line in lines if line)
    return bool(data[0] & 1), meta, data[-(-header // 4) * 4 :]


def listen(sock: socket.socket) -> dict[int, bytes]:
    """Return each object by its TOI when all that were seen are whole."""
    ftis: dict[int, Fti] = {}
    waiting: dict[int, dict[tuple[int, int], bytes]] = {}
    whole: dict[int, bytes] = {}
    while len(whole) < 4:
        toi, fti, rest = packet(sock.recv(65536))
        if fti:
            ftis.setdefault(toi, fti)
        waiting.setdefault(toi, {})[number(rest, 0, 2), number(rest, 2, 2)] = rest[4:]
        if toi in whole or toi not in ftis:
            continue
        length, size, _ = ftis[toi]
        if len(waiting[toi]) == -(-length // size):
            order = {first_symbol(b, ftis[toi]) + e: s for (b, e), s in waiting[toi].items()}
            assert sorted(order) == list(range(len(order))), f"TOI {toi}: strange symbol numbers"
            whole[toi] = b"".join(order[i] for i in range(len(order)))[:length]
    return whole


def check(files: dict[str, bytes], objects: dict[int, bytes]) -> None:
    """Compare what was sent with what came: names, lengths, digests, bytes, list of TOIs."""
    came: dict[str, bytes] = {}
    tois: list[int] = []
    cid = ""
    for toi, data in sorted(objects.items()):
        is_cid, meta, content = compound(data)
        if is_cid:
            cid = content.decode()
            assert meta["Fcast-CID-Complete"] == "1", meta
            continue
        tois.append(toi)
        came[unquote(meta["Content-Location"])] = content
        assert int(meta["Content-Length"]) == len(content), meta
        digest = base64.b64encode(hashlib.sha256(content).digest()).decode()
        assert meta["Fcast-Obj-Digest-SHA256"] == digest, meta
    assert came == files, f"found {sorted(came)}; sent: {sorted(files)}"
    listed: list[int] = []
    for part in cid.strip().split(","):
        low, _, high = part.partition("-")
        listed += range(int(low), int(high or low) + 1)
    assert listed == tois, f"CID {cid!r}; TOIs: {tois}"


def main(send: str) -> None:
    """Send three files over the loopback and read them."""
    base, port = f"239.193.{os.getpid() % 250 + 1}.80", 20000 + os.getpid() % 20000
    sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    sock.bind((base, port))
    member = socket.inet_aton(base) + socket.inet_aton("127.0.0.1")
    sock.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, member)
    sock.settimeout(SECONDS)
    rng = random.Random(1)
    files = {"large": rng.randbytes(300_001), "with spaces": b"0123456789", "empty": b""}
    with tempfile.TemporaryDirectory() as name:
        for file, content in files.items():
            Path(name, file).write_bytes(content)
        argv = [send, "--group", f"{base}:{port}", "--interface", "127.0.0.1", "--fec", "none"]
        argv += ["--k", "50", "--rate", "20M", "--cache", name]
        sender = subprocess.Popen([*argv, *(str(Path(name, file)) for file in files)])
        try:
            check(files, listen(sock))
        finally:
            sender.terminate()
            sender.wait()
    print("3 files and their CID, read by a reader that shares no code with fcast/")


if __name__ == "__main__":
    main(sys.argv[1])
