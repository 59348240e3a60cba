# SPDX-License-Identifier: Apache-2.0
"""`python -m controller`: see launcher.py; `python -m controller keys DIR`: see keys.py."""

import sys

if sys.argv[1:2] == ["keys"]:
    from controller.keys import main as make_keys

    sys.exit(make_keys(sys.argv[2:]))

from controller.launcher import main

sys.exit(main())
