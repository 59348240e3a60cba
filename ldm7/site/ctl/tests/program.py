#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""ldmctl with the real programs on loopback. Usage: program.py LDMCTL TOOLS_DIRECTORY EXAMPLES."""

from __future__ import annotations

import os
import pwd
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tests.tool_cases import expect, wait_for


def free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return int(s.getsockname()[1])


class Site:
    def __init__(self, top: Path, ldmctl: str, tools: str) -> None:
        self.top, self.ldmctl = top, ldmctl
        self.env = dict(
            os.environ, PATH=f"{tools}:{tools}/ldmd:{tools}/site/pqact:{os.environ['PATH']}"
        )
        self.file, self.port = top / "ldm.env", free_port()
        self.settings = {
            "LDM_CONF": f"{top}/ldmd.conf",
            "LDM_PQACT_CONF": f"{top}/pqact.conf",
            "LDM_SCOUR_CONF": f"{top}/scour.conf",
            "LDM_QUEUE": f"{top}/q/queue",
            "LDM_QUEUE_SIZE": "100k",
            "LDM_QUEUE_SLOTS": "4",
            "LDM_DATA_DIR": f"{top}/data",
            "LDM_LOG": f"{top}/log/ldmd.log",
            "LDM_LOG_COUNT": "2",
            "LDM_PID_FILE": f"{top}/run/ldmd.pid",
            "LDM_IP": "127.0.0.1",
            "LDM_PORT": str(self.port),
            "LDM_USER": pwd.getpwuid(os.geteuid()).pw_name,
        }
        (top / "data").mkdir()
        self.write()

    def write(self, **more: str) -> None:
        lines = [f"{name}={value}\n" for name, value in (self.settings | more).items()]
        self.file.write_text("# a comment\n\n" + "".join(lines))

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["sh", self.ldmctl, "-c", self.file, *arguments],
            env=self.env,
            text=True,
            capture_output=True,
            timeout=60,
        )

    def ok(self, *arguments: str) -> str:
        done = self.run(*arguments)
        expect(done.returncode == 0, f"{arguments}: {done.returncode}\n{done.stdout}{done.stderr}")
        return done.stdout

    def no(self, status: int, text: str, *arguments: str) -> None:
        done = self.run(*arguments)
        found = done.stdout + done.stderr
        expect(done.returncode == status, f"{arguments}: {done.returncode}, not {status}: {found}")
        expect(text in found, f"{arguments}: no {text!r} in {found!r}")

    def insert(self, name: str, text: str) -> None:
        path = self.top / name
        path.write_text(text)
        command = ["pqinsert", "-q", self.settings["LDM_QUEUE"], "-f", "EXP", path]
        subprocess.run(command, check=True, env=self.env)


def configuration(site: Site) -> None:
    shown = site.ok("config")
    expect(f"LDM_PORT={site.port}\n" in shown and "LDM_RESIDENCE_S=3600\n" in shown, shown)
    for line, text in (
        ("LDM_FOO=1", 'ldm.env:16: found "LDM_FOO=1"; valid: NAME=VALUE'),
        ("LDM_PORT=70000", 'ldm.env:16: found "LDM_PORT=70000"; valid: a whole number from 1 to'),
        ("LDM_PORT=1 2", 'found "LDM_PORT=1 2"'),
        ("LDM_LOG=log", "an absolute path"),
        ("LDM_USER=a b", 'found "LDM_USER=a b"; valid: the name of a user'),
        ("LDM_LOG", 'found "LDM_LOG"'),
    ):
        site.write()
        with site.file.open("a") as f:
            f.write(line + "\n")
        site.no(2, text, "config")
    site.write(LDM_OPTIONS='"$(touch /tmp/never) `touch never` ; -v"')
    expect("LDM_OPTIONS=$(touch /tmp/never) `touch never` ; -v\n" in site.ok("config"), "verbatim")
    site.write()
    site.no(2, 'unknown verb "frob"', "frob")
    site.no(2, 'start: found "-q"; valid: -v, -x', "start", "-q")
    site.no(2, "valid: no argument", "stop", "x")
    expect("vetqueuesize" in site.ok("--help"), "help")


def life(site: Site) -> None:
    pid_file = Path(site.settings["LDM_PID_FILE"])
    conf = Path(site.settings["LDM_CONF"])
    site.no(1, "ldmd is not running", "isrunning")
    conf.write_text("FROB\n")
    site.no(2, f'{conf}:1: found "FROB"', "start")
    pqact = f"pqact -q {site.settings['LDM_QUEUE']} -d {site.top}/data {site.top}/pqact.conf"
    conf.write_text(f'ALLOW ANY .*\nEXEC "{pqact}"\n')
    Path(site.settings["LDM_PQACT_CONF"]).write_text("EXP\t.\tFILL\tone\n")
    site.no(2, 'found "FILL"', "start")
    Path(site.settings["LDM_PQACT_CONF"]).write_text("EXP\t.\tFILE\tone\n")
    other = site.top / "other.conf"  # the one that ldmd.conf names
    other.write_text("EXP\t^(unclosed\tFILE\tone\n")
    conf.write_text(f'ALLOW ANY .*\nEXEC "{pqact.replace("pqact.conf", "other.conf")}"\n')
    for verb in ("start", "check", "restart"):
        site.no(2, f'{other}:1: found "^(unclosed"', verb)
    conf.write_text(f'ALLOW ANY .*\nEXEC "{pqact}"\n')
    site.no(1, "ldmctl mkqueue creates it", "start")
    site.ok("mkqueue")
    site.no(2, "exists", "mkqueue")
    expect("is valid: 1 entry" in site.ok("check"), "check")
    site.ok("start", "-v")
    expect(
        site.ok("isrunning") == f"ldmd is running (process {pid_file.read_text().strip()})\n",
        "runs",
    )
    site.no(1, "is already running", "start")
    site.no(1, "stop it before", "delqueue")
    site.no(1, "nothing to clean", "clean")
    with socket.create_connection(("127.0.0.1", site.port)):
        pass
    site.insert("a", "a")
    wait_for("FILE one", lambda: (site.top / "data/one").exists())
    Path(site.settings["LDM_PQACT_CONF"]).write_text("EXP\t.\tFIL\ttwo\n")
    site.no(2, 'found "FIL"', "pqactHUP")
    Path(site.settings["LDM_PQACT_CONF"]).write_text("EXP\t.\tFILE\ttwo\n")
    site.ok("pqactcheck")
    site.ok("pqactHUP")
    time.sleep(1)
    site.insert("b", "b")
    wait_for("FILE two", lambda: (site.top / "data/two").exists())
    expect("Starting Up" in site.ok("log"), "log")
    for _ in range(3):
        site.ok("newlog")
        wait_for("new log", lambda: Path(site.settings["LDM_LOG"]).exists())
    expect(
        sorted(p.name for p in (site.top / "log").iterdir())
        == ["ldmd.log", "ldmd.log.1", "ldmd.log.2"],
        "two old logs are kept",
    )
    before = pid_file.read_text()
    site.ok("restart")
    expect(pid_file.read_text() != before, "another process")
    expect("\nldmd port=" in site.ok("stats"), "counters")
    shown = site.ok("stats", "--prometheus").splitlines()
    expect(
        f'downpour_ldmd_refused_total{{program="ldmd",port="{site.port}"}} 0' in shown, f"{shown}"
    )
    expect("# TYPE downpour_queue_products gauge" in shown, "the queue's counters")
    site.no(2, 'stats: found "-x"; valid: --prometheus', "stats", "-x")
    expect(site.ok("stop") == "ldmd has ended\n", "stop")
    expect("\nldmd port=" not in site.ok("stats"), "counters of an ldmd that has ended")
    site.no(1, "ldmd is not running", "stop")
    expect(not pid_file.exists(), "no process file")
    pid_file.write_text(f"{os.getpid()}\n")
    site.no(1, "ldmd is not running", "isrunning")
    site.ok("clean")
    expect(not pid_file.exists(), "clean")


def queue(site: Site) -> None:
    site.ok("mkqueue", "-c")
    site.no(1, "no product", "checkinsertion")
    expect("no product has made room" in site.ok("vetqueuesize"), "empty")
    for name in "cdefg":
        site.insert(name, name)
    expect("the last insertion was" in site.ok("checkinsertion"), "insertion")
    site.no(1, "wanted: 3600", "vetqueuesize")
    site.write(LDM_RESIDENCE_S="1")
    time.sleep(1.1)
    site.write()
    site.ok("delqueue")
    site.no(1, "does not exist", "delqueue")


def watch(site: Site) -> None:
    site.ok("mkqueue")
    site.ok("queuecheck")
    site.insert("before", "before")
    command = ["sh", site.ldmctl, "-c", str(site.file), "watch"]
    with subprocess.Popen(command, env=site.env, text=True, stderr=subprocess.PIPE) as process:
        assert process.stderr is not None
        time.sleep(0.5)
        site.insert("seen", "seen")
        line = process.stderr.readline()
        process.terminate()
    expect(line.rstrip().endswith("/seen") and " EXP 000  " in line, line)


def scour(site: Site) -> None:
    data, other = site.top / "data", site.top / "other"
    (data / "old/deep").mkdir(parents=True)
    other.mkdir()
    for path in (data / "old/deep/a.x", data / "old/b.y", data / "new.x", other / "c.x"):
        path.write_text("")
    (data / "link").symlink_to(other)
    (data / "old/empty").mkdir()
    ten_days_ago = time.time() - 10 * 86400
    for path in (data / "old/deep/a.x", data / "old/b.y", other / "c.x", data / "old/empty"):
        os.utime(path, (ten_days_ago, ten_days_ago))
    conf = Path(site.settings["LDM_SCOUR_CONF"])
    conf.write_text(f"# old files\n{data} 11\n{data} 9 *.x\n")
    expect(site.ok("scour", "-n") == f"{data}/old/deep/a.x\n", "shown only")
    site.ok("scour")
    left = {str(p.relative_to(site.top)) for p in (*data.rglob("*"), *other.rglob("*"))}
    expect("data/old/deep/a.x" not in left, f"{left}")
    expect({"data/old/b.y", "data/new.x", "other/c.x", "data/old/deep"} <= left, f"{left}")
    expect("data/old/empty" not in left, "empty directories that are old go too")
    os.utime(data / "new.x", (ten_days_ago, ten_days_ago))
    for line in ("/ 1", "relative 1", f"{data} x", f"{data}/../other 1", f"{data} 1 a b"):
        conf.write_text(f"{data} 1 *.x\n{line}\n")
        site.no(2, f"{conf}:2: found", "scour")
    expect((data / "new.x").exists(), "nothing is deleted if a line is wrong")


def examples(site: Site, directory: Path) -> None:
    shutil.copy(directory / "ldm.env", site.file)
    expect("LDM_QUEUE_SIZE=2g\n" in site.ok("config"), "example of the site file")
    for program, arguments in (("ldmd", ["-n", "ldmd.conf"]), ("pqact", ["--check", "pqact.conf"])):
        command = [program, arguments[0], directory / arguments[1]]
        done = subprocess.run(command, env=site.env, capture_output=True, text=True)
        expect(done.returncode == 0, done.stderr)


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="ldmctl-") as name:
        site = Site(Path(name), sys.argv[1], sys.argv[2])
        try:
            for test in (configuration, life, queue, watch, scour):
                test(site)
                print(f"ok: {test.__name__}")
            examples(site, Path(sys.argv[3]))
        finally:
            site.run("stop")


main()
