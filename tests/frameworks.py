# SPDX-License-Identifier: Apache-2.0
"""Run the controller's tests over Open vSwitch under each OpenFlow framework:
`make test-frameworks`.

In `make test` the Python tests run with os-ken's native threads. Here the same tests run with its
eventlet hub, and with the older packages, each in its own folder below build/frameworks. The
checkout's environment has what these packages need, so pip fetches them alone; they come first on
the path.

`python -m tests.frameworks NAME [--junit FILE]`: 0 passed, 1 failed, 2 bad usage, 3 the packages
are not available here (the last line says why).
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from common.exit_codes import EXIT_FAILED

ROOT = Path(__file__).resolve().parent.parent
WHERE = ROOT / "build" / "frameworks"
EXIT_NO_PACKAGE = 3
TESTS = (
    "controller/tests/test_openvswitch.py",
    "controller/tests/test_messages.py",
    "controller/tests/test_tls.py::test_switch_with_a_certificate_of_the_authority",
)
TESTS_OF_LAUNCHERS = (
    "controller/tests/test_manager_app.py",
    "controller/tests/test_example.py",
)


@dataclass(frozen=True)
class Framework:
    """`choice` is compat's DOWNPOUR_FRAMEWORK; `packages` are fetched without dependencies.
    `has_launcher`: TESTS_OF_LAUNCHERS apply."""

    name: str
    choice: str
    version: str  # how the controller's log names it
    packages: tuple[str, ...] = ()
    build_needs: str = ""
    has_launcher: bool = True


FRAMEWORKS = (
    Framework("os-ken-eventlet", "os-ken-eventlet", "os_ken 4"),
    Framework("os-ken-3.1", "os-ken", "os_ken 3.1.1", ("os-ken==3.1.1",)),
    # Its setup.py uses what setuptools 68 removed (--use-pep517 does not take the environment's
    # setuptools). Its REST part, which we do not use but which
    # is always imported, names tinyrpc.
    Framework("ryu-4.34", "ryu", "ryu 4.34", ("ryu==4.34", "tinyrpc==1.0.4"), "setuptools==67.6.1"),
    Framework("c65of-1.0.5", "c65of", "c65of 1.0.5", ("c65of==1.0.5",), has_launcher=False),
)


class CannotInstall(Exception):
    pass


def install(framework: Framework) -> Path | None:
    """Return the framework's directory; fetch it if it is missing. Raises CannotInstall."""
    if not framework.packages:
        return None
    target = WHERE / framework.name
    if target.exists():
        return target
    WHERE.mkdir(parents=True, exist_ok=True)
    partial = WHERE / f".{framework.name}.partial.{os.getpid()}"
    constraint = WHERE / f"{framework.name}.constraint"
    constraint.write_text(f"{framework.build_needs}\n")
    done = subprocess.run(
        [
            *(sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--use-pep517"),
            *("--target", str(partial), *framework.packages),
        ],
        env={**os.environ, "PIP_CONSTRAINT": str(constraint)},
        capture_output=True,
        text=True,
    )
    if done.returncode != 0:
        lines = done.stderr.strip().splitlines() or [f"pip ended with {done.returncode}"]
        raise CannotInstall(f"{' '.join(framework.packages)}: {lines[-1]}")
    partial.rename(target)
    return target


def environment(framework: Framework, target: Path | None) -> dict[str, str]:
    path = [str(target)] if target is not None else []
    return {
        **os.environ,
        "DOWNPOUR_FRAMEWORK": framework.choice,
        "DOWNPOUR_EXPECT_FRAMEWORK": framework.version,
        "PYTHONPATH": os.pathsep.join([*path, str(ROOT)]),
    }


def main(argv: Sequence[str] | None = None) -> int:
    names = [framework.name for framework in FRAMEWORKS]
    parser = argparse.ArgumentParser(prog="python -m tests.frameworks")
    parser.add_argument("name", choices=names)
    parser.add_argument("--junit", type=Path, metavar="FILE")
    options = parser.parse_args(argv)
    framework = FRAMEWORKS[names.index(options.name)]
    try:
        target = install(framework)
    except CannotInstall as error:
        print(error)
        return EXIT_NO_PACKAGE
    tests = (*TESTS, *(TESTS_OF_LAUNCHERS if framework.has_launcher else ()))
    pytest = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *tests]
    if options.junit is not None:
        pytest.append(f"--junitxml={options.junit}")
    done = subprocess.run(pytest, cwd=ROOT, env=environment(framework, target))
    return EXIT_FAILED if done.returncode else 0


if __name__ == "__main__":
    sys.exit(main())
