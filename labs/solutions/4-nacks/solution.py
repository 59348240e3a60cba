# SPDX-License-Identifier: Apache-2.0
"""The instructor's answers to lab 4, from tshark and the logs alone:

    .venv/bin/python labs/solutions/4-nacks/solution.py WORK

prints the lines of answers.yaml for the student of that work directory, once both runs exist.
"""

import json
import math
import re
import subprocess
import sys
from pathlib import Path

from ruamel.yaml import YAML

ROOT = Path(__file__).resolve().parents[3]
DISSECTOR = ROOT / "tools/wireshark/fmtp.lua"
BOP, MEM_DATA, RETX_REQ, RETX_DATA, BOP_REQ = 0x1, 0x4, 0x8, 0x40, 0x80
FIELDS = ("frame.time_epoch", "ip.src", "ip.dst", "fmtpv3.flags", "fmtpv3.prodindex",
          "fmtpv3.seqnum", "fmtpv3.payloadlen")  # fmt: skip


def messages(capture: Path) -> list[tuple[float, str, str, int, int, int, int]]:
    """Return (seconds, from, to, type, product, offset, length) of each FMTP message."""
    argv = ["tshark", "-X", f"lua_script:{DISSECTOR}", "-r", str(capture), "-Y", "fmtpv3.flags"]
    for field in FIELDS:
        argv += ["-e", field]
    text = subprocess.run(
        [*argv, "-T", "fields"], capture_output=True, text=True, check=True
    ).stdout
    found = []
    for line in text.splitlines():
        time, source, target, *several = line.split("\t")
        # A segment may carry several messages: their fields are then in lists of the same length.
        for kind, index, seq, length in zip(*(s.split(",") for s in several), strict=True):
            head = (float(time), source, target, int(kind, 16))
            found.append((*head, int(index), int(seq), int(length)))
    return found


def cell_with(work: Path, loss_percent: int, *, captured: bool) -> Path:
    cells = (work / "runs/nacks").glob(f"[0-9]*/cells/ldm7-m4-r20-p{loss_percent}")
    return max(c for c in cells if not captured or (c / "captures").is_dir())


def datagrams(log: Path) -> int:
    return int(re.findall(r"FMTP (?:sender|receiver):.* datagrams=(\d+)", log.read_text())[-1])


def answers(work: Path) -> dict[str, float]:
    parameters = YAML(typ="safe").load((work / "parameters.yaml").read_text())
    host = parameters["receiver"]
    cell = cell_with(work, parameters["loss_percent"], captured=True)
    network = json.loads((cell / "network.json").read_text())
    address = next(h["nic1"]["ip"] for h in network["hosts"] if h["name"] == host)
    seen = messages(cell / "captures/tor-umass-newy.pcapng")
    asked = [m for m in seen if m[3] == RETX_REQ and m[1] == address]
    repairs = [m for m in seen if m[3] == RETX_DATA]
    blocks = [m for m in seen if m[3] == MEM_DATA]
    first = asked[0]
    sent = next(m for m in blocks if m[4:6] == first[4:6])
    repair = next(m for m in repairs if m[4:6] == first[4:6] and m[2] == address)
    more = cell_with(work, parameters["more_loss_percent"], captured=False)
    whole = [
        text == "0"
        for log in more.glob("logs/*.ldmd.log")
        for text in re.findall(r"Received: .*retrans: (\d+)", log.read_text())
    ]
    return {
        "products": sum(m[3] == BOP for m in seen),
        "blocks": len(blocks),
        "datagrams_lost": datagrams(cell / "logs/umass.ldmd.log")
        - datagrams(cell / f"logs/{host}.ldmd.log"),
        "blocks_asked_for": sum(math.ceil(m[6] / 1448) for m in asked),
        "bop_requests": sum(m[3] == BOP_REQ and m[1] == address for m in seen),
        "first_product": first[4],
        "first_offset": first[5],
        "asked_after_ms": round(1000 * (first[0] - sent[0]), 3),
        "answered_after_ms": round(1000 * (repair[0] - first[0]), 3),
        "retransmitted_bytes": sum(m[6] for m in repairs),
        "overhead_percent": round(100 * sum(m[6] for m in repairs) / sum(m[6] for m in blocks), 2),
        "products_without_repair_percent": round(100 * sum(whole) / len(whole), 2),
    }


if __name__ == "__main__":
    for name, value in answers(Path(sys.argv[1])).items():
        print(f"{name}: {value}")
