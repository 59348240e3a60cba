# SPDX-License-Identifier: Apache-2.0
"""Choose the OpenFlow framework of this process: os-ken, Ryu or c65of.

An application that `ryu-manager` or `osken-manager` has loaded uses that launcher's framework.
Otherwise DOWNPOUR_FRAMEWORK=os-ken|os-ken-eventlet|ryu|c65of chooses; else os-ken, else Ryu.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
from typing import Any, Final

CHOICE: Final = "DOWNPOUR_FRAMEWORK"
PACKAGES: Final = {
    "os-ken": "os_ken",
    "os-ken-eventlet": "os_ken",
    "ryu": "ryu",
    "c65of": "c65of",
}
# c65of has what a controller needs of the others, in fewer modules, without launcher and settings.
C65OF: Final = "c65of"
_IN_C65OF: Final = {
    "base.app_manager": "app",
    "controller.controller": "controller",
    "controller.handler": "app",
    "controller.ofp_event": "ofp_event",
    "controller.ofp_handler": "controller",
    "lib.hub": "hub",
    "ofproto.ofproto_parser": "ofproto.parser",
    "ofproto.ofproto_v1_3": "ofproto",
    "ofproto.ofproto_v1_3_parser": "ofproto.parser",
}


def root_package() -> str:
    """Return one of PACKAGES. Raises ImportError if neither os-ken nor Ryu is installed, or not the
    chosen one."""
    chosen = os.environ.get(CHOICE)
    if chosen is not None and chosen not in PACKAGES:
        raise ImportError(f"{CHOICE}='{chosen}': valid: {', '.join(PACKAGES)}")
    launched = launcher_package()
    if launched is not None:
        return launched
    if chosen is not None:
        if importlib.util.find_spec(PACKAGES[chosen]) is None:
            raise ImportError(f"{CHOICE}={chosen}: {PACKAGES[chosen]} is not installed")
        if chosen == "os-ken-eventlet":
            os.environ["OSKEN_HUB_TYPE"] = "eventlet"
        return PACKAGES[chosen]
    for name in ("os_ken", "ryu"):
        if importlib.util.find_spec(name) is not None:
            return name
    raise ImportError("neither os-ken nor Ryu is installed (pip install os-ken)")


def module_of(root: str, name: str) -> str:
    """Return the full name of the module that os-ken and Ryu call `name`."""
    return f"{root}.{_IN_C65OF[name] if root == C65OF else name}"


def launcher_package() -> str | None:
    """Return the package whose launcher runs in this process; None without a launcher."""
    started = getattr(sys.modules.get("__main__"), "__spec__", None)
    for name in ("ryu", "os_ken"):
        launcher = f"{name}.cmd.manager"
        if launcher in sys.modules or (started is not None and started.name == launcher):
            return name
    return None


def mend_eventlet(root: str) -> None:
    """Make eventlet importable, with the name that Ryu 4.34 uses and eventlet 0.30.3 removed.

    eventlet imports pyOpenSSL if it is installed. The distribution's pyOpenSSL fails with a newer
    cryptography in the virtual environment, and nothing here uses it.
    """
    try:
        importlib.import_module("OpenSSL.SSL")
    except ImportError:
        pass
    except Exception:  # for whatever reason
        for name in [n for n in sys.modules if n.partition(".")[0] == "OpenSSL"]:
            del sys.modules[name]
        sys.modules["OpenSSL"] = None  # type: ignore[assignment]
    if root == "ryu":
        wsgi: Any = importlib.import_module("eventlet.wsgi")
        if not hasattr(wsgi, "ALREADY_HANDLED"):
            wsgi.ALREADY_HANDLED = object()


def uses_eventlet(root: str) -> bool:
    """Return whether the framework runs on eventlet: Ryu does, and os-ken by choice or before 4."""
    hub = os.environ.get("RYU_HUB_TYPE" if root == "ryu" else "OSKEN_HUB_TYPE")
    has_launcher = importlib.util.find_spec(f"{root}.cmd") is not None
    return hub == "eventlet" or (hub is None and has_launcher)
