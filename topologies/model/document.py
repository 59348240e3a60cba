# SPDX-License-Identifier: Apache-2.0
"""Parse YAML text into plain data and the line of every key and value.

The text is composed to ruamel.yaml's node graph and read from there: so all duplicate keys are
reported at once, and each value keeps its position.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.error import MarkedYAMLError, YAMLError
from ruamel.yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from common.files import endless

Place = tuple[str | int, ...]  # keys and indices from the top of the document

MAX_FILE_BYTES = 1_000_000
MAX_VALUES = 50_000  # bounds what a small file can grow to: aliases may repeat values
MAX_DEPTH = 20


@dataclass(frozen=True, order=True)
class Error:
    """One mistake: its place (line from 1; 0: none), what was found, and what would be valid."""

    file: str
    line: int
    found: str
    valid: str

    def __str__(self) -> str:
        where = f"{self.file}:{self.line}" if self.line else self.file
        return f"{where}: found {self.found}; valid: {self.valid}"


class TopologyErrors(Exception):
    """All mistakes of a topology file; its text has one line for each."""

    def __init__(self, errors: list[Error]) -> None:
        self.errors: tuple[Error, ...] = tuple(sorted(set(errors)))
        super().__init__("\n".join(str(error) for error in self.errors))


@dataclass
class Document:
    """`data` is the whole document; `lines` gives the line of each place's key or value."""

    file: str
    data: Any = None
    lines: dict[Place, int] = field(default_factory=dict)
    errors: list[Error] = field(default_factory=list)
    left_out: set[Place] = field(default_factory=set)  # blocks with a mistake, see shape.py

    def line(self, place: Place) -> int:
        """Return the line of `place`, or of the nearest block around it."""
        while place and place not in self.lines:
            place = place[:-1]
        return self.lines.get(place, 1)

    def report(self, place: Place, found: str, valid: str) -> None:
        """Record a mistake at `place`."""
        self.errors.append(Error(self.file, self.line(place), found, valid))


def read_document(path: Path, what: str = "a topology") -> Document:
    """Read a YAML file that should describe `what`. Raises TopologyErrors if nothing can be read
    from it."""
    file = str(path)
    try:
        if found := endless(path):
            raise TopologyErrors([Error(file, 1, found, "a YAML file")])
        with path.open("rb") as stream:
            raw = stream.read(MAX_FILE_BYTES + 1)
    except OSError as error:
        reason = error.strerror or str(error)
        raise TopologyErrors(
            [Error(file, 1, f"no readable file ({reason})", "a YAML file")]
        ) from None
    if len(raw) > MAX_FILE_BYTES:
        raise TopologyErrors(
            [Error(file, 1, "a file above 1 MB", f"at most {MAX_FILE_BYTES} bytes")]
        )
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError as error:
        line = raw[: error.start].count(b"\n") + 1
        found = f"byte 0x{raw[error.start]:02x}, which is not UTF-8"
        raise TopologyErrors([Error(file, line, found, "UTF-8 text")]) from None
    return parse_document(text, file, what)


def parse_document(text: str, file: str, what: str = "a topology") -> Document:
    """Parse YAML text; `errors` gets duplicate keys. Raises TopologyErrors on bad syntax."""
    yaml = YAML(typ="safe", pure=True)
    try:
        root = yaml.compose(text)
    except MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        problem = " ".join(str(error.problem or error.context or "bad syntax").split())
        line = mark.line + 1 if mark is not None else 1
        found = f"bad YAML syntax: {problem}{_quote_line(text, line)}"
        start = error.context_mark
        if start is not None and start.line + 1 < line:
            found += f" (within what begins in line {start.line + 1})"
        raise TopologyErrors([Error(file, line, found, "YAML 1.2")]) from None
    except YAMLError as error:
        problem = " ".join(str(error).split())
        raise TopologyErrors([Error(file, 1, f"bad YAML: {problem}", "YAML 1.2")]) from None
    except RecursionError:
        raise TopologyErrors([Error(file, 1, "too deep nesting", what)]) from None
    document = Document(file)
    if root is None:
        raise TopologyErrors([Error(file, 1, "an empty file", what)])
    _Builder(document, yaml, what).build(root)
    return document


def _quote_line(text: str, line: int) -> str:
    lines = text.splitlines()
    quoted = lines[line - 1].strip() if 0 < line <= len(lines) else ""
    return f" at '{quoted[:60]}'" if quoted else ""


class _Builder:
    def __init__(self, document: Document, yaml: YAML, what: str) -> None:
        self.document, self.what = document, what
        self.constructor = yaml.constructor
        self.values = 0

    def build(self, root: Node) -> None:
        self.document.data = self._value(root, ())

    def _value(self, node: Node, place: Place) -> Any:
        line = node.start_mark.line + 1
        self.document.lines.setdefault(place, line)
        self.values += 1
        if self.values > MAX_VALUES or len(place) > MAX_DEPTH:
            found = "too many values or too deeply nested"
            raise TopologyErrors([Error(self.document.file, line, found, self.what)])
        if isinstance(node, MappingNode):
            return self._mapping(node, place)
        if isinstance(node, SequenceNode):
            return [self._value(item, (*place, i)) for i, item in enumerate(node.value)]
        assert isinstance(node, ScalarNode)
        try:
            return self.constructor.construct_object(node, deep=True)
        except (YAMLError, ValueError):
            self.document.errors.append(
                Error(self.document.file, line, f"'{node.value}'", "a string, number or boolean")
            )
            return None

    def _mapping(self, node: MappingNode, place: Place) -> dict[str, Any]:
        mapping: dict[str, Any] = {}
        for key_node, value_node in node.value:
            line = key_node.start_mark.line + 1
            key = key_node.value if isinstance(key_node, ScalarNode) else None
            if not isinstance(key, str):
                found = "a key that is not a string"
                self.document.errors.append(Error(self.document.file, line, found, "a string"))
                continue
            if key in mapping:
                first = self.document.lines[(*place, key)]
                found = f"key '{key}' again (first in line {first})"
                self.document.errors.append(Error(self.document.file, line, found, "each key once"))
                continue
            self.document.lines[(*place, key)] = line
            mapping[key] = self._value(value_node, (*place, key))
        return mapping
