# SPDX-License-Identifier: Apache-2.0
"""The playbooks can be read, and the copy of a checkout is exact and repeatable."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path, PurePosixPath
from typing import Any, Final

import pytest
from ruamel.yaml import YAML

ANSIBLE = Path(__file__).resolve().parents[1]
ROOT = ANSIBLE.parent
NAMES = sorted(path.stem for path in (ANSIBLE / "playbooks").glob("*.yml"))
FILES = ANSIBLE / "roles/checkout/files"


def play(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([ANSIBLE / "play", *words], capture_output=True, text=True, timeout=300)


def test_which_playbooks_there_are() -> None:
    assert NAMES == ["build", "class", "down", "experiment", "fetch", "install", "up", "workflow"]


@pytest.mark.parametrize("words", [(), ("upp",)])
def test_unknown_playbooks_are_refused_in_one_line(words: tuple[str, ...]) -> None:
    done = play(*words)
    assert done.returncode == 2
    assert done.stderr.strip() == (
        f'ansible/play: found "{"".join(words)}"; valid: {" ".join(NAMES)}'
    )


@pytest.mark.parametrize(
    "words",
    [
        ("-e", "topo=drfsm8"),
        ("-e", "clock=virtual topo=drfsm8"),
        ("-etopo=drfsm8",),
        ("--extra-vars", "clock=virtual", "--extra-vars=topo=drfsm8"),
    ],
)
def test_an_unknown_variable_is_refused_in_one_line(words: tuple[str, ...]) -> None:
    """Ansible itself ignores it, and would bring up the default."""
    done = play("up", "--check", *words)
    assert done.returncode == 2
    assert done.stderr.startswith(
        'ansible/play: found -e "topo=drfsm8"; valid: NAME=VALUE with a NAME of again '
    )
    assert "downpour_root" in done.stderr and " topology " in done.stderr
    assert len(done.stderr.splitlines()) == 1 and not done.stdout


@pytest.mark.parametrize(
    ("given", "passed"),
    [
        ("arguments=--only protocol=ldm7", "arguments='--only protocol=ldm7'"),
        ("clock=virtual arguments=--jobs 1", "clock='virtual' arguments='--jobs 1'"),
        ("path_rate=", "path_rate=''"),
        ("arguments='--jobs 1'", "arguments='--jobs 1'"),
        ('{"arguments": "--jobs 1"}', '{"arguments": "--jobs 1"}'),
    ],
)
def test_values_keep_their_spaces(given: str, passed: str, tmp_path: Path) -> None:
    """Ansible keeps only the first word of a value without quotes."""
    stand_in = tmp_path / "ansible-playbook"
    stand_in.write_text('#!/bin/sh\nprintf "%s\\n" "$@"\n')
    stand_in.chmod(0o755)
    done = subprocess.run(
        [ANSIBLE / "play", "experiment", "-e", given],
        env={**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[1:] == ["-e", passed]


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("ansible-playbook") is None, reason="Ansible is not installed")
@pytest.mark.parametrize("name", ["workflow", "up", "down", "class"])
def test_every_playbook_can_be_read(name: str) -> None:
    """The workflow imports install, build, experiment and fetch."""
    done = play(name, "--syntax-check", "-i", str(ANSIBLE / "inventory.example.yml"))
    assert done.returncode == 0, done.stderr


# What must have happened before what, and why.
SEATS_ORDER: Final = {
    ("Make the class's group", "Make accounts"): "accounts join the group",
    ("Read which accounts exist", "Draw passwords for new accounts"): "only new ones get one",
    ("Draw passwords for new accounts", "Write the new passwords"): "that is what is written",
    ("Write the new passwords", "Make accounts"): "an interrupted play must not lose passwords",
    ("Make accounts", "Link the checkout into each home directory"): "the home directories exist",
    ("Hide the solutions from students", "Try a seat"): "a student runs a command there",
    ("Create the queue of guests", "Create the places of guests"): "places are files in it",
    ("Install a web terminal", "Start the web terminal"): "its socket exists",
}
# Directories that Debian's base system has, or that packages of earlier tasks bring.
SYSTEM_DIRECTORIES: Final = {"/etc/security/limits.d", "/etc/tmpfiles.d", "/home/{{ item }}"}


def seat_tasks() -> list[dict[str, Any]]:
    """Return the tasks of `ansible/play class` that make seats."""
    tasks: list[dict[str, Any]] = YAML(typ="safe").load(
        (ANSIBLE / "roles/seats/tasks/present.yml").read_text()
    )
    return tasks


def test_the_seats_are_made_in_the_order_that_they_need() -> None:
    names = [task["name"] for task in seat_tasks()]
    assert len(set(names)) == len(names)
    for (first, second), why in SEATS_ORDER.items():
        assert names.index(first) < names.index(second), f"{first} before {second}: {why}"


def test_every_file_of_the_seats_has_its_directory() -> None:
    """The system has it, or an earlier task makes it."""
    made = set(SYSTEM_DIRECTORIES)
    files = 0
    for task in seat_tasks():
        file = task.get("ansible.builtin.file", {})
        if file.get("state") == "directory":
            below = [item["path"] for item in task.get("loop", [])] or [""]
            made |= {file["path"].replace("{{ item.path }}", path) for path in below}
        for module in ("copy", "template", "file"):
            dest = task.get(f"ansible.builtin.{module}", {}).get("dest")
            if dest is not None:
                assert str(PurePosixPath(dest).parent) in made, f"{task['name']}: {dest}"
                files += 1
    assert files >= 5


def git(checkout: Path, *words: str) -> None:
    identity = ("-c", "user.name=t", "-c", "user.email=t@example.org")
    subprocess.run(["git", *identity, *words], cwd=checkout, check=True, capture_output=True)


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    made = tmp_path / "checkout"
    (made / "tools").mkdir(parents=True)
    shutil.copy(ROOT / "tools/version", made / "tools/version")
    (made / "CHANGELOG.md").write_text("## [1.2.3]\n")
    (made / "a file.txt").write_text("one\n")
    (made / "gone.txt").write_text("soon gone\n")
    (made / ".gitignore").write_text("/build/\n")
    (made / "build").mkdir()
    (made / "build/program").write_text("not copied\n")
    git(made, "init", "-q")
    git(made, "add", "-A")
    git(made, "commit", "-qm", "first")
    return made


def pack(checkout: Path, archive: Path) -> str:
    argv = [FILES / "pack", checkout, archive]
    return subprocess.run(argv, check=True, capture_output=True, text=True).stdout.strip()


def unpack(directory: Path, archive: Path, digest: str) -> None:
    subprocess.run([FILES / "unpack", directory, archive, digest], check=True)


@pytest.mark.slow
def test_the_same_files_give_the_same_archive(checkout: Path, tmp_path: Path) -> None:
    first = pack(checkout, tmp_path / "first.tar")
    os.utime(checkout / "a file.txt", (1, 1))
    assert pack(checkout, tmp_path / "second.tar") == first
    (checkout / "a file.txt").write_text("two\n")
    assert pack(checkout, tmp_path / "third.tar") != first


@pytest.mark.slow
def test_the_copy_is_the_checkout_as_it_is_now(checkout: Path, tmp_path: Path) -> None:
    there, archive = tmp_path / "there", tmp_path / "archive.tar"
    unpack(there, archive, pack(checkout, archive))
    assert (there / "a file.txt").read_text() == "one\n"
    assert (there / "VERSION").read_text() == "1.2.4.dev0\n"
    assert not (there / "build").exists()
    commit = (there / ".checkout-commit").read_text().split()
    assert len(commit) == 1 and len(commit[0]) == 40
    (there / "build").mkdir()
    (there / "build/program").write_text("built there\n")
    # Changed, new and removed, none of it committed.
    (checkout / "a file.txt").write_text("two\n")
    (checkout / "new.txt").write_text("new\n")
    (checkout / "gone.txt").unlink()
    digest = pack(checkout, archive)
    unpack(there, archive, digest)
    assert (there / "a file.txt").read_text() == "two\n"
    assert (there / "new.txt").exists() and not (there / "gone.txt").exists()
    assert (there / "build/program").read_text() == "built there\n"
    assert (there / ".checkout-digest").read_text().strip() == digest
    assert (there / ".checkout-commit").read_text().split() == [commit[0], "dirty"]
