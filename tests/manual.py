#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Check manual pages: each installed program has one, with exactly the options of its --help.

Usage: manual.py BUILD. mandoc, or else man, checks the pages' form. The settings of ldmd.conf(5)
and the verbs of ldmctl(8) must be those that the programs print.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

OPTION = re.compile(r"(?<![\w./-])(-[A-Za-z](?![\w-])|--[A-Za-z][\w-]*)")


def installed(build: Path) -> tuple[dict[str, Path], dict[str, Path]]:
    """Return the programs and manual pages (name -> file here) that `meson install` installs."""
    programs: dict[str, Path] = {}
    pages: dict[str, Path] = {}
    places = json.loads((build / "meson-info/intro-installed.json").read_text())
    for here, there in places.items():
        folder = Path(there).parent
        if folder.name in ("bin", "sbin"):
            programs[Path(there).name] = Path(here)
        elif folder.parent.name == "man":
            pages[Path(there).name] = Path(here)
    return programs, pages


def said(program: Path, *arguments: str) -> str:
    # Meson makes a script executable only when it installs it.
    command = [str(program)] if os.access(program, os.X_OK) else ["sh", str(program)]
    found = subprocess.run([*command, *arguments], capture_output=True, text=True, timeout=30)
    return found.stdout + found.stderr


def options_of_page(text: str) -> set[str]:
    return {f"-{name}" for name in re.findall(r"\bFl (-?[A-Za-z][\w-]*)", text)}


def differences(what: str, program: set[str], page: set[str]) -> list[str]:
    missing = [
        f"{what}: {one} is in the program, not in the page" for one in sorted(program - page)
    ]
    return missing + [
        f"{what}: {one} is in the page, not in the program" for one in sorted(page - program)
    ]


def items(page: str) -> set[str]:
    """Return the names in `.It Cm name` lines, where commas separate several."""
    found: set[str] = set()
    for line in re.findall(r"^\.It Cm (.*)$", page, re.M):
        words = line.split()
        found.add(words[0])
        found.update(words[i + 1] for i, word in enumerate(words[:-1]) if word == ",")
    return found


def settings(ldmd: Path, build: Path) -> set[str]:
    conf = build / "manual-test.conf"
    conf.write_text("SET no.such 1\n")
    text = said(ldmd, "-n", str(conf))
    conf.unlink()
    return set(re.findall(r"[a-z0-9]+\.[a-z0-9_]+", text.partition("valid: ")[2]))


def lint(page: Path) -> str:
    if shutil.which("mandoc"):
        command = ["mandoc", "-Tlint", "-W", "warning", str(page)]
    elif shutil.which("man"):
        command = ["man", "--warnings", "-E", "UTF-8", "-Tutf8", "-Z", "-l", str(page)]
        env = dict(os.environ, MANWIDTH="100", LC_ALL="C.UTF-8")
        return subprocess.run(command, capture_output=True, text=True, env=env).stderr
    else:
        return ""
    done = subprocess.run(command, capture_output=True, text=True)
    return done.stdout + done.stderr


def problems(build: Path) -> list[str]:
    programs, pages = installed(build)
    found = [] if programs and pages else ["nothing is installed"]
    for name, program in sorted(programs.items()):
        page = next(
            (p for n, p in pages.items() if re.fullmatch(rf"{re.escape(name)}\.\d", n)), None
        )
        if page is None:
            found.append(f"{name}: no manual page is installed")
            continue
        text = page.read_text()
        # "(pqmon -S)" in the help of another program is not its own option.
        others = "|".join(re.escape(other) for other in programs if other != name)
        usage = re.sub(rf"\b(?:{others}) -\S+", "", said(program, "--help"))
        if name == "wire-relay":  # it has no options
            usage = ""
        found += differences(page.name, set(OPTION.findall(usage)), options_of_page(text))
        if name == "ldmctl":
            verbs = set(re.findall(r"^  ([a-zA-Z]+)(?=[ ;])", usage, re.M)) | {"tail"}
            found += differences(page.name, verbs, items(text))
        if name == "ldmd":
            conf = pages["ldmd.conf.5"].read_text()
            found += differences("ldmd.conf.5", settings(program, build), items(conf))
    for page in pages.values():
        found += lint(page).splitlines()
    return found


def main() -> int:
    found = problems(Path(sys.argv[1]))
    for one in found:
        print(one)
    if not shutil.which("mandoc") and not shutil.which("man"):
        print("the pages' form was NOT checked: found neither mandoc nor man")
    return 1 if found else 0


sys.exit(main())
