# SPDX-License-Identifier: Apache-2.0
"""`python -m controller`: see launcher.py."""

import sys

from controller.launcher import main

sys.exit(main())
