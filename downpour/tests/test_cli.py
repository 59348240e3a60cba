# SPDX-License-Identifier: Apache-2.0
"""The command `downpour`: its help, its refusals and its exit codes. Nothing is run or built."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer

from common.command_line import given_arguments, usage_text
from common.places import ROOT
from downpour import cli, doctor

COMMANDS = {
    "run", "experiments", "report", "regression", "repeat", "verify", "clean", "parse", "ldm-log",
    "rate-for", "monitor", "remote", "workers",
    "up", "down", "status", "shell", "cli", "multicast", "capture", "purge", "doctor", "topology",
    "paths", "virtual", "lab", "class", "bench", "new", "completion",
}  # fmt: skip


def walk(command: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Yield the words of every command and of every group of commands."""
    yield path
    for name, below in getattr(command, "commands", {}).items():
        yield from walk(below, (*path, name))


ALL = list(walk(typer.main.get_command(cli.app)))


def said(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    code = cli.main(words)
    out, err = capsys.readouterr()
    return code, out, err


def test_which_commands_there_are() -> None:
    assert {path[0] for path in ALL if path} == COMMANDS
    assert ("lab", "measure") in ALL and ("topology", "export") in ALL and len(ALL) > 60


@pytest.mark.parametrize("path", ALL, ids=" ".join)
def test_help_fits_a_terminal_and_is_plain(
    path: tuple[str, ...], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    code, out, err = said(capsys, *path, "--help")
    assert (code, err) == (0, "")
    assert out.isascii()
    assert max(map(len, out.splitlines())) <= 80
    assert "Usage: downpour" in out


@pytest.mark.slow
@pytest.mark.parametrize("path", [p for p in ALL if p], ids=" ".join)
def test_every_command_says_in_a_sentence_what_it_does(path: tuple[str, ...]) -> None:
    found: Any = typer.main.get_command(cli.app)
    for name in path:
        found = found.commands[name]
    first = (found.help or "").split("\n")[0]
    assert first.endswith(".") and first[0].isupper(), first


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["rnu", "lossy"], "downpour: found command 'rnu'; valid: "),
        (["rnu", "lossy"], "(nearest: run)"),
        (["run"], "downpour run: found no NAME; valid: an experiment"),
        (["run", "losy"], "(did you mean 'lossy'?)"),
        (["run", "lossy", "--receiver", "4"], "(nearest: --receivers)"),
        (["run", "lossy", "--receivers", "abc"], "--receivers: found 'abc'; valid: a whole number"),
        (["run", "lossy", "--duration", "1h"], "--duration: found '1h'; valid: a number"),
        (["run", "lossy", "--clock", "vrtual"], "--clock: found 'vrtual'; valid: native, virtual"),
        (["run", "lossy", "--seed"], "found --seed without a value"),
        (["run", "lossy", "--resume=yes"], "found --resume with a value; valid: --resume alone"),
        (["run", "lossy", "lossless"], "found 'lossless' too many; valid: downpour run"),
        (["run", "lossy", "--queue-bytes", "5gb"], "--queue-bytes: found '5gb'; valid: a size"),
        (["run", "lossy", "--repeats", "0"], "--repeats: found '0'; valid: a whole number from 1"),
        (["lab"], "downpour lab: found no COMMAND; valid: list, start"),
        (["lab", "strat", "1"], "(nearest: start)"),
        (["lab", "start", "one"], "N: found 'one'; valid: a whole number"),
        (["lab", "start", "99"], "found '99'; valid: 1, 2"),
        (["topology", "show", "geni6"], "geni6"),
        (["topology", "show", "geni5", "--set", "x"], "--set: found 'x'; valid: NAME=VALUE"),
        (["bench", "run", "--tools", "nonsense"], "found tool 'nonsense'; valid: fmtp"),
        (["parse", "/dev/null", "--format", "srt"], "found format 'srt'; valid: auto"),
        (["completion", "csh"], "SHELL: found 'csh'; valid: bash, zsh, fish"),
        (["new", "experiment", "My Own"], "NAME: found 'My Own'; valid: a lower-case letter"),
        (["report", "/none"], "found no run in /none; valid: a run directory"),
        (["verify", "/none"], "found no run in /none; valid: a run directory"),
        (["verify", "geni6"], "found run or network 'geni6'; valid: a run directory, bottleneck"),
        (["verify", "geni6"], "(nearest: geni5)"),
        (["verify", "geni5", "--rate", "fast"], "--rate: found 'fast'; valid: a rate"),
        (["paths", "list"], "found no --at ADDRESS"),
        (["virtual", "run"], "found no command; valid: downpour virtual run -- COMMAND"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_2(
    words: list[str],
    expected: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("DOWNPOUR_PATH_SERVICE", raising=False)
    code, out, err = said(capsys, *words)
    assert code == 2
    assert expected in err
    assert err.count("\n") == 1 and out == ""


@pytest.mark.slow
@pytest.mark.parametrize("words", [["run", "lossy"], ["up", "geni5"], ["shell", "uva"], ["down"]])
def test_what_needs_root_says_so_at_once(
    words: list[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1001)
    code, _, err = said(capsys, *words)
    assert code == 2
    assert err.startswith("found user id 1001; valid: root")
    assert "--clock virtual (make: CLOCK=virtual)" in err and err.count("\n") == 1


@pytest.mark.slow
def test_a_plan_needs_neither_root_nor_kernel_nor_programs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from experiments.runs import clocks

    monkeypatch.setattr(os, "geteuid", lambda: 1001)
    monkeypatch.setattr(clocks, "find_kernel", lambda: None)
    for clock in ("native", "virtual"):
        words = ("run", "lossy", "--dry-run", "--clock", clock, "--queue-bytes", "100MB")
        code, out, err = said(capsys, *words, "--build", str(tmp_path / "none"))
        assert (code, err) == (0, "")
        assert f"2 cells (1 of each kind, seed 2053) of 60 s, in random order; {clock} clock" in out


def test_version_and_bare_call(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = said(capsys, "--version")
    assert code == 0 and out.startswith("downpour ") and out.count("\n") == 1
    code, out, _ = said(capsys)
    assert code == 0 and "Usage: downpour" in out


@pytest.mark.parametrize(
    ("shell", "expected"),
    [("bash", "complete -o default"), ("zsh", "#compdef downpour"), ("fish", "complete --command")],
)
def test_completion(shell: str, expected: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = said(capsys, "completion", shell)
    assert code == 0 and expected in out and "_DOWNPOUR_COMPLETE" in out


@pytest.mark.parametrize(
    ("typed", "expected"),
    [
        ("downpour run los", {"loss-sweep", "lossless", "lossy"}),
        *(
            pytest.param(typed, expected, marks=pytest.mark.slow)
            for typed, expected in (
                ("downpour re", {"report", "regression", "remote", "repeat"}),
                ("downpour run lossy --cl", {"--clock"}),
                ("downpour up gen", {"geni5"}),
                ("downpour lab st", {"start", "status", "stop"}),
            )
        ),
    ],
)
def test_bash_completes(typed: str, expected: set[str]) -> None:
    asked = {"_DOWNPOUR_COMPLETE": "complete_bash", "COMP_WORDS": typed}
    done = subprocess.run(
        [sys.executable, "-m", "downpour"],
        cwd=ROOT,
        env={**os.environ, **asked, "COMP_CWORD": str(typed.count(" "))},
        capture_output=True,
        text=True,
    )
    assert set(done.stdout.split()) == expected, done.stderr


@pytest.mark.slow
def test_doctor_needs_only_the_systems_python() -> None:
    code = f"import sys; sys.path.insert(0, {str(ROOT)!r}); sys.modules['typer'] = None; "
    code += "sys.argv[1:] = ['doctor']; from downpour.__main__ import main; main()"
    done = subprocess.run(
        ["/usr/bin/python3", "-B", "-I", "-c", code],
        cwd="/", capture_output=True, text=True,
    )  # fmt: skip
    assert "Traceback" not in done.stderr
    assert "virtual" in done.stdout


def test_the_words_of_a_command_line_end_with_it() -> None:
    cli.main(["--version"])
    assert given_arguments() == ()
    assert usage_text(ValueError("odd\nthing")) == "downpour: odd thing"


def test_the_doctors_long_form_measures_a_network_if_one_can_run(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It ends as `downpour verify` ends; where nothing can run, nothing is measured."""
    measured: list[str] = []

    def measure() -> int:
        measured.append("once")
        return 1

    monkeypatch.setattr(doctor, "measure", measure)
    for can_run, words, code in ((0, [], 0), (0, ["--long"], 1), (1, ["--long"], 1)):
        monkeypatch.setattr(doctor, "main", lambda found=can_run: found)
        assert cli.main(["doctor", *words]) == code
    assert measured == ["once"]


@pytest.mark.slow
@pytest.mark.parametrize("words", ["topology list", "topology export geni5 --to mininet"])
def test_a_full_disk_takes_no_output(words: str) -> None:
    """Both little output, which Python writes at the end, and more than Python buffers."""
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "downpour", *words.split()],
            cwd=ROOT, stdout=full, stderr=subprocess.PIPE, text=True, timeout=120,
        )  # fmt: skip
    line = "No space left on device; valid: room on the disk, for results and for TMPDIR\n"
    assert (done.returncode, done.stderr) == (1, line)


@pytest.mark.parametrize(
    "words", ["parse NONE", "ldm-log NONE", "monitor import NONE", "parse .", "monitor trace NONE"]
)
def test_a_file_that_is_not_there_is_bad_input(
    words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    code, out, err = said(capsys, *words.split())
    assert (code, out) == (2, "") and err.startswith(f"{words.split()[-1]}: ")
    assert err.count("\n") == 1


def test_a_parameter_is_set_once(capsys: pytest.CaptureFixture[str]) -> None:
    export = ("topology", "export", "geni5", "--set", "receivers=2")
    _, _, err = said(capsys, *export, "--receivers", "3")
    assert err == "--receivers: found '3' with --set receivers=2; valid: one of them\n"
    code, _, err = said(capsys, *export, "--set", "receivers=3")
    assert code == 2
    assert err == "--set: found 'receivers=3' after 'receivers=2'; valid: one of them\n"


SMALL = """
import sys
from contextlib import nullcontext
from common.command_line import command, group, run, say
app = group("Print.")
def print_lines():
    "Print."
    for _ in range(100):
        print("x" * 1000)
    return 0
def print_and_fail():
    "Print little."
    say("x")
    say("x")
    return 1
def talk_to_nobody():
    "Lose another pipe than standard output."
    raise BrokenPipeError(32, "Broken pipe")
for function in (print_lines, print_and_fail, talk_to_nobody):
    command(app, function.__name__, told=nullcontext)(function)
sys.exit(run(app, sys.argv[1:]))
"""


def _closed(name: str, *, reader: bool = True) -> subprocess.CompletedProcess[str]:
    """Run a small command whose standard output is closed, or a pipe that nobody reads."""
    argv = [sys.executable, "-P", "-c", SMALL, name]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    if not reader:
        argv = ["sh", "-c", 'exec "$@" >&-', "sh", *argv]
        return subprocess.run(argv, stderr=subprocess.PIPE, text=True, env=environment, check=False)
    read, write = os.pipe()
    os.close(read)
    try:
        return subprocess.run(
            argv, stdout=write, stderr=subprocess.PIPE, text=True, env=environment, check=False
        )
    finally:
        os.close(write)


@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("print_lines", 0),  # its reader has seen enough
        ("print_and_fail", 1),  # which says nothing of the command
        ("--help", 0),
    ],
)
def test_a_reader_that_has_seen_enough(name: str, code: int) -> None:
    done = _closed(name)
    assert (done.returncode, done.stderr) == (code, "")


@pytest.mark.parametrize(
    ("name", "code"), [("print_lines", 0), ("print_and_fail", 1), ("--help", 0)]
)
def test_closed_standard_output(name: str, code: int) -> None:
    done = _closed(name, reader=False)
    assert (done.returncode, done.stderr) == (code, "")


def test_another_pipe_that_broke_is_an_error() -> None:
    argv = [sys.executable, "-P", "-c", SMALL, "talk_to_nobody"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(argv, capture_output=True, text=True, env=environment, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (1, "", "Broken pipe\n")
