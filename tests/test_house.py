# SPDX-License-Identifier: Apache-2.0
"""The rule of imports holds, has no unused arrow, and finds what breaks it."""

from __future__ import annotations

from tests import house


def test_imported_sees_all_forms() -> None:
    source = "import a.b\nfrom c import d\ndef f():\n    from e.f import g as h\n"
    assert house.imported(source) == {"a.b", "c.d", "e.f.g"}


def test_imports_follow_the_rule() -> None:
    files = list(house.sources())
    assert len(files) > 250
    assert house.violations(files) == []


def test_every_arrow_of_the_rule_is_used() -> None:
    unused = {(place, entry) for place, entries in house.MAY_IMPORT.items() for entry in entries}
    for place, path in house.sources():
        for module in house.foreign_imports(place, path.read_text()):
            unused.discard((place, house.arrow_for(module, place) or ""))
    assert unused == set()


def test_no_two_places_import_each_other() -> None:
    assert house.circles() == []


def test_a_forbidden_import_is_found() -> None:
    source = "from parsers.read import trace\nfrom parsers.base import times\n"
    assert list(house.foreign_imports("parsers.base", source)) == ["parsers.read.trace"]
    assert house.arrow_for("parsers.read.trace", "parsers.base") is None
    assert house.arrow_for("parsers.base.times", "parsers.read") == "parsers.base"
    # The same file would break the rule in the lowest room.
    file = house.ROOT / "parsers/read/trace.py"
    found = house.violations([("common", file)])
    assert found
    assert all(line.startswith("parsers/read/trace.py (common) imports ") for line in found)
