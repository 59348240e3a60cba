# SPDX-License-Identifier: Apache-2.0
"""`python -m controller manager APP...`: run apps of the framework, as its own launcher would.

os-ken 4 no longer has a launcher, and Ryu's does not start with a current eventlet. The options are
the framework's (`--help`): --ofp-listen-host, --ofp-tcp-listen-port, --config-file, --verbose, ...
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Sequence
from typing import Any

from common.exit_codes import EXIT_OK, EXIT_USAGE
from controller.switches import frameworks


def main(argv: Sequence[str]) -> int:
    """Run until a signal. Return 2 if the command line or an app cannot be used."""
    try:
        root = frameworks.root_package()
        if frameworks.uses_eventlet(root):
            frameworks.mend_eventlet(root)
        if importlib.util.find_spec(f"{root}.cmd") is None:
            _run(root, argv)
        else:
            importlib.import_module(f"{root}.cmd.manager").main(args=list(argv))
    except KeyboardInterrupt:
        return EXIT_OK
    except ImportError as error:
        print(f"controller manager: {error}", file=sys.stderr)
        return EXIT_USAGE
    return EXIT_OK


def _run(root: str, argv: Sequence[str]) -> None:
    """Do the same as the launcher of older os-ken. Raises ImportError for a missing app."""
    cfg: Any = importlib.import_module(f"{root}.cfg")
    manager: Any = importlib.import_module(f"{root}.base.app_manager").AppManager
    importlib.import_module(f"{root}.controller.controller")  # has options of its own
    log: Any = importlib.import_module(f"{root}.log")
    log.early_init_log()
    cfg.CONF.register_cli_opts([cfg.MultiStrOpt("app", positional=True, default=[])])
    cfg.CONF(args=list(argv), prog="controller manager", default_config_files=[])
    log.init_log()
    if not cfg.CONF.app:
        raise ImportError("found no app; valid: a module or the path of a .py file")
    manager.run_apps(cfg.CONF.app)
