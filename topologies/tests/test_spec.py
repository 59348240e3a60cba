# SPDX-License-Identifier: Apache-2.0
"""schema.json: it is current, and agrees with the loader about the bundled files."""

import json
from pathlib import Path

import jsonschema
import pytest
from ruamel.yaml import YAML

from topologies.model.load import bundled, find
from topologies.model.spec import json_schema

SCHEMA = Path(__file__).parents[1] / "schema.json"
# Mistakes within one block, which the schema alone can see.
SHAPE_ERRORS = ["unknown-key", "rate-zero", "loss-range", "delay-negative", "bad-role-and-kind",
                "missing-key", "unknown-top-key", "vlan-out-of-802.1q", "rate-unit"]  # fmt: skip


def read(path: Path) -> object:
    return YAML(typ="safe", pure=True).load(path)


def test_schema_is_current() -> None:
    assert SCHEMA.read_text() == json_schema(), "run python -m topologies.model.spec"


def test_schema_is_valid() -> None:
    jsonschema.Draft202012Validator.check_schema(json.loads(SCHEMA.read_text()))


@pytest.mark.parametrize("name", bundled())
def test_bundled_files_conform(name: str) -> None:
    jsonschema.Draft202012Validator(json.loads(SCHEMA.read_text())).validate(read(find(name)))


@pytest.mark.parametrize("case", SHAPE_ERRORS)
def test_schema_refuses(case: str) -> None:
    validator = jsonschema.Draft202012Validator(json.loads(SCHEMA.read_text()))
    data = read(Path(__file__).parent / "errors" / f"{case}.yaml")
    assert not validator.is_valid(data)
