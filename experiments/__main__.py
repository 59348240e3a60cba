# SPDX-License-Identifier: Apache-2.0
"""`python -m experiments`: run experiments and report them."""

import sys
from pathlib import Path


def main() -> int:
    # A cell's process imports no more than it needs: in virtual time each file costs.
    if sys.argv[1:2] == ["cell"] and len(sys.argv) == 4:
        from experiments.cells import cell_main

        return cell_main.main(Path(sys.argv[2]), Path(sys.argv[3]), sys.stderr)
    from experiments import cli

    return cli.main()


if __name__ == "__main__":
    sys.exit(main())
