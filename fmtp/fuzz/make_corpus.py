# SPDX-License-Identifier: Apache-2.0
"""Writes the seed corpora of the FMTP fuzz targets (run from this directory; output committed)."""

import base64
import struct
from dataclasses import dataclass
from pathlib import Path

BOP, EOP, MEM_DATA, RETX_REQ, RETX_REJ, RETX_END = 1, 2, 4, 8, 16, 32
RETX_DATA, BOP_REQ, RETX_BOP, EOP_REQ, RETX_EOP = 64, 128, 256, 512, 1024
PARITY, REPAIR, REPAIR_REQ, NOT_YET, PROGRESS = 2048, 4096, 8192, 16384, 32768
BLOCK = 1448
SMALL = 64  # blocks of the extended sessions of the receiver's targets, in groups of at most 3


def message(flags: int, index: int, seq: int = 0, payload: bytes = b"", wanted: int = 0) -> bytes:
    """One message; wanted: the length field of a RETX_REQ, which carries no payload."""
    return struct.pack(">IIHH", index, seq, wanted or len(payload), flags) + payload


def bop(layout: int, size: int, meta: bytes = b"meta") -> bytes:
    time = struct.pack(">QI", 1000, 5) if layout == 2021 else b""
    return time + struct.pack(">IH", size, len(meta)) + meta


@dataclass(frozen=True)
class Stream:
    """Bytes of the sender's stream."""

    data: bytes


@dataclass(frozen=True)
class Connection:
    """Another connection, of the same session or another, with the next index."""

    next_index: int
    same: bool = True


Record = bytes | int | Stream | Connection


def datagrams(layout: int, records: list[Record], extended: bool = False) -> bytes:
    """bytes: a datagram; int: a step of time in ms (and as many bytes of output taken)."""
    out = bytes([(layout == 2021) + 2 * extended])
    for r in records:
        if isinstance(r, int):
            out += struct.pack(">H", 0x8000 | r)
        elif isinstance(r, Connection):
            out += struct.pack(">H", 0x2000 | (not r.same) << 6 | r.next_index)
        elif isinstance(r, Stream):
            out += struct.pack(">H", 0x4000 | len(r.data)) + r.data
        else:
            out += struct.pack(">H", len(r)) + r
    return out


def product(layout: int, index: int, size: int, lost: set[int], block: int = BLOCK) -> list[Record]:
    """The datagrams of a product without those numbered in lost (0 BOP, then blocks, EOP)."""
    all_of_it = [message(BOP, index, 0, bop(layout, size))]
    for seq in range(0, size, block):
        all_of_it.append(message(MEM_DATA, index, seq, bytes(min(block, size - seq))))
    all_of_it.append(message(EOP, index))
    return [d for i, d in enumerate(all_of_it) if i not in lost]


def parity(index: int, group: int, number: int, end: int) -> bytes:
    """A parity symbol of a product of zeros."""
    return message(PARITY, index, group << 16 | number << 8 | end, bytes(SMALL))


def extended(layout: int) -> dict[str, bytes]:
    """Records of extended sessions: products of 6 blocks, groups [0,3) [3,6)."""
    size = 6 * SMALL - 10
    lossy = product(layout, 0, size, {2, 5}, SMALL)
    inputs: dict[str, list[Record]] = {
        "parity": [*lossy, 10, parity(0, 0, 0, 1), parity(0, 1, 0, 1), 50],
        "repair": [*lossy, message(REPAIR, 0, 64, bytes(64)), 255, parity(0, 1, 0, 2), 255],
        "rounds": [*lossy, 255, 255, 255, 255, Stream(message(RETX_DATA, 0, 64, bytes(64)))],
        "before-bop": [
            *lossy[1:],
            parity(0, 0, 0, 1),
            Stream(message(RETX_BOP, 0, 0, bop(layout, size))),
            parity(0, 1, 0, 1),
        ],
        "resume": [
            *lossy[:3],
            Connection(3),
            255,
            Stream(message(RETX_REJ, 1) + message(RETX_EOP, 2)),
            *product(layout, 3, 100, set(), SMALL),
            Connection(9, same=False),
            *product(layout, 9, 100, {1}, SMALL),
        ],
        "forged": [
            message(BOP, 0, 0, bop(layout, 0)),
            message(EOP, 5),
            message(BOP, 9, 0, bop(layout, 100000)),
            message(MEM_DATA, 9, 0, bytes(64)),
            Stream(
                message(NOT_YET, 0, 0, wanted=RETX_END) + message(NOT_YET, 1, 0, wanted=BOP_REQ)
            ),
            Stream(
                message(NOT_YET, 5, 0, wanted=BOP_REQ) + message(NOT_YET, 9, 1, wanted=RETX_REQ)
            ),
            *product(layout, 0, 100, set(), SMALL),
            *product(layout, 2, 100, {0}, SMALL),
            Stream(message(RETX_BOP, 2, 0, bop(layout, 200))),
            Connection(1),
            *product(layout, 1, 100, set(), SMALL),
        ],
        "jump": [
            *([message(MEM_DATA, 100, 0, bytes(64))] * 33),
            Stream(message(RETX_EOP, 5) + message(RETX_EOP, 100)),
        ],
    }
    return {f"{name}-{layout}": datagrams(layout, r, extended=True) for name, r in inputs.items()}


FORGED, RUN = 0x4000, 0x2000  # a wrong MAC; datagrams of one message


def batches(options: int, records: list[tuple[int, bytes] | int]) -> bytes:
    """(bits, datagrams): sent; int: read and delivered, then a step of time in ms."""
    out = bytes([options])
    for r in records:
        if isinstance(r, int):
            out += struct.pack(">H", 0x8000 | r)
        else:
            out += struct.pack(">H", r[0] | len(r[1])) + r[1]
    return out


def batched_inputs() -> dict[str, bytes]:
    """A product of 6 blocks in groups [0,3) [3,6), in one batch, in order or after its parity."""
    first, *blocks, last = product(2021, 0, 6 * SMALL, set(), SMALL)
    symbols = [parity(0, group, number, 2) for group in (0, 1) for number in (0, 1)]
    one_by_one = [(0, block) for block in blocks]
    inputs: dict[str, list[tuple[int, bytes] | int]] = {
        "ordered": [(0, first), 0, *one_by_one, (0, last), 10],
        "overtaken": [(0, first), *((0, s) for s in symbols), 0, *one_by_one, 10],
        "run": [(0, first), (RUN, b"".join(symbols)), 0, (RUN, b"".join(blocks)), 10],
        "forged": [(0, first), (RUN, b"".join(symbols)), 0, (FORGED, blocks[0]), *one_by_one, 10],
        "empty": [(0, first), 0, (0, blocks[0]), 0, (0, b""), 10],
    }
    full = message(BOP, 0, 0, bop(2021, 6 * SMALL, b"\xaa"))
    inputs["full"] = [(0, full), (RUN, b"".join(blocks)), 10]
    return {f"{name}-{bits}": batches(bits, r) for name, r in inputs.items() for bits in range(4)}


Operation = tuple[int, int] | tuple[int, bytes]


def operations(layout: int, records: list[Operation], mode: int = 0) -> bytes:
    """(operation, argument) or (operation, bytes to put in); mode: more bits of the first byte."""
    out = bytes([(layout == 2021) | mode])
    for op, arg in records:
        out += bytes([op, arg]) if isinstance(arg, int) else bytes([op, len(arg)]) + arg
    return out


def repair_request(
    index: int, group: int, k: int, missing: set[int], high: int = 0, turn: int = 0, need: int = 0
) -> bytes:
    """A REPAIR_REQ for a group of k blocks."""
    bits = bytearray((k + 7) // 8)
    for i in missing:
        bits[i // 8] |= 1 << i % 8
    body = struct.pack(">BBH", high, turn, need or len(missing)) + bytes(bits)
    return message(REPAIR_REQ, index, group, body)


def repair_operations(fec_k: int) -> list[Operation]:
    """A product of 7843 bytes, 123 blocks of 64, whose groups are asked for by three peers."""
    first, last = 0xFFFFFFFF, 24 if fec_k == 5 else 1
    k_first, k_last = (4, 5) if fec_k == 5 else (61, 62)
    return [
        (0, 100),
        (1, 130),
        (6, repair_request(first, 0, k_first, {0, 2})),
        (14, repair_request(first, 0, k_first, {1, 2})),
        (2, 11),
        (1, 100),
        (22, repair_request(first, last, k_last, {1, 3, 4})),
        (14, repair_request(first, 0, k_first, {3}, high=2)),
        (6, repair_request(first, 0, k_first, {0}, turn=1)),
        (2, 30),
        (0, 200),
        (1, 255),
        (14, message(BOP_REQ, first)),
        (6, message(RETX_END, first)),
        (2, 120),
        (3, 255),
        (11, 255),
        (22, repair_request(first, last, k_last, set(range(4)), high=250, turn=3)),
        (5, 4),
        (6, repair_request(0, 0, k_first, {0, 1})),
        (5, 0),
        (1, 200),
        (2, 255),
        (11, 255),
        (19, 255),
    ]


# An RSA-2048 public key as a receiver sends it; its private key was not kept.
PEM = b"""-----BEGIN RSA PUBLIC KEY-----
MIIBCgKCAQEAveiJIMkjZK5VWKEgMC174rHvq+gJbKW10UClvcdtAIjbngt9KZXq
riqnulWHniQ8ZqHEJ37QDHvpR2B9J2n8x8woT6eoVqRIJoR3BzloI/fEQAffNTRL
IqWCyzOJjtpyHD0WSSritmTblaJVOhiLkvvaKpZI/1YzkA2KA3P8hp5cu4mQAv1J
FRrUX6jGmBd5qBCCs0OQqgfE9Zcud6H0HYtTkabcg2zbkAClbk5T+VFdPqZJhykc
bX3JYWkh5pKfrxUbYt4qbfV8OUfsh5lwwFwucVwz3AFnMRvyd89J3OM9udmk+S2Y
o5ivunP8WoPv1XTQOhSeT6UBaQeCDIiv8wIDAQAB
-----END RSA PUBLIC KEY-----
"""


def der(tag: int, content: bytes) -> bytes:
    """Return an ASN.1 value."""
    size = len(content)
    length = bytes([size]) if size < 128 else b"\x82" + struct.pack(">H", size)
    return bytes([tag]) + length + content


def rsa_pem(modulus: bytes, exponent: bytes, behind: bytes = b"") -> bytes:
    """Return PKCS#1 PEM of these contents of the two integers."""
    value = der(0x30, der(2, modulus) + der(2, exponent)) + behind
    text = base64.b64encode(value)
    lines = [text[i : i + 64] for i in range(0, len(text), 64)]
    body = b"\n".join(lines)
    return b"-----BEGIN RSA PUBLIC KEY-----\n" + body + b"\n-----END RSA PUBLIC KEY-----\n"


def hostile_keys() -> dict[str, bytes]:
    """Public keys that a sender must refuse."""
    usual = b"\x00" + b"\xa5" * 256
    f4 = b"\x01\x00\x01"
    return {
        "exponent-1": rsa_pem(usual, b"\x01"),
        "exponent-even": rsa_pem(usual, b"\x01\x00\x00"),
        "exponent-2-64": rsa_pem(usual, b"\x01" + bytes(7) + b"\x01"),
        "modulus-16k": rsa_pem(b"\x00" + b"\xa5" * 2048, f4),
        "modulus-512": rsa_pem(b"\x00" + b"\xa5" * 64, f4),
        "modulus-negative": rsa_pem(b"\xa5" * 256, f4),
        "modulus-even": rsa_pem(usual[:-1] + b"\xa4", f4),
        "trailing": rsa_pem(usual, f4, b"\x05\x00"),
    }


def key_exchanges() -> dict[str, bytes]:
    """A byte of options, then what the peer says."""
    offer = b"FMTP-Extensions: 1\n"
    short = b"-----BEGIN RSA PUBLIC KEY-----\nMAkCAhERAgMBAAE=\n-----END RSA PUBLIC KEY-----\n"
    agreed = b"DPX1" + struct.pack(">HHIQ", 1448, 200, 7, 1 << 40)
    spki = b"-----BEGIN PUBLIC KEY-----\n" + b"A" * 60 + b"\n-----END PUBLIC KEY-----\n"
    k = {
        f"sender-{n}": bytes([1]) + struct.pack(">I", len(t)) + t
        for n, t in ({"short": short, "plain": PEM, "offer": PEM + offer} | hostile_keys()).items()
    }
    k["receiver-raw"] = bytes([2]) + struct.pack(">I", 256) + bytes(range(256))
    speaks = b"FMTP-Session: 2\n"
    said = {"speaks": speaks, "auth": speaks + b"FMTP-Auth: 1\n"}
    said["progress"] = speaks + b"FMTP-Progress: 1\n"
    for n, more in said.items():
        text = PEM + offer + more
        options = 1 | 32 | (64 if n == "auth" else 0)
        k[f"sender-{n}"] = bytes([options]) + struct.pack(">I", len(text)) + text
    k["sender-proof"] = k["sender-auth"] + struct.pack(">I", 32) + bytes(32)
    k["receiver-challenge"] = bytes([2 | 32 | 64]) + struct.pack(">I", 68) + b"DPC1" + bytes(64)
    for kind, size in ((0, 0), (1, 64), (2, 113), (3, 32)):
        ours = b"DPX2" + agreed[4:] + bytes([kind, 1]) + bytes(size)
        k[f"ours-{kind}"] = bytes([2 | 4 | 32]) + ours
    k["ours-progress"] = bytes([2 | 4 | 32]) + b"DPX2" + agreed[4:] + bytes([0, 3])
    for n, t in {"0": b"", "1": bytes(64), "2": spki}.items():
        k[f"level-{n}"] = bytes([4]) + t
        k[f"level-{n}-agreed"] = bytes([6]) + agreed + t
    return k


def corpora() -> dict[str, dict[str, bytes]]:
    """File contents by target and name."""
    d: dict[str, bytes] = {}
    c: dict[str, bytes] = {}
    s: dict[str, bytes] = {}
    for layout in (2017, 2021):
        d[f"whole-{layout}"] = datagrams(layout, product(layout, 0, 3000, set()))
        d[f"lost-data-{layout}"] = datagrams(layout, product(layout, 7, 6000, {2, 3}))
        d[f"lost-bop-{layout}"] = datagrams(layout, product(layout, 7, 3000, {0}) + [200])
        d[f"lost-tail-{layout}"] = datagrams(layout, product(layout, 1, 3000, {3, 4}) + [255])
        d[f"two-{layout}"] = datagrams(
            layout, product(layout, 0xFFFFFFFF, 100, {1}) + product(layout, 2, 1448, {2}) + [50]
        )
        d |= extended(layout)
        options = layout == 2021
        body = bop(layout, 9000)
        c[f"bop-{layout}"] = bytes([options]) + message(RETX_BOP, 2, 0, body)
        c[f"data-{layout}"] = bytes([options | 4]) + b"".join(
            message(RETX_DATA, 0, seq, bytes(min(BLOCK, 3000 - seq))) for seq in (0, 2896)
        )
        c[f"end-{layout}"] = bytes([options | 2]) + b"".join(
            message(flags, index)
            for flags, index in (
                (RETX_EOP, 0),
                (RETX_EOP, 9),
                (RETX_REJ, 1),
                (RETX_REJ, 2),
                (RETX_EOP, 1),
            )
        )
        c[f"not-yet-{layout}"] = bytes([options | 8]) + b"".join(
            message(NOT_YET, index, following, wanted=answers)
            for index, following, answers in (
                (9, 9, RETX_END),
                (3, 3, BOP_REQ),
                (2, 1, BOP_REQ),
                (3, 1, RETX_REQ),
                (1, 1, RETX_REQ),
                (1, 7, RETX_REQ),
            )
        )
        c[f"other-bop-{layout}"] = bytes([options | 8]) + message(RETX_BOP, 1, 0, bop(layout, 700))
        c[f"repair-{layout}"] = bytes([options | 8]) + b"".join(
            message(RETX_DATA, 1, seq, bytes(64)) for seq in (0, 128, 192)
        )
        last = 0xFFFFFFFF
        s[f"progress-{layout}"] = operations(
            layout,
            [
                (0, 100),
                (6, message(PROGRESS, last, 0, wanted=1)),
                (1, 255),
                (14, message(PROGRESS, last, 3000, wanted=1)),
                (22, message(PROGRESS, 5, 0) + message(PROGRESS, last, 0xFFFFFFFF, wanted=0xFFFF)),
                (2, 250),
                (1, 255),
            ],
            2 | 32,
        )
        s[f"serve-{layout}"] = operations(
            layout,
            [
                (0, 100),
                (1, 255),
                (6, message(BOP_REQ, last)),
                (6, message(RETX_REQ, last, 1448, wanted=4344)),
                (3, 75),
                (14, message(EOP_REQ, last)),
                (11, 255),
                (3, 10),
                (2, 255),
                (3, 255),
                (3, 255),
            ],
        )
        s[f"acknowledge-{layout}"] = operations(
            layout,
            [
                (0, 10),
                (6, message(RETX_END, last)),
                (14, message(RETX_END, last)),
                (1, 200),
                (22, message(RETX_END, last)),
                (0, 255),
                (5, 0),
                (1, 9),
                (6, message(RETX_REJ, 0)),
            ],
        )
        s[f"flood-{layout}"] = operations(
            layout,
            [(0, 255), (1, 255)]
            + [(6, b"".join(message(RETX_REQ, last, 2896 * i, wanted=1448) for i in range(20)))] * 3
            + [(3, 255), (2, 100)],
        )
    for name, mode, fec_k in (
        ("repair", 2, 5),
        ("repair-k100", 6, 100),
        ("repair-slow", 10, 5),
        ("repair-mixed", 18, 5),
    ):
        s[name] = operations(2021, repair_operations(fec_k), mode)
    return {
        "fmtp_datagram": d,
        "fmtp_stream_client": c,
        "fmtp_stream_server": s,
        "fmtp_keyx": key_exchanges(),
        "fmtp_batches": batched_inputs(),
    }


def main() -> None:
    """Writes corpus/<target>/<name>."""
    for target, files in corpora().items():
        folder = Path(__file__).parent / "corpus" / target
        folder.mkdir(parents=True, exist_ok=True)
        for name, content in files.items():
            (folder / name).write_bytes(content)


if __name__ == "__main__":
    main()
