#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Peak memory of fcast-send and fcast-recv while a large file passes, 2 % of it lost.

Usage: memory.py FCAST-SEND FCAST-RECV. 96 MiB; with DOWNPOUR_TEST_LONG 4 GiB (minutes, 10 GB of
disk). Root; packets stay on the loopback of a network namespace. Exit status 77: skipped.
"""

from __future__ import annotations

import filecmp
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

from tests.tool_cases import Machine, Program, expect, run_cases

GROUP = "239.78.0.2:20079"
BOUND_BYTES = 64_000_000
MIB = 1 << 20
IS_LONG = "DOWNPOUR_TEST_LONG" in os.environ
LIMIT_S = 3000 if IS_LONG else 60


def peak_bytes(program: Program) -> int:
    """Return the peak of the resident memory of a program that runs."""
    for line in Path(f"/proc/{program.process.pid}/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    raise AssertionError("no VmHWM")


def case_memory(m: Machine) -> None:
    """Neither program holds more of the file than some blocks."""
    size = (4096 if IS_LONG else 96) * MIB
    big, got = m.work / "big", m.directory("got")
    with big.open("wb") as file:
        file.truncate(size)  # holes read as zeroes
        for at in range(0, size, 8 * MIB):
            file.seek(at)
            file.write(os.urandom(4096))
    loss = "-m statistic --mode random --probability 0.02 -j DROP"
    subprocess.run(f"iptables -w -A INPUT -p udp {loss}".split(), check=True)
    common = ["--group", GROUP, "--interface", "127.0.0.1"]
    receiver = m.start("recv", [m.recv_path, *common, "--mode", "satellite", str(got)])
    send = [m.send_path, *common, "--rate", "400M", "--overhead", "20", "--cache", str(m.work)]
    sender = m.start("send", [*send, str(big)])
    end = time.monotonic() + LIMIT_S
    while not (got / "big").exists():
        expect(time.monotonic() < end, f"no file within {LIMIT_S} s")
        expect(sender.process.poll() is None, sender.said())
        expect(receiver.process.poll() is None, receiver.said())
        time.sleep(0.02)
    peaks = {program.name: peak_bytes(program) for program in (sender, receiver)}
    receiver.process.terminate()
    receiver.process.wait()
    expect(filecmp.cmp(big, got / "big", shallow=False), "the bytes differ")
    expect(int(receiver.counts()["decoded_blocks"]) > 0, f"nothing was lost: {receiver.told()}")
    print(f"{size // MIB} MiB: peak bytes {peaks}; {receiver.told().splitlines()[-1]}")
    for name, peak in peaks.items():
        expect(peak <= BOUND_BYTES, f"{name}: {peak} bytes at the peak; valid: {BOUND_BYTES}")


if __name__ == "__main__":
    if shutil.which("iptables") is None:
        print("SKIPPED: no iptables")
        sys.exit(77)
    sys.exit(run_cases({"memory": case_memory}, Machine))
