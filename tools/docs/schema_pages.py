# SPDX-License-Identifier: Apache-2.0
"""Reference pages of file formats, from their JSON schemas: a table of keys for each block."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any


def schema_page(title: str, schema: dict[str, Any]) -> str:
    """Return a Markdown page with every block of a JSON schema that pydantic wrote."""
    blocks = dict(schema.get("$defs", {}))
    if "properties" in schema:
        blocks = {schema["title"]: schema, **blocks}
    return "\n".join([f"# {title}", *(line for b in blocks.items() for line in _block(*b))]) + "\n"


def _block(name: str, block: dict[str, Any]) -> Iterator[str]:
    yield from ("", f"## {name}", "")
    if "description" in block:
        yield from (block["description"].replace("<", "&lt;"), "")
    if "enum" in block:
        yield f"One of {', '.join(f'`{value}`' for value in block['enum'])}."
    if "properties" not in block:
        return
    yield from ("| key | type | default | meaning |", "|---|---|---|---|")
    required = block.get("required", ())
    for key, value in block["properties"].items():
        if key in required:
            default = "required"
        else:  # a required key that a factor may replace has no default, either
            default = f"`{value['default']}`" if "default" in value else "required, or a factor"
        cells = (f"`{key}`", type_of(value), default, value.get("description", ""))
        yield (
            "| " + " | ".join(cell.replace("|", "\\|").replace("\n", " ") for cell in cells) + " |"
        )


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ").replace("<", "&lt;")


def type_of(value: dict[str, Any]) -> str:
    """Return the type of a schema's value in words, with blocks as links."""
    if "$ref" in value:
        name = value["$ref"].rsplit("/", 1)[-1]
        return f"[{name}](#{name.lower()})"
    if "const" in value:
        return f"`{value['const']}`"
    if "enum" in value:
        return ", ".join(f"`{one}`" for one in value["enum"])
    for choice in ("anyOf", "oneOf"):
        if choice in value:
            kinds = [type_of(one) for one in value[choice] if one.get("type") != "null"]
            return " or ".join(dict.fromkeys(kinds))
    if value.get("type") == "array":
        return f"list of {type_of(value.get('items', {}))}"
    return str(value.get("type", "any"))
