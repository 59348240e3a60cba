# SPDX-License-Identifier: Apache-2.0
"""What the commands of all rooms share: their declaration, and how they refuse bad input.

A command is a function that takes one dataclass of options, or nothing, and returns an exit code
(common/exit_codes.py). Any error is one line on stderr.
"""

from __future__ import annotations

import contextlib
import dataclasses
import difflib
import functools
import inspect
import math
import os
import re
import select
import sys
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from contextvars import ContextVar
from typing import Any, Final, TypeVar, get_type_hints

import typer
from typer.core import TyperGroup

from common.exit_codes import EXIT_FAILED, EXIT_INTERRUPTED, EXIT_OK, EXIT_USAGE
from common.files import os_error_text
from common.quantities import MOST_PORT, parse_rate_bps, parse_size_bytes, parse_time_s
from common.terminal import never_fail, open_closed

PROGRAM: Final = "downpour"
# Headings of the list of commands, in this order.
EXPERIMENTS, NETWORKS, LABS, DEVELOPERS = "Experiments", "Networks", "Labs", "Developers"
PANELS: Final = (EXPERIMENTS, NETWORKS, LABS, DEVELOPERS)

_GIVEN: ContextVar[tuple[str, ...]] = ContextVar("given", default=())
_Command = TypeVar("_Command", bound=Callable[..., int])


class Failure(Exception):
    """A command ends with `code` and prints `text` on stderr."""

    def __init__(self, text: str, code: int = EXIT_USAGE) -> None:
        super().__init__(text)
        self.code = code


class Commands(TyperGroup):
    """A group that lists its commands under their headings, in plain text."""

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write the list of commands, heading by heading."""
        shown = [
            (name, command)
            for name in self.list_commands(ctx)
            if (command := self.get_command(ctx, name)) is not None and not command.hidden
        ]
        limit = formatter.width - 6 - max((len(name) for name, _ in shown), default=0)
        for panel in (*PANELS, None):
            rows = [
                (name, command.get_short_help_str(limit))
                for name, command in shown
                if getattr(command, "rich_help_panel", None) == panel
                or (panel is None and getattr(command, "rich_help_panel", None) not in PANELS)
            ]
            if rows:
                with formatter.section(panel or "Commands"):
                    formatter.write_dl(rows)


def group(text: str) -> typer.Typer:
    """Return an empty group of commands. `text`: what they are about."""
    return typer.Typer(
        cls=Commands,
        help=text,
        add_completion=False,
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
        subcommand_metavar="COMMAND ...",
    )


def command(
    app: typer.Typer,
    name: str,
    *,
    told: Callable[[], AbstractContextManager[None]],
    panel: str | None = None,
    rest: bool = False,
    hidden: bool = False,
) -> Callable[[_Command], _Command]:
    """Declare a command of `app`.

    Inside `told`, the room's errors become a Failure. `rest`: what follows the arguments is another
    program's command line, which is not parsed.
    """
    settings: dict[str, Any] = {"help_option_names": ["-h", "--help"]}
    if rest:
        settings |= {"allow_interspersed_args": False}

    def declare(function: _Command) -> _Command:
        called = _called(function, told)
        app.command(name, rich_help_panel=panel, hidden=hidden, context_settings=settings)(called)
        return function

    return declare


def _called(
    function: Callable[..., int], told: Callable[[], AbstractContextManager[None]]
) -> Callable[..., int]:
    """Return `function` in the form that Typer reads: the options' fields become parameters."""
    hints = get_type_hints(function)
    kind: Any = next((kind for name, kind in hints.items() if name != "return"), None)
    types = get_type_hints(kind, include_extras=True) if kind is not None else {}

    @functools.wraps(function)
    def called(**values: Any) -> int:
        with told():
            code = function(kind(**values)) if kind is not None else function()
        return code  # noqa: RET504 (told() may end the command)

    fields = dataclasses.fields(kind) if kind is not None else ()
    parameters = [_parameter(field, types[field.name]) for field in fields]
    vars(called).pop("__wrapped__")
    vars(called)["__signature__"] = inspect.Signature(parameters)
    called.__annotations__ = types
    return called


def _parameter(field: dataclasses.Field[Any], annotation: Any) -> inspect.Parameter:
    if field.default is not dataclasses.MISSING:
        default = field.default
    elif field.default_factory is not dataclasses.MISSING:
        default = field.default_factory()
    else:
        default = inspect.Parameter.empty
    return inspect.Parameter(
        field.name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation
    )


def given_arguments() -> tuple[str, ...]:
    """Return the words of the running command line, without the program's name."""
    return _GIVEN.get()


def run(app: typer.Typer, arguments: Sequence[str], program: str = PROGRAM) -> int:
    """Run a command line. Return its exit code; print errors to stderr."""
    open_closed()
    never_fail(sys.stdout)
    never_fail(sys.stderr)
    token = _GIVEN.set(tuple(arguments))
    try:
        code = _main(app, arguments, program)
        _flush()
        return code
    except Failure as failure:
        print(failure, file=sys.stderr)
        return failure.code
    except typer.TyperException as error:
        print(usage_text(error), file=sys.stderr)
        return EXIT_USAGE
    except (KeyboardInterrupt, typer.Abort):
        return EXIT_INTERRUPTED
    except OSError as error:
        if isinstance(error, BrokenPipeError) and _is_unread():  # the reader has seen enough
            _forget_output()
            return EXIT_OK
        print(os_error_text(error), file=sys.stderr)
        _forget_output()
        return EXIT_FAILED
    finally:
        _GIVEN.reset(token)


def _main(app: typer.Typer, arguments: Sequence[str], program: str) -> int:
    """Let Typer run a command line, but report a broken pipe as any other program does: Typer would
    end with 1, as a command whose cell failed."""
    output, errors = sys.stdout, sys.stderr
    try:
        made = typer.main.get_command(app)
        code = made.main(list(arguments), prog_name=program, standalone_mode=False)
    except SystemExit as ended:
        sys.stdout, sys.stderr = output, errors
        if isinstance(ended.__context__, BrokenPipeError):
            raise ended.__context__ from None
        raise
    return code if isinstance(code, int) else EXIT_OK


def say(text: str) -> None:
    """Print now, if anybody reads: a command that judges goes on, and its exit code holds."""
    with contextlib.suppress(BrokenPipeError):  # which may come now or when it is flushed
        print(text)
    _flush()


def _flush() -> None:
    """Write what was printed: here, a full disk is still the command's error. What nobody reads is
    discarded."""
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        _forget_output()


def _is_unread() -> bool:
    """Return whether standard output is a pipe that its reader has closed."""
    poll = select.poll()
    poll.register(sys.stdout.fileno(), 0)
    return any(event & (select.POLLERR | select.POLLHUP) for _, event in poll.poll(0))


def _forget_output() -> None:
    """Discard buffered output: at its end, Python would try to write it again."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


NOT_READABLE: Final = (FileNotFoundError, IsADirectoryError, NotADirectoryError, PermissionError)


def code_of(error: OSError) -> int:
    """Return the exit code of a command that reads what the user names: a name of nothing readable
    is wrong usage."""
    return EXIT_USAGE if isinstance(error, NOT_READABLE) else EXIT_FAILED


# -- bad usage --------------------------------------------------------------------------------
def nearest(found: str, valid: Iterable[str]) -> str:
    """Return " (nearest: NAME)", or "" if no name is near."""
    near = difflib.get_close_matches(found, list(valid), 1, 0.5)
    return f" (nearest: {near[0]})" if near else ""


def unknown(what: str, found: str, valid: Sequence[str]) -> str:
    """Return the message that refuses a name."""
    return f"found {what} '{found}'; valid: {', '.join(valid)}{nearest(found, valid)}"


def usage_text(error: Any) -> str:
    """Return one line for a mistake in the command line."""
    context: Any = getattr(error, "ctx", None)
    place = context.command_path if context is not None else PROGRAM
    message = str(getattr(error, "message", error))
    name = type(error).__name__
    if name == "NoSuchOption":
        valid = [max(p.opts, key=len) for p in context.command.get_params(context)
                 if p.param_type_name == "option" and not getattr(p, "hidden", False)]  # fmt: skip
        return f"{place}: {unknown('option', error.option_name, valid)}"
    if name == "MissingParameter":
        text = " ".join((getattr(error.param, "help", None) or "").split()).rstrip(".")
        valid_text = text[:1].lower() + text[1:] or f"{place} --help"
        return f"{place}: found no {_label(error.param)}; valid: {valid_text}"
    if name == "BadOptionUsage":
        option = error.option_name
        if "does not take a value" in message:
            return f"{place}: found {option} with a value; valid: {option} alone"
        return f"{place}: found {option} without a value; valid: {option} VALUE"
    if name == "BadParameter":
        label = f"{_label(error.param)}: " if getattr(error, "param", None) is not None else ""
        return f"{label}{_bad_value(message)}"
    if match := re.match(r"No such command '(.*?)'", message):
        return f"{place}: {unknown('command', match[1], _names(context))}"
    if match := re.match(r"Got unexpected extra argument(?:s|\(s\))? \((.*)\)", message):
        usage = " ".join(context.command.collect_usage_pieces(context))
        return f"{place}: found '{match[1]}' too many; valid: {place} {usage}"
    if message.startswith("Missing command"):
        return f"{place}: found no COMMAND; valid: {', '.join(_names(context))}"
    return f"{place}: {' '.join(message.split())}"


def _names(context: Any) -> list[str]:
    commands = context.command.commands
    return [name for name, made in commands.items() if not made.hidden]


def _label(parameter: Any) -> str:
    if parameter.param_type_name == "argument":
        return str(parameter.metavar or parameter.name.upper()).strip("[].")
    return str(max(parameter.opts, key=len))


def _bad_value(message: str) -> str:
    """Return "found X; valid: Y" from the message of a type that refused a value."""
    text = " ".join(message.split()).removeprefix("Value error, ")
    if match := re.match(r"'(.*)' is not (?:one of )?((?:'[^']*'(?:, )?)+)\.?$", text):
        valid = re.findall(r"'([^']*)'", match[2])
        return f"found '{match[1]}'; valid: {', '.join(valid)}{nearest(match[1], valid)}"
    return text


def completing(names: Callable[[], Iterable[str]]) -> Callable[[str], list[str]]:
    """Return a function that a shell calls for the possible words."""

    def complete(incomplete: str) -> list[str]:
        return [name for name in names() if name.startswith(incomplete)]

    return complete


# -- types of options -------------------------------------------------------------------------
# Typer also converts defaults, which are numbers already. Only digits 0 to 9 are valid: int() also
# accepts digits of other scripts, underscores and white space.
_WHOLE: Final = re.compile(r"[+-]?[0-9]{1,18}")


def count(text: str | int) -> int:
    """Return a whole number that is at least 1."""
    if isinstance(text, int):
        return text
    if not _WHOLE.fullmatch(text) or int(text) < 1:
        raise typer.BadParameter(f"found '{_cut(text)}'; valid: a whole number from 1 on")
    return int(text)


def whole(text: str | int) -> int:
    """Return a whole number."""
    if isinstance(text, str) and not _WHOLE.fullmatch(text):
        raise typer.BadParameter(f"found '{_cut(text)}'; valid: a whole number, e.g. 12")
    return int(text)


def snap_bytes(text: str | int) -> int:
    """Return how many bytes of a frame to keep, as `size_bytes` does; 0: all."""
    if text == "0":
        return 0
    try:
        return size_bytes(text)
    except typer.BadParameter as error:
        raise typer.BadParameter(f"{error.message}, or 0: all") from None


class Written(float):
    """A number that messages quote as it was written."""

    def __new__(cls, text: str) -> Written:
        """Raises ValueError."""
        found = super().__new__(cls, text)
        found.text = text
        return found

    text: str

    def __str__(self) -> str:
        return self.text


def port(text: str | int) -> int:
    """Return the number of a port."""
    return _port(text, 1)


def port_or_any(text: str | int) -> int:
    """Return the number of a port, or 0: any free one."""
    return _port(text, 0)


def _port(text: str | int, least: int) -> int:
    if isinstance(text, str) and not (_WHOLE.fullmatch(text) and least <= int(text) <= MOST_PORT):
        raise typer.BadParameter(f"found '{_cut(text)}'; valid: {least} to {MOST_PORT}")
    return int(text)


def number(text: str | float) -> float:
    """Return a number. It may be infinite or NaN: what is valid depends on the option."""
    try:
        if isinstance(text, str) and (not text.isascii() or "_" in text):
            raise ValueError
        return Written(text) if isinstance(text, str) else text
    except ValueError:
        raise typer.BadParameter(f"found '{_cut(text)}'; valid: a number, e.g. 2.5") from None


def seconds(text: str | float) -> float:
    """Return a time in seconds that is finite and above 0."""
    value = number(text)
    if not 0 < value < math.inf:  # also refuses NaN
        raise typer.BadParameter(f"found '{_cut(text)}'; valid: seconds, above 0")
    return value


def time_s(text: str | float) -> float:
    """Return seconds from a time with a unit, such as 2h."""
    if isinstance(text, float):
        return text
    try:
        return parse_time_s(text)
    except ValueError as error:
        raise typer.BadParameter(f"found '{_cut(text)}'; valid: {error}") from None


def size_bytes(text: str | int) -> int:
    """Return bytes from a whole number, or from one with the units of experiment files."""
    if isinstance(text, int):
        return text
    try:
        return parse_size_bytes(int(text) if _WHOLE.fullmatch(text) else text)
    except ValueError as error:
        raise typer.BadParameter(f"found '{_cut(text)}'; valid: {error}") from None


def rate_bps(text: str | int) -> int:
    """Return bit/s from a whole number, or from one with the units of experiment files."""
    if isinstance(text, int):
        return text
    try:
        return parse_rate_bps(int(text) if _WHOLE.fullmatch(text) else text)
    except ValueError as error:
        raise typer.BadParameter(f"found '{_cut(text)}'; valid: {error}") from None


def _cut(text: object) -> str:
    shown = str(text)
    return shown if len(shown) <= 60 else f"{shown[:57]}..."
