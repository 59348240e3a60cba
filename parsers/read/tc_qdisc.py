# SPDX-License-Identifier: Apache-2.0
"""Parse JSON of `tc -s -j qdisc` into queueing disciplines with their counters."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from parsers.base.jsonfiles import BadFile, describe


class Qdisc(BaseModel):
    """One queueing discipline. `options`: its parameters under tc's names."""

    model_config = ConfigDict(frozen=True, extra="ignore", populate_by_name=True, defer_build=True)

    kind: str
    handle: str
    device: str = Field(default="", alias="dev")  # missing if tc was asked about one device
    parent: str = ""  # empty for the root
    root: bool = False
    options: dict[str, object] = {}
    sent_bytes: int = Field(default=0, alias="bytes")
    sent_packets: int = Field(default=0, alias="packets")
    drops: int = 0
    overlimits: int = 0
    backlog_bytes: int = Field(default=0, alias="backlog")
    backlog_packets: int = Field(default=0, alias="qlen")


_QDISCS = TypeAdapter(list[Qdisc])


def parse_qdiscs(text: str, file: str) -> tuple[Qdisc, ...]:
    """Parse the JSON. Raises `BadFile` (file, what was found) if the text is not tc's JSON."""
    try:
        return tuple(_QDISCS.validate_json(text))
    except ValidationError as error:
        raise BadFile(describe(error, file)) from None
