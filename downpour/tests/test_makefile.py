# SPDX-License-Identifier: Apache-2.0
"""The Makefile refuses impossible requests, and passes values on unchanged. Nothing is
installed."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from common.places import ROOT
from tools import front_door

# Replaces the checkout's Python: writes down the arguments with which it was called.
PLAYED_PYTHON = """#!/bin/sh
exec python3 -c 'import json, os, sys
json.dump(sys.argv[1:], open(os.environ["CALLED"], "w"))
sys.exit(int(os.environ.get("PLAYED_CODE", "0")))' "$@"
"""


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """Make a checkout whose path has blanks, with a setup that does nothing and a fake Python."""
    place = tmp_path / "my own checkout"
    (place / "ansible").mkdir(parents=True)
    for name in (
        "Makefile",
        "tools",
        "experiments/catalogue",
        "bench",
        "protocols",
        "common",
        "topologies",
    ):
        source, target = ROOT / name, place / name
        if source.is_dir():
            shutil.copytree(source, target, ignore=shutil.ignore_patterns("tests", "__pycache__"))
        else:
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(source, target)
    for lab in ROOT.glob("labs/[0-9]*/lab.yaml"):
        target = place / "labs" / lab.parent.name / "lab.yaml"
        target.parent.mkdir(parents=True)
        shutil.copy(lab, target)
    played(place / "ansible/setup", "#!/bin/sh\nexit 0\n")
    played(place / ".venv/bin/python", PLAYED_PYTHON)
    for tool in ("ninja", "meson"):
        played(place / "bin" / tool, "#!/bin/sh\necho 'no work to do'\n")
    (place / "build").mkdir()
    (place / "build/build.ninja").touch()
    return place


def played(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)


def make(place: Path, *words: str, code: int = 0) -> tuple[int, str, list[str] | None]:
    """Return make's exit code, its output, and the last words for `downpour`."""
    called = place / "called.json"
    called.unlink(missing_ok=True)
    known = {"PATH": f"{place / 'bin'}:{os.environ['PATH']}", "HOME": str(place)}
    done = subprocess.run(
        ["make", *words],
        cwd=place,
        env={**known, "CALLED": str(called), "PLAYED_CODE": str(code)},
        capture_output=True,
        text=True,
        check=False,
    )
    words_of = json.loads(called.read_text()) if called.exists() else None
    return done.returncode, done.stdout + done.stderr, words_of


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["experiment-lossy", "RECIEVERS=4"], "found RECIEVERS; valid: CLOCK, "),
        (["experiment-lossy", "RECIEVERS=4"], "(nearest: RECEIVERS)"),
        (["experiment-lossy", "LOSS=5%"], "found LOSS; valid: "),
        (["experiment-lossy", "N=3"], "found N; valid: "),
        (["experiment-losy"], "found experiment 'losy'; valid: aqm, background, "),
        (["experiment-losy", "DRY_RUN=1"], "(nearest: lossy)"),
        (["experiment-lossy", "DRY_RUN=maybe"], "DRY_RUN: found 'maybe'; valid: 1 or 0"),
        (["experiment-lossy", "TRACE=$(shell touch made)"], "found '$(shell touch made)'; valid"),
        (["experimet-lossy"], "found target 'experimet-lossy'; valid: see make help (nearest: ex"),
        (["experiment-lossy", "RECEIVERS=abc"], "RECEIVERS: found 'abc'; valid: a whole number"),
        (["experiment-lossy", "DURATION=1h"], "DURATION: found '1h'; valid: a number"),
        (["experiment-lossy", "CLOCK=vrtual"], "valid: native, virtual (nearest: virtual)"),
        (["experiment-lossy", "TRACE=/no where"], "TRACE: found '/no where'; valid: a file"),
        (["lab"], "found no N; valid: make lab N=1"),
        (["lab-check"], "found no N; valid: make lab-check N=1"),
        (["lab", "N=77"], "N: found '77'; valid: 1, 2, 3, 4, 5, 6, 7, 8, 9, 10"),
        (["shell"], "found no HOST; valid: make shell HOST=name"),
        (["bench", "TOOLS=nonsense"], "TOOLS: found 'nonsense'; valid: fmtp, fmtp-mac0"),
        (["bench", "TOOLS=fmtp tpc"], "TOOLS: found 'fmtp tpc'; valid: fmtp, fmtp-mac0"),
        (["bench", "TOOLS=fmtp, tpc"], "(nearest: tcp)"),
        (["bench", "ONLY=blsat"], "(nearest: blast)"),
        (["bench", "CELLS=("], "CELLS: found '('; valid: a regular expression (missing )"),
        (["bench", "CELLS=N=9,"], "valid: a regular expression that fits a cell, e.g. '^200"),
        (["bench", "REPEATS=0"], "REPEATS: found '0'; valid: a whole number from 1"),
        (["experiment-lossy", "REPEATS=0"], "REPEATS: found '0'; valid: a whole number from 1"),
        (["report", "RUN=/none"], "RUN: found '/none'; valid: a directory"),
        (["clean", "FORCE=1"], "found FORCE; valid: none for make clean"),
        (["install", "PREFX=/usr"], "(nearest: PREFIX)"),
    ],
)
def test_bad_input_is_refused_before_anything_runs(
    checkout: Path, words: list[str], expected: str
) -> None:
    code, said, called = make(checkout, *words)
    assert code == 2
    assert expected in said
    assert "Traceback" not in said
    assert called is None
    assert (checkout / "build").is_dir()  # clean did not run


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["experiments"], ["experiments"]),
        (["experiment-lossy", "CLOCK=virtual"], ["run", "lossy", "--clock", "virtual"]),
        (["experiment-lossy", "CLOCK=virtual", "DRY_RUN=1"],
         ["run", "lossy", "--clock", "virtual", "--dry-run"]),
        (["experiment-lossy", "CLOCK=virtual", "DRY_RUN=0", "RESUME=no"],
         ["run", "lossy", "--clock", "virtual"]),
        (["experiment-lossy", "DRY_RUN=1", "ONLY=receivers=8 protocol=ldm7"],
         ["run", "lossy", "--dry-run", "--only", "receivers=8", "--only", "protocol=ldm7"]),
        (["report", "RUN=my own runs", "FULL=1"], ["report", "my own runs", "--full"]),
        (["regression", "SUMMARY=a 'b'.md"], ["regression", "--summary", "a 'b'.md"]),
        (["lab", "N=3", "STUDENT=O'Brien; \"B\""],
         ["lab", "start", "3", "--student", "O'Brien; \"B\""]),
        (["lab", "N=3", "STUDENT=$(shell touch made)$$(touch made)`touch made`$@ ${HOME}"],
         ["lab", "start", "3", "--student",
          "$(shell touch made)$$(touch made)`touch made`$@ ${HOME}"]),
        (["lab-check", "N=1", "DIR=/tmp/my lab"], ["lab", "check", "1", "--dir", "/tmp/my lab"]),
        (["virtual-kernel", "NO_DOWNLOAD=1"], ["virtual", "kernel", "--no-download"]),
    ],
)  # fmt: skip
def test_values_reach_the_program_unchanged(
    checkout: Path, words: list[str], expected: list[str]
) -> None:
    (checkout / "my own runs").mkdir()
    code, said, called = make(checkout, *words)
    assert (code, called) == (0, ["-m", "downpour", *expected]), said
    assert not (checkout / "made").exists()  # no value was executed


@pytest.mark.slow
def test_the_site_goes_into_a_folder_of_versions(checkout: Path) -> None:
    assert make(checkout, "docs")[2] == ["-m", "tools.docs"]
    called = make(checkout, "docs", "INTO=my sites")[2]
    assert called == ["-m", "tools.docs", "--into", "my sites"]


@pytest.mark.slow
def test_a_trace_whose_name_has_blanks(checkout: Path) -> None:
    trace = checkout / "it's a trace"
    trace.write_text("1 20150615000000.000\n")
    _, said, called = make(checkout, "experiment-lossy", "CLOCK=virtual", f"TRACE={trace}")
    assert called is not None and called[-2:] == ["--trace", str(trace)], said


@pytest.mark.slow
@pytest.mark.parametrize(("code", "shown"), [(1, "a cell failed"), (3, "a verdict is invalid")])
def test_the_programs_exit_code_is_shown(checkout: Path, code: int, shown: str) -> None:
    made, said, _ = make(checkout, "regression", code=code)
    assert made == 2
    assert f"make regression: exit code {code}: {shown}" in said


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["experiment-lossy"], "valid: root, or virtual time: add --clock virtual (make: CLOCK"),
        (["experiment-lossy", "DRY_RUN=0"], "valid: root, or virtual time"),
        (["up"], "valid: root, which up needs on this machine"),
        (["test"], "valid: root, which test needs on this machine"),
    ],
)
def test_what_needs_root_says_so_where_there_is_no_sudo(
    words: list[str], expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1001)
    monkeypatch.setattr(shutil, "which", lambda _: None)
    values = dict(word.split("=") for word in words[1:])
    with pytest.raises(front_door.Wrong, match="^found user id 1001; ") as caught:
        front_door.check(list(values), words[:1], values)
    assert expected in str(caught.value)
    front_door.check(["CLOCK"], ["experiment-lossy"], {"CLOCK": "virtual"})
    front_door.check(["DRY_RUN"], ["experiment-lossy"], {"DRY_RUN": "1"})
    front_door.check([], ["report", "status", "labs", "doctor"], {})


def test_a_native_run_is_made_by_sudo_and_its_results_are_handed_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    calls: list[list[str]] = []

    def called(argv: list[str], **_: object) -> subprocess.CompletedProcess[str]:
        calls.append(argv)
        return subprocess.CompletedProcess(argv, 3)

    monkeypatch.setattr(os, "geteuid", lambda: 1001)
    monkeypatch.setattr(shutil, "which", lambda _: "/usr/bin/sudo")
    monkeypatch.setattr(subprocess, "run", called)
    monkeypatch.setattr(front_door, "run_to_end", lambda argv, _: called(argv).returncode)
    environment = {"TRACE": "model", "PATH": "/bin", "RECEIVERS": "4"}
    assert front_door.run("experiment-lossy", environment) == 3
    assert calls[0][:3] == ["sudo", "-E", "env"]
    assert calls[0][-6:] == ["run", "lossy", "--receivers", "4", "--trace", "model"]
    assert all(call[:2] == ["sudo", "chown"] for call in calls[1:])
    calls.clear()
    front_door.run("experiment-lossy", {"CLOCK": "virtual"})
    assert calls[0][0] == str(front_door.PYTHON) and len(calls) == 1


@pytest.mark.parametrize(
    ("goal", "end"), [("status", "1\n"), ("report", "metric is outside its band\n")]
)
def test_only_experiments_speak_of_cells(
    goal: str, end: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert front_door.run(goal, dict(os.environ), ["false"]) == 1
    said = capsys.readouterr().err
    assert said.startswith(f"make {goal}: exit code 1") and said.endswith(end)


def test_ctrl_c_waits_for_what_the_command_removes(tmp_path: Path) -> None:
    """As on a terminal, the whole group gets the signal; removing takes a second."""
    made = tmp_path / "made"
    command = (
        "import pathlib, sys, time\n"
        f"made = pathlib.Path({str(made)!r})\n"
        "made.touch()\n"
        "try:\n    print('ready', flush=True)\n    time.sleep(60)\n"
        "except KeyboardInterrupt:\n    time.sleep(1)\n    made.unlink()\n    sys.exit(130)\n"
    )
    code = (
        "import os, sys\nfrom tools import front_door\n"
        f"words = [sys.executable, '-c', {command!r}]\n"
        "sys.exit(front_door.run('report', dict(os.environ), words))\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        text=True, start_new_session=True,
    ) as process:  # fmt: skip
        assert process.stdout is not None and process.stdout.readline() == "ready\n"
        os.killpg(process.pid, signal.SIGINT)
        _, said = process.communicate(timeout=30)
    assert (process.returncode, made.exists()) == (130, False), said
    assert "exit code 130" in said and "Traceback" not in said


def test_every_target_is_in_the_help_and_the_help_fits() -> None:
    text = front_door.help_text()
    assert text.isascii()
    assert max(map(len, text.splitlines())) <= 80
    makefiles = (ROOT / "Makefile").read_text() + (ROOT / "tools/package.mk").read_text()
    heads = [line.split(":")[0].split() for line in makefiles.splitlines()
             if line[:1].isalpha() and ":" in line and "=" not in line.split(":")[0]
             and not line.split(":", 1)[1].startswith("=")]  # fmt: skip
    targets = {name for head in heads for name in head} - {"arguments", "python", "kernel"}
    named = {"experiment-%" if name == "experiment-NAME" else name for name in front_door.TARGETS}
    assert targets == named


@pytest.mark.parametrize("goal", [name for name, t in front_door.TARGETS.items() if t.need])
def test_what_a_target_needs_is_told(goal: str) -> None:
    need = front_door.TARGETS[goal].need
    with pytest.raises(front_door.Wrong, match=f"found no {need}; valid: make {goal} {need}="):
        front_door.check([], [goal], {})
