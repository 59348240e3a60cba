# SPDX-License-Identifier: Apache-2.0
"""One cell, in a process that the runner (`cell JOB.json OUT_DIR`) or a worker (`worker-cell
DIRECTORY`) starts; or what another part of its network runs (`part PLAN.json NUMBER`)."""

import sys
from pathlib import Path

from common.starting import imports

if __name__ == "__main__":
    if sys.argv[1:2] == ["worker-cell"] and len(sys.argv) == 3:
        from experiments.workers import worker_cell

        sys.exit(worker_cell.main(Path(sys.argv[2])))
    if sys.argv[1:2] == ["part"] and len(sys.argv) == 4:
        from experiments.cells import part_main

        sys.exit(part_main.main(Path(sys.argv[2]), int(sys.argv[3])))
    if sys.argv[1:2] != ["cell"] or len(sys.argv) != 4:
        sys.exit("experiments: found no cell; valid: the command `downpour run`")
    with imports():
        from experiments.cells import cell_main

    sys.exit(cell_main.main(Path(sys.argv[2]), Path(sys.argv[3]), sys.stderr))
