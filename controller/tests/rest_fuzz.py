# SPDX-License-Identifier: Apache-2.0
"""Send requests that Schemathesis makes up from the OpenAPI document to a service with fake
switches.


    python -m controller.tests.rest_fuzz SECONDS [SEED]

The server is the one that the controller runs, over TCP with a token. The exit code is
Schemathesis's: 0 without findings.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from common.http import server
from common.places import ROOT
from controller.api import listening
from controller.api.auth import Access
from controller.service.workgroups import Workgroup, Workgroups
from controller.tests.openapi import whole_app
from controller.tests.rig import Rig

TOKEN = "the-token-of-the-fuzzer-0123456789"
FUZZER = Workgroup("fuzzer", (hashlib.sha256(TOKEN.encode()).digest(),), is_admin=True)
HOOKS = "controller.tests.rest_fuzz_hooks"
REQUESTS_PER_S = 1e6  # the service's own limit is tested elsewhere
LEFT_OUT = "/v1/events"  # an endless stream
# 422 is also the answer to what is impossible in this network: rest_fuzz_hooks.py distinguishes the
# two.
CONFIG = """
[checks.positive_data_acceptance]
expected-statuses = ["2xx", 403, 404, 409, 422]

[checks.not_a_server_error]
expected-statuses = ["2xx", "3xx", "4xx"]
"""


# However slow the machine, at least so many requests for each operation, and sequences of them.
A_FEW: Final = ("--phases", "fuzzing,stateful", "--max-examples", "3")


def for_seconds(seconds: int) -> tuple[str, ...]:
    """Return the extent of a run: all phases, repeated until the time is over."""
    return ("--max-time", str(seconds))


def run(extent: Sequence[str], seed: int, directory: Path) -> subprocess.CompletedProcess[str]:
    """Return what Schemathesis found; it works in `directory`."""
    listener = listening.listen_tcp("--rest-listen", "127.0.0.1", 0)
    url = f"http://127.0.0.1:{listener.getsockname()[1]}"
    access = Access(Workgroups([FUZZER]), REQUESTS_PER_S)
    serving = server.Server(whole_app(Rig(), access), [listener])
    serving.start()
    (directory / "schemathesis.toml").write_text(CONFIG)
    argv = [
        *(sys.executable, "-m", "schemathesis.cli", "run", f"{url}/openapi.json"),
        *("--header", f"Authorization: Bearer {TOKEN}", "--checks", "all"),
        *("--exclude-path", LEFT_OUT, "--seed", str(seed), *extent),
        *("--request-timeout", "20", "--continue-on-failure", "--no-color"),
    ]
    try:
        return subprocess.run(
            argv,
            cwd=directory,
            env={**os.environ, "PYTHONPATH": str(ROOT), "SCHEMATHESIS_HOOKS": HOOKS},
            capture_output=True,
            text=True,
        )
    finally:
        serving.stop(5)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as work:
        done = run(for_seconds(int(sys.argv[1])), int([*sys.argv, "1"][2]), Path(work))
    print(done.stdout, done.stderr)
    sys.exit(done.returncode)
