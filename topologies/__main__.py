# SPDX-License-Identifier: Apache-2.0
"""`python -m topologies _keep`: the process that holds the network of `downpour up`."""

import sys
from pathlib import Path

from topologies.emulate import up_down

if __name__ == "__main__":
    if sys.argv[1:2] != ["_keep"] or len(sys.argv) != 7:
        sys.exit("topologies: found no network to keep; valid: the command `downpour up`")
    _run_id, _topology, _network, _controller, _report_fd = sys.argv[2:]
    sys.exit(up_down.keep(_run_id, _topology, Path(_network), _controller, int(_report_fd)))
