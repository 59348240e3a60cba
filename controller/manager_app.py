# SPDX-License-Identifier: Apache-2.0
"""The path service as an application of `ryu-manager` or `osken-manager`, beside other apps.

    ryu-manager --config-file path-service.conf controller/manager_app.py [OTHER_APP...]

The section [downpour] of the file has the options of `python -m controller`, e.g.
`rest_socket = /run/path.sock`; `verbose = yes` is a flag. Without `of_listen`, switches connect
to the address in the launcher's own options `ofp_listen_host` and `ofp_tcp_listen_port`. The
service's threads must stay threads: `enable_debugger = true` in the section [DEFAULT].
"""

from __future__ import annotations

import configparser
import difflib
import importlib.util
import sys
from pathlib import Path
from typing import NoReturn

if importlib.util.find_spec("controller") is None:  # the launchers only know this file's path
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from common.exit_codes import EXIT_USAGE
from controller.launcher import handle_signals
from controller.options import UsageError, option_names, parse_arguments, settings_of
from controller.paths.core import UnknownDomain
from controller.process import Controller
from controller.switches import compat
from controller.switches.app import PathServiceApp

SECTION = "downpour"
PROGRAM = "manager_app"


class PathServiceManagerApp(PathServiceApp):
    """The app that a launcher finds in this file."""

    def __init__(self, *args: object, **kwargs: object) -> None:
        """Read the settings and listen; exit with 2 and one line if that fails."""
        try:
            self._controller = _controller()
        except (UsageError, UnknownDomain) as error:
            _end(str(error))
        super().__init__(*args, switchboard=self._controller.switchboard, **kwargs)
        try:
            self._controller.listen()
        except OSError as error:
            _end(f"the address for switches: {error.strerror or error}")

    def start(self) -> object:
        """Start working. The launcher calls this when all apps are made."""
        thread: object = super().start()
        handle_signals(self._controller)
        self._controller.serve()
        return thread

    def stop(self) -> None:
        """End with the launcher."""
        self._controller.stop("the launcher ends its apps")
        super().stop()


def _controller() -> Controller:
    """Return the controller. Raises UsageError, UnknownDomain."""
    settings = compat.launcher_settings()
    if not compat.threads_are_real():
        raise UsageError(
            "found threads that eventlet has replaced; valid: enable_debugger = true in the "
            "section [DEFAULT] of --config-file, or --enable-debugger"
        )
    files = [str(name) for name in settings.config_file or ()]
    words = words_of(files)
    if "--of-listen" not in words and settings.ofp_tcp_listen_port:
        host = settings.ofp_listen_host
        host = f"[{host}]" if ":" in host else host
        words += ["--of-listen", f"{host}:{settings.ofp_tcp_listen_port}"]
    asked = settings_of(parse_arguments(words, PROGRAM))
    if asked.switches.onos is not None:
        raise UsageError(f"[{SECTION}]: found 'onos'; valid: only for python -m controller")
    return Controller(asked)


def words_of(files: list[str]) -> list[str]:
    """Return the command line that the sections [downpour] of `files` describe. Raises
    UsageError."""
    config = configparser.ConfigParser(interpolation=None)
    try:
        config.read(files, encoding="utf-8")
    except (configparser.Error, UnicodeDecodeError) as error:
        raise UsageError(f"--config-file: {' '.join(str(error).split())}") from error
    if not config.has_section(SECTION):
        found = ", ".join(files) or "no --config-file"
        raise UsageError(f"found {found}; valid: --config-file FILE with a section [{SECTION}]")
    known, words = option_names(), []
    for name in config[SECTION]:
        if name in config.defaults():
            continue
        option = name.replace("_", "-")
        if option not in known:
            near = difflib.get_close_matches(option, known, 1, 0.5)
            nearest = f" (nearest: {near[0].replace('-', '_')})" if near else ""
            valid = ", ".join(key.replace("-", "_") for key in known)
            raise UsageError(f"[{SECTION}]: found '{name}'; valid: {valid}{nearest}")
        words += _words(config[SECTION], name, option, has_value=known[option])
    return words


def _words(
    section: configparser.SectionProxy, name: str, option: str, *, has_value: bool
) -> list[str]:
    """Return the words of one option. Raises UsageError."""
    if has_value:
        return [f"--{option}", section[name]]
    try:
        return [f"--{option}"] if section.getboolean(name) else []
    except ValueError as error:
        raise UsageError(f"[{SECTION}] {name}: found '{section[name]}'; valid: yes, no") from error


def _end(text: str) -> NoReturn:
    for line in text.splitlines():
        print(f"{PROGRAM}: {' '.join(line.split())}", file=sys.stderr)
    sys.exit(EXIT_USAGE)
