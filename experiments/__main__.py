# SPDX-License-Identifier: Apache-2.0
"""`python -m experiments cell JOB.json OUT_DIR`: one cell, in a process that the runner starts."""

import sys
from pathlib import Path

from experiments.cells import cell_main

if __name__ == "__main__":
    if sys.argv[1:2] != ["cell"] or len(sys.argv) != 4:
        sys.exit("experiments: found no cell; valid: the command `downpour run`")
    sys.exit(cell_main.main(Path(sys.argv[2]), Path(sys.argv[3]), sys.stderr))
