# SPDX-License-Identifier: Apache-2.0
"""Report the mistakes of an experiment file, each with its place in the file."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Set
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from common.nearest import did_you_mean
from topologies.model.document import Document, Place

B = TypeVar("B", bound=BaseModel)

# What would be valid, by pydantic's type of mistake.
VALID: Final = {
    "bool_type": "true or false",
    "bool_parsing": "true or false",
    "finite_number": "a finite number",
    "float_type": "a number",
    "float_parsing": "a number",
    "greater_than": "greater than {gt}",
    "greater_than_equal": "{ge} or more",
    "int_type": "a whole number",
    "int_parsing": "a whole number",
    "less_than": "below {lt}",
    "less_than_equal": "{le} or less",
    "literal_error": "{expected}",
    "string_type": "a text",
    "too_short": "a list that is not empty",
    "tuple_type": "a list, e.g. [a, b]",
}


@dataclass(frozen=True)
class Reports:
    """Records the mistakes of a checked file in its document. `level`: the file was checked with
    this level's values, and a mistake in one of them is reported in the level. `keys`: the valid
    keys at a place."""

    document: Document
    level: str | None
    keys: Callable[[Place], list[str]]

    def add(self, place: Place, found: str, valid: str) -> None:
        """Report a mistake at a place of the file."""
        self.document.report(self._written(place), found, valid)

    def read(self, model: type[B], data: object, not_written: Set[Place] = frozenset()) -> B | None:
        """Return `data` as `model`; None if it is not valid. Record every mistake, except those at
        places that are not in the file."""
        try:
            return model.model_validate(data)
        except ValidationError as error:
            details = error.errors(include_url=False)
        for detail in details:
            if tuple(detail["loc"])[:2] in not_written:
                continue
            # A list may be too short only because its items are wrong: do not report that as well.
            if detail["type"] == "too_short" and any(
                d is not detail and d["loc"][: len(detail["loc"])] == detail["loc"] for d in details
            ):
                continue
            self._detail(detail)
        return None

    def is_written(self, place: Place) -> bool:
        """Return whether this place is in the file or, for a level, in the level itself."""
        if self.level is None:
            return place in self.document.lines
        return self._written(place)[:1] == ("levels",)

    def levels_factors(self) -> list[Mapping[str, Any]]:
        """Return the blocks of factors of all the file's levels, as they are in the file."""
        data = self.document.data
        levels = data.get("levels") if isinstance(data, Mapping) else None
        found: list[Mapping[str, Any]] = []
        for level in levels.values() if isinstance(levels, Mapping) else ():
            factors = level.get("factors") if isinstance(level, Mapping) else None
            blocks = factors if isinstance(factors, list) else [factors]
            found += [block for block in blocks if isinstance(block, Mapping)]
        return found

    def _written(self, place: Place) -> Place:
        """Return where the file has this place: in the level, and, for a single block of factors,
        without the list that the model puts around it."""
        variants = [place]
        if len(place) > 1 and place[0] == "factors" and isinstance(place[1], int):
            variants.append(("factors", *place[2:]))
        for variant in variants:
            at: Place = ("levels", self.level or "", *variant)
            if self.level is not None and at[:4] in self.document.lines:
                return at
        whole = self.document.data.get("factors") if isinstance(self.document.data, dict) else None
        return variants[-1] if isinstance(whole, Mapping) else place

    def _detail(self, detail: ErrorDetails) -> None:
        place = self._written(tuple(detail["loc"]))
        names = [str(p) if isinstance(p, str) else f"[{p}]" for p in place[:-1]]
        where = f" in {'.'.join(names).replace('.[', '[')}" if names else ""
        key = place[-1] if place else ""
        kind = detail["type"]
        if kind == "extra_forbidden":
            keys = self.keys(tuple(detail["loc"]))
            valid = ", ".join(keys) + did_you_mean(str(key), keys)
            self.document.report(place, f"unknown key '{key}'{where}", valid)
        elif kind == "missing":
            self.document.report(place[:-1], f"no '{key}'{where}", f"a value for '{key}'")
        else:
            name = f"{key} " if isinstance(key, str) else ""
            found = detail.get("ctx", {}).get("found", quote(detail["input"]))
            self.document.report(place, f"{name}{found}{where}", _valid(detail))


def _valid(detail: ErrorDetails) -> str:
    context, said = detail.get("ctx", {}), str(detail["msg"])
    if "valid" in context:
        return str(context["valid"])
    if detail["type"] in VALID:
        return VALID[detail["type"]].format(**context)
    return said[:1].lower() + said[1:]


def keys_by_block(
    whole: type[BaseModel], blocks: Mapping[str, type[BaseModel]]
) -> Callable[[Place], list[str]]:
    """Return a function that gives the keys of `whole`, and of the models of its keys' items."""

    def keys(place: Place) -> list[str]:
        model = blocks.get(str(place[0]), whole) if len(place) > 1 else whole
        return list(model.model_fields)

    return keys


def quote(value: object) -> str:
    """Return a value of the file as messages quote it."""
    text = "nothing" if value is None else "a mapping" if isinstance(value, dict) else str(value)
    text = text if len(text) <= 60 else text[:57] + "..."
    return f"'{text}'" if isinstance(value, str) else text
