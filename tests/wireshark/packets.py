# SPDX-License-Identifier: Apache-2.0
"""FMTP messages by the project's own encoder (fmtp/src/wire.c), and captures made of them."""

from __future__ import annotations

import ctypes
import struct
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
BOP, EOP, MEM_DATA, RETX_REQ, RETX_REJ, RETX_END = 1, 2, 4, 8, 16, 32
RETX_DATA, BOP_REQ, RETX_BOP, EOP_REQ, RETX_EOP = 64, 128, 256, 512, 1024
PARITY, REPAIR, REPAIR_REQ = 2048, 4096, 8192


class _Header(ctypes.Structure):
    _fields_ = [
        ("index", ctypes.c_uint32),
        ("seqnum", ctypes.c_uint32),
        ("payloadlen", ctypes.c_uint16),
        ("flags", ctypes.c_uint16),
    ]


class _Bop(ctypes.Structure):
    _fields_ = [
        ("seconds", ctypes.c_long),
        ("nanoseconds", ctypes.c_long),
        ("size_bytes", ctypes.c_uint32),
        ("meta_len", ctypes.c_uint16),
        ("meta", ctypes.c_char_p),
    ]


class _RepairReq(ctypes.Structure):
    _fields_ = [
        ("high", ctypes.c_uint8),
        ("round", ctypes.c_uint8),
        ("need", ctypes.c_uint16),
        ("bitmap", ctypes.c_char_p),
    ]


class Encoder:
    """fmtp/src/wire.c, compiled into `directory`."""

    def __init__(self, directory: Path) -> None:
        library = directory / "wire.so"
        includes = [f"-I{ROOT / room}" for room in ("fmtp/include", "transport")]
        argv = ["gcc", "-shared", "-fPIC", "-D_GNU_SOURCE", *includes]
        subprocess.run([*argv, "-o", library, ROOT / "fmtp/src/wire.c"], check=True, timeout=120)
        self._wire = ctypes.CDLL(str(library))
        self._wire.fmtp_bop_put.restype = ctypes.c_size_t
        self._wire.fmtp_repair_req_put.restype = ctypes.c_size_t

    def message(
        self, flags: int, index: int, seq: int = 0, body: bytes = b"", wanted: int = 0
    ) -> bytes:
        out = ctypes.create_string_buffer(12)
        header = _Header(index, seq, wanted or len(body), flags)
        self._wire.fmtp_header_put(out, ctypes.byref(header))
        return out.raw + body

    def bop(self, layout: int, size: int, meta: bytes, time_s: int = 0) -> bytes:
        out = ctypes.create_string_buffer(18 + len(meta))
        bop = _Bop(time_s, 5_000_000, size, len(meta), meta)
        length = self._wire.fmtp_bop_put(layout, out, ctypes.byref(bop))
        return out.raw[:length]

    def repair_req(self, high: int, round_: int, need: int, bitmap: bytes, blocks: int) -> bytes:
        out = ctypes.create_string_buffer(64)
        req = _RepairReq(high, round_, need, bitmap)
        length = self._wire.fmtp_repair_req_put(out, ctypes.byref(req), blocks)
        return out.raw[:length]


@dataclass(frozen=True)
class End:
    address: str
    port: int

    @property
    def bytes(self) -> bytes:
        return bytes(int(part) for part in self.address.split("."))


def _ethernet(source: End, target: End, protocol: int, transport: bytes) -> bytes:
    ip = struct.pack(
        ">BBHHHBBH4s4s",
        *(0x45, 0, 20 + len(transport), 0, 0, 64, protocol, 0, source.bytes, target.bytes),
    )
    return bytes(12) + b"\x08\x00" + ip + transport


def udp(source: End, target: End, data: bytes) -> bytes:
    head = struct.pack(">HHHH", source.port, target.port, 8 + len(data), 0)
    return _ethernet(source, target, 17, head + data)


class Tcp:
    """The segments of one connection, with the sequence numbers of both directions."""

    def __init__(self, client: End, server: End) -> None:
        self._next = {client: 1000, server: 5000}
        self._other = {client: server, server: client}
        self.segments: list[bytes] = []

    def send(self, source: End, data: bytes) -> None:
        target = self._other[source]
        head = struct.pack(
            ">HHIIBBHHH",
            *(source.port, target.port, self._next[source], self._next[target]),
            *(0x50, 0x18, 65_535, 0, 0),
        )
        self._next[source] += len(data)
        self.segments.append(_ethernet(source, target, 6, head + data))


def pcap(frames: Sequence[bytes]) -> bytes:
    out = struct.pack("<IHHiIII", 0xA1B23C4D, 2, 4, 0, 0, 262_144, 1)
    for number, frame in enumerate(frames):
        stamp = 1_795_226_400_000_000_000 + number * 1_000_000
        seconds, nanoseconds = divmod(stamp, 10**9)
        out += struct.pack("<IIII", seconds, nanoseconds, len(frame), len(frame)) + frame
    return out
