# SPDX-License-Identifier: Apache-2.0
"""`python -m controller` (launcher.py), `… manager APP…` (manager.py), `… keys DIR`, `… attend DIR`
(remote_controllers.py)."""

import sys

if sys.argv[1:2] == ["keys"]:
    from controller.api.keys import main as make_keys

    sys.exit(make_keys(sys.argv[2:]))

if sys.argv[1:2] == ["attend"]:
    from controller.remote_controllers import main as attend

    sys.exit(attend(sys.argv[2:]))

if sys.argv[1:2] == ["manager"]:
    from controller.manager import main as manage

    sys.exit(manage(sys.argv[2:]))

from common.starting import imports

with imports():
    from controller.launcher import main

sys.exit(main())
