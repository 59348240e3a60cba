# SPDX-License-Identifier: Apache-2.0
"""Check each block of a topology file against the models of `spec.py`.

pydantic finds the mistakes. This module gives each its line, words it as `found ...; valid: ...`,
and leaves out the blocks with mistakes so that the others can be checked further.
"""

from __future__ import annotations

import copy
from typing import Any, get_args

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from common.nearest import did_you_mean
from topologies.model.document import Document, Place
from topologies.model.spec import NodeSpec, TopologySpec

_KINDS = ("switch", "host", "router")
# Sections whose entries are blocks of their own: a bad entry is left out, not the section.
_SECTIONS = ("parameters", "domains", "nodes", "host_families", "links", "segments")
# A link without its impairments: a mistake in one leaves out all.
_LINK_KEYS = ("a", "b")
# Stand-ins for single blocks with a mistake, so that the other blocks can be checked.
_STAND_INS = {
    "name": "unnamed",
    "description": "none",
    "source": "none",
    "addresses": {"path_subnet": "10.10.1.0/24", "multicast_group": "239.10.1.1"},
    "control_network": {"router": "none", "subnet": "10.20.0.0/16"},
}
_MAX_QUOTE = 60


def parse_shape(document: Document) -> TopologySpec | None:
    """Return the file without its blocks that have mistakes, which go to `document.errors`. Return
    None if the rest is not a topology."""
    data = document.data
    if not isinstance(data, dict):
        document.report(
            (), f"{_quote(data)} instead of a topology", "keys such as name, nodes, links"
        )
        return None
    try:
        return TopologySpec.model_validate(data)
    except ValidationError as error:
        details = error.errors(include_url=False)
    places = [_place(detail) for detail in details]
    for detail, place in zip(details, places, strict=True):
        _report(document, detail, place)
    try:
        return TopologySpec.model_validate(_without(document, data, details, places))
    except ValidationError:
        return None


def _place(detail: ErrorDetails) -> Place:
    """Return pydantic's location without the discriminator that follows a node's name."""
    place = tuple(detail["loc"])
    if place[:1] == ("nodes",) and len(place) > 2 and place[2] in _KINDS:
        return (*place[:2], *place[3:])
    return place


def _report(document: Document, detail: ErrorDetails, place: Place) -> None:
    kind, found_value = detail["type"], _quote(detail["input"])
    key = place[-1] if place else ""
    where = _where(place)
    if kind == "extra_forbidden":
        keys = _keys_at(detail)
        hint = did_you_mean(str(key), keys)
        document.report(place, f"unknown key '{key}'{where}", ", ".join(keys) + hint)
    elif kind == "missing":
        document.report(place[:-1], f"no '{key}'{where}", f"{key}: {_describe(detail)}")
    elif kind == "union_tag_not_found":
        document.report(place, f"no 'kind'{_where((*place, 'kind'))}", f"kind: {_or(_KINDS)}")
    elif kind == "union_tag_invalid":
        value = _quote(detail["input"]["kind"])
        document.report((*place, "kind"), f"kind: {value}{_where((*place, 'kind'))}", _or(_KINDS))
    else:
        name = f"{key}: " if isinstance(key, str) else ""
        document.report(place, f"{name}{found_value}{where}", _valid(detail))


def _valid(detail: ErrorDetails) -> str:
    kind, context = detail["type"], detail.get("ctx", {})
    if kind == "topology":
        return str(context["valid"])
    if kind in ("enum", "literal_error"):
        return str(context["expected"]).replace("'", "")
    if kind == "too_short":
        return "a list that is not empty"
    if kind == "tuple_type":
        return "a list"
    if kind in ("dict_type", "model_type", "model_attributes_type"):
        return "keys and values, {key: value, ...}"
    return detail["msg"][:1].lower() + detail["msg"][1:]


def _model_at(place: tuple[int | str, ...]) -> type[BaseModel] | None:
    """Return the model of the block that holds the last key of pydantic's location."""
    model: type[BaseModel] | None = TopologySpec
    for key in place[:-1]:
        if model is None:
            return None
        field = model.model_fields.get(str(key))
        if field is not None:
            model = _model_in(field.annotation)
        elif key in _KINDS and model is _ANY_NODE:
            model = _NODE_MODELS[str(key)]
    return model


class _AnyNode(BaseModel):
    pass


_ANY_NODE = _AnyNode
_NODE_MODELS: dict[str, type[BaseModel]] = {
    get_args(model.model_fields["kind"].annotation)[0]: model
    for model in get_args(get_args(NodeSpec)[0])
}


def _model_in(annotation: object) -> type[BaseModel] | None:
    """Return the one model inside an annotation such as dict[str, Model] or Model | None."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    found = [m for m in (_model_in(a) for a in get_args(annotation)) if m is not None]
    if len(set(found)) > 1:
        return _ANY_NODE
    return found[0] if found else None


def _keys_at(detail: ErrorDetails) -> list[str]:
    model = _model_at(tuple(detail["loc"]))
    if model is None:
        return []
    return sorted(model.model_fields, key=lambda key: not model.model_fields[key].is_required())


def _describe(detail: ErrorDetails) -> str:
    model = _model_at(tuple(detail["loc"]))
    field = None if model is None else model.model_fields.get(str(detail["loc"][-1]))
    return "a value" if field is None or not field.description else field.description


def _where(place: Place) -> str:
    """Return " in links[3]" or " in nodes.newy"; nothing at the top."""
    text = ""
    for key in place[:-1]:
        text += f"[{key}]" if isinstance(key, int) else f".{key}" if text else key
    return f" in {text}" if text else ""


def _or(choices: tuple[str, ...]) -> str:
    return ", ".join(choices[:-1]) + f" or {choices[-1]}"


def _quote(value: object) -> str:
    if value is None:
        return "nothing"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, dict):
        text = "{" + ", ".join(f"{key}: {_quote(item)}" for key, item in value.items()) + "}"
    elif isinstance(value, list):
        text = "[" + ", ".join(map(_quote, value)) + "]"
    else:
        text = str(value) or "''"
    return text if len(text) <= _MAX_QUOTE else text[: _MAX_QUOTE - 3] + "..."


def _without(
    document: Document, data: dict[str, Any], details: list[ErrorDetails], places: list[Place]
) -> dict[str, Any]:
    """Return the data without unknown keys and without the blocks that have a mistake."""
    rest = copy.deepcopy(data)
    for detail, place in zip(details, places, strict=True):
        if detail["type"] == "extra_forbidden":
            _delete(rest, place)
    for detail, place in zip(details, places, strict=True):
        if detail["type"] == "extra_forbidden":
            continue
        if place[0] == "links" and len(place) > 2 and place[2] not in _LINK_KEYS:
            _keep(rest, place[:2], _LINK_KEYS)
        elif len(place) > 2 and place[2] == "access":
            _delete(rest, place[:3])
        elif len(place) > 1 and place[0] in _SECTIONS:
            document.left_out.add(place[:2])
            if place[0] != "links":
                _delete(rest, place[:2])
        else:
            document.left_out.add(place[:1])
            _delete(rest, place[:1])
    if isinstance(rest.get("links"), list):
        rest["links"] = [
            link for i, link in enumerate(rest["links"]) if ("links", i) not in document.left_out
        ]
    return {**_STAND_INS, **rest}


def _keep(data: Any, place: Place, keys: tuple[str, ...]) -> None:
    """Keep only `keys` in the block at `place`."""
    for step in place:
        data = data[step]
    for key in data.keys() - set(keys):
        del data[key]


def _delete(data: Any, place: Place) -> None:
    for key in place[:-1]:
        try:
            data = data[key]
        except (KeyError, IndexError, TypeError):
            return  # already left out
    if isinstance(data, dict):
        data.pop(place[-1], None)
