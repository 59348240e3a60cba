#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""pqact as a process: state, signals, waking up. Usage: program.py PQACT TOOLS_DIRECTORY."""

from __future__ import annotations

import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tests.tool_cases import expect, wait_for


class Site:
    def __init__(self, pqact: str, tools: str, top: Path) -> None:
        self.pqact, self.tools, self.top, self.number = pqact, tools, top, 0
        self.queue, self.conf, self.data = top / "queue", top / "pqact.conf", top / "data"
        self.data.mkdir()
        subprocess.run(
            [f"{tools}/pqcreate", "-s", "10m", "-S", "100", "-q", self.queue], check=True
        )

    def insert(self, text: str) -> None:
        self.number += 1
        path = self.top / f"p{self.number}"
        path.write_text(text)
        subprocess.run([f"{self.tools}/pqinsert", "-q", self.queue, "-f", "EXP", path], check=True)

    def arguments(self, *more: str) -> list[str]:
        return [self.pqact, "-q", str(self.queue), "-d", str(self.data), *more, str(self.conf)]

    def once(self, *more: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            self.arguments("-i", "0", *more), text=True, capture_output=True, timeout=60
        )

    def start(self, *more: str) -> subprocess.Popen[bytes]:
        return subprocess.Popen(self.arguments("-i", "1000", "-l", f"{self.top}/log", *more))

    def log(self) -> str:
        return (self.top / "log").read_text()

    def filed(self, name: str = "all") -> str:
        path = self.data / name
        return path.read_text() if path.exists() else ""


def resumes(site: Site) -> None:
    site.conf.write_text("ANY\t.\tFILE\tall\n")
    site.insert("a")
    site.insert("b")
    done = site.once()
    expect(done.returncode == 0, done.stderr)
    expect(site.filed() == "ab", f"the whole queue the first time: {site.filed()}")
    expect("products=2 matched=2 actions=2 refused=0 failed=0" in done.stderr, done.stderr)
    site.once()
    expect(site.filed() == "ab", "nothing twice")
    site.insert("c")
    site.once()
    expect(site.filed() == "abc", "only what is new")
    expect(Path(f"{site.conf}.state").read_text().count("\n") == 1, "the state is one line")


def wakes_and_rereads(site: Site) -> None:
    """An interval of 1000 s: only an insertion's notice can wake it."""
    process = site.start()
    site.insert("d")
    wait_for("product d", lambda: site.filed().endswith("d"))
    site.conf.write_text("ANY\t.\tFILE\tall\nANY\t(.\tFILE\tother\n")
    process.send_signal(signal.SIGHUP)
    wait_for("message of the bad one", lambda: "previous configuration stays in use" in site.log())
    site.insert("e")
    wait_for("old configuration after a bad one", lambda: site.filed().endswith("e"))
    site.conf.write_text("ANY\t.\tFILE\tother\n")
    process.send_signal(signal.SIGHUP)
    wait_for("message of the new one", lambda: "read again: 1 entry" in site.log())
    site.insert("f")
    wait_for("new configuration", lambda: site.filed("other") == "f")
    expect(site.filed() == "abcde", site.filed())
    again = site.once()
    expect(again.returncode == 1 and "is in use" in again.stderr, f"two at once: {again.stderr}")
    process.send_signal(signal.SIGTERM)
    expect(process.wait(timeout=30) == 0, site.log())
    expect('pqact.conf:2: found "(.": ' in site.log(), site.log())


def survives_kill(site: Site) -> None:
    site.conf.write_text("ANY\t.\tFILE\tkilled\n")
    process = site.start()
    site.insert("g")
    wait_for("product g", lambda: site.filed("killed") == "g")
    time.sleep(0.2)
    process.kill()
    process.communicate()
    site.insert("h")
    site.once()
    expect(site.filed("killed") == "gh", "does not continue after the last one after kill -9")


def stops_with_pipes(site: Site) -> None:
    """Programs at the pipes get their end of input and may finish."""
    site.conf.write_text(
        f"ANY\t.\tPIPE\tsh -c 'cat > $0; sleep 0.3; echo done >> $0' {site.data}/piped\n"
    )
    process = site.start()
    site.insert("i")
    wait_for("program", lambda: site.filed("piped") == "i")
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=30)
    expect(site.filed("piped") == "idone\n", site.filed("piped"))


def selects(site: Site) -> None:
    """Feed, pattern and age; each time from the beginning, with its own state."""
    site.conf.write_text("ANY\t(.)$\tFILE\tselected/\\1\n")

    def chosen(name: str, *options: str) -> list[str]:
        done = site.once("--state", str(site.top / name), *options)
        expect(done.returncode == 0, done.stderr)
        folder = site.data / "selected"
        found = sorted(p.name for p in folder.iterdir()) if folder.exists() else []
        for one in found:
            (folder / one).unlink()
        return found

    everything = chosen("s1")
    expect(len(everything) == site.number, f"{everything}")
    expect(chosen("s2", "-p", "[12]$") == ["1", "2"], "pattern")
    expect(chosen("s3", "-f", "NGRID") == [], "feed")
    expect(chosen("s4", "-f", "ANY - NGRID", "-o", "3600") == everything, "age")
    time.sleep(1.1)
    expect(chosen("s5", "-o", "0") == [], "nothing is as young")


def messages(site: Site) -> None:
    site.conf.write_text("ANY\tx\tFILE\t/etc/passwd\nANY\tx\tFROB\n")
    bad = site.once("--check")
    expect(bad.returncode == 2, "exit 2")
    expect(
        f"{site.conf}:1: found" in bad.stderr and f"{site.conf}:2: found" in bad.stderr, bad.stderr
    )
    site.conf.write_text("ANY\tx\tNOOP\n")
    good = site.once("--check")
    expect(good.returncode == 0 and good.stdout == f"{site.conf} is valid: 1 entry\n", good.stdout)
    log = site.top / "pqact.log"
    expect(site.once("--check", "-l", str(log)).returncode == 0 and not log.exists(), "no log")
    expect(site.once("-l", str(log)).returncode == 0 and log.exists(), "a log")
    for arguments, text in (
        (("-t", "x"), 'found "x"; valid: a number'),
        (("-p", "("), 'found "("'),
        (("--state", "/nonexistent/s"), "--state names another place"),
        (("-d", "/nonexistent"), 'data directory "/nonexistent"'),
    ):
        bad = site.once(*arguments)
        expect(bad.returncode in (1, 2) and text in bad.stderr, f"{arguments}: {bad.stderr}")
    Path(f"{site.conf}.state").write_text("something else\n")
    bad = site.once()
    expect(bad.returncode == 1 and "is not a state file" in bad.stderr, bad.stderr)


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="pqact-") as top:
        site = Site(sys.argv[1], sys.argv[2], Path(top))
        for test in (
            resumes,
            wakes_and_rereads,
            survives_kill,
            stops_with_pipes,
            selects,
            messages,
        ):
            test(site)
            print(f"ok: {test.__name__}")


main()
