# SPDX-License-Identifier: Apache-2.0
"""`python -m labs _hold`: the process that holds the network of a lab."""

import sys
from pathlib import Path

from labs import holder
from labs.spec import find_lab

if __name__ == "__main__":
    if sys.argv[1:2] != ["_hold"] or len(sys.argv) != 7:
        sys.exit("labs: found no lab to hold; valid: the command `downpour lab start N`")
    _number, _state, _work, _clock, _report_fd = sys.argv[2:]
    _lab = find_lab(int(_number))
    sys.exit(holder.hold(_lab, Path(_state), Path(_work), _clock, int(_report_fd)))
