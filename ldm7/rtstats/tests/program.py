#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""rtstats over a real queue: files, EXP products. Usage: program.py RTSTATS TOOLS_DIRECTORY."""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path


def expect(condition: bool, text: str) -> None:
    if not condition:
        raise AssertionError(text)


def main() -> None:
    rtstats, tools = sys.argv[1:3]
    with tempfile.TemporaryDirectory(prefix="rtstats-") as name:
        top = Path(name)
        queue = top / "queue"
        subprocess.run([f"{tools}/pqcreate", "-s", "1m", "-S", "100", "-q", queue], check=True)
        files = []
        for number, size in enumerate((100, 300, 600)):
            files.append(top / f"p{number}")
            files[-1].write_bytes(bytes([number]) * size)
        insert = [f"{tools}/pqinsert", "-q", queue, "-f", "NGRID"]
        subprocess.run([*insert, files[0]], check=True)
        command = [rtstats, "-q", queue, "-H", "here.example", "--insert"]
        command += ["--classic", top / "classic", "--minutes", top / "minutes"]
        process = subprocess.Popen([*command, "-o", "3600"])
        subprocess.run([*insert, files[1], files[2]], check=True)
        time.sleep(0.5)
        process.terminate()
        expect(process.wait(timeout=20) == 0, "exit 0 at SIGTERM")
        columns = (top / "classic").read_text().split()
        expect(len(columns) == 11, f"11 columns: {columns}")
        expect(columns[2:4] == ["here.example", "NGRID"], f"host and feed: {columns}")
        expect(columns[5:7] == ["3", "1000"], f"3 products, 1000 bytes: {columns}")
        expect(re.fullmatch(r"\d+@\d{4}", columns[9]) is not None, f"max@mmss: {columns}")
        records = [line.split(",") for line in (top / "minutes").read_text().splitlines()]
        expect(all(len(record) == 14 for record in records), f"14 fields: {records}")
        for field, total in ((3, 1000), (4, 1000), (5, 3), (6, 3)):
            found = sum(int(record[field]) for record in records)
            expect(found == total, f"field {field}: {found}, not {total}")
        listed = subprocess.run(
            [f"{tools}/pqcat", "-q", queue, "-f", "EXP", "--list"],
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        expect(
            re.search(r" rtstats-[\d.]+/here\.example/NGRID/\S+$", listed, re.M) is not None, listed
        )
        expect(
            re.search(r" ldm7-rtstats-[\d.]+/here\.example/NGRID$", listed, re.M) is not None,
            listed,
        )
        nothing = subprocess.run([rtstats, "-q", queue], capture_output=True, text=True)
        expect(nothing.returncode == 2 and "--minutes FILE" in nothing.stderr, nothing.stderr)
    print("ok")


main()
