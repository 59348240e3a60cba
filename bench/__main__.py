# SPDX-License-Identifier: Apache-2.0
"""`python -m bench job|guest JOB RESULT BUILD`: one measurement, in its own process."""

import sys
from pathlib import Path

from bench import job_process

if __name__ == "__main__":
    if len(sys.argv) != 5 or sys.argv[1] not in ("job", "guest"):
        sys.exit("bench: found no job; valid: the command `downpour bench run`")
    _job, _result, _build = map(Path, sys.argv[2:])
    if sys.argv[1] == "job":
        sys.exit(job_process.main_job(_job, _result, _build))
    sys.exit(job_process.main_guest(_job, _result))
