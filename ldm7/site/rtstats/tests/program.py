#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""rtstats over a real queue: files, EXP products. Usage: program.py RTSTATS TOOLS_DIRECTORY."""

from __future__ import annotations

import os
import pwd
import re
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tests.tool_cases import expect


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as s:
        return int(s.getsockname()[1])


def until_read(argv: list[str | Path]) -> str:
    """Runs rtstats until it has read a product; what it says until its end."""
    with subprocess.Popen([*argv, "-x"], stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        for line in process.stderr:
            if " NGRID " in line:
                break
        process.terminate()
        _, said = process.communicate(timeout=60)
    expect(process.returncode == 0, f"exit 0 at SIGTERM, not {process.returncode}: {said}")
    return said


def check_server(top: Path, rtstats: str, tools: str, queue: Path) -> None:
    """-h: both forms reach a server that accepts them; one that does not respond is only logged."""
    port = str(free_port())
    there, conf = top / "there", top / "ldmd.conf"
    subprocess.run([f"{tools}/pqcreate", "-s", "1m", "-S", "100", "-q", there], check=True)
    conf.write_text('ACCEPT EXP ".*" ".*"\n')
    argv: list[str | Path] = [rtstats, "-q", queue]
    argv += ["-H", "here.example", "-o", "3600", "-h", "127.0.0.1", "-P", port]
    said = until_read(argv)
    expect("for the next time" in said, said)
    user = ("--user", pwd.getpwuid(os.geteuid()).pw_name)
    ldmd = subprocess.Popen(
        [
            f"{tools}/ldmd/ldmd",
            *user,
            "-f",
            "-q",
            there,
            "-P",
            port,
            "-I",
            "127.0.0.1",
            "-l",
            "-",
            conf,
        ]
    )
    try:
        end = time.monotonic() + 30
        while subprocess.run([f"{tools}/ldmd/ldmping", f"127.0.0.1:{port}"]).returncode:
            expect(time.monotonic() < end, "ldmd answers")
            time.sleep(0.05)
        said = until_read(argv)
        expect("kept for" not in said, said)
        listed = subprocess.run(
            [f"{tools}/pqcat", "-q", there, "--list"], capture_output=True, text=True, check=True
        ).stdout
    finally:
        ldmd.terminate()
        ldmd.wait(timeout=20)
    idents = [line.split()[2] for line in listed.splitlines()]
    kinds = [ident.split("-")[0] for ident in idents]
    expect(kinds.count("rtstats") >= 1, f"classic lines: {listed}")
    expect(kinds.count("ldm7") >= 1, f"minute records: {listed}")
    expect(all("/here.example/NGRID" in ident for ident in idents), listed)


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
            re.search(r" rtstats-[\w.+]+/here\.example/NGRID/\S+$", listed, re.M) is not None,
            listed,
        )
        expect(
            re.search(r" ldm7-rtstats-[\w.+]+/here\.example/NGRID$", listed, re.M) is not None,
            listed,
        )
        check_server(top, rtstats, tools, queue)
        nothing = subprocess.run([rtstats, "-q", queue], capture_output=True, text=True)
        expect(nothing.returncode == 2 and "--minutes FILE" in nothing.stderr, nothing.stderr)
    print("ok")


main()
