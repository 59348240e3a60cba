# SPDX-License-Identifier: Apache-2.0
"""`python -m experiments`: run experiments and report them."""

import sys

from experiments.cli import main

if __name__ == "__main__":
    sys.exit(main())
