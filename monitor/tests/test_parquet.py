# SPDX-License-Identifier: Apache-2.0
"""Parquet: what is written comes back, other programs can read it, and damage is refused in a
line."""

from __future__ import annotations

import builtins
import io
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from common.command_line import run
from monitor import parquet
from monitor.cli import app
from monitor.parquet import ParquetError
from monitor.recording import MOST_VALUE, Recording, Series
from monitor.tests.test_cli import Called, called, make_run
from monitor.tests.test_texts import LATENCY, PINNED, SECOND, START, recorded

__all__ = ["called"]


@pytest.fixture
def arrow() -> Any:
    """Return pyarrow."""
    return pytest.importorskip("pyarrow", reason="no pyarrow; the extra parquet installs it")


def written(folder: Path, recording: Recording) -> Path:
    path = folder / "x.parquet"
    path.write_bytes(parquet.content(recording))
    return path


@pytest.mark.usefixtures("arrow")
def test_all_comes_back(tmp_path: Path) -> None:
    recording = recorded()
    recording.of(Series("large", "counter", 9, "Exact.")).add(START, MOST_VALUE)
    recording.of(Series("names", "gauge", 0, "", (("time", "1"), ("value", "\u2028|\n")))).add(0, 0)
    assert parquet.read(written(tmp_path, recording)) == recording
    assert parquet.read(written(tmp_path, Recording())) == Recording()


def test_others_read_times_and_values(arrow: Any, tmp_path: Path) -> None:
    import pyarrow.parquet

    table = pyarrow.parquet.read_table(written(tmp_path, recorded()))
    rows = [row for row in table.to_pylist() if row["metric"] == LATENCY.name]
    assert [row["label_host"] for row in rows] == ["uva"] * len(rows)
    assert rows[0]["time"].timestamp() == START / SECOND
    points = list(recorded().points[LATENCY])
    assert [row["value"] for row in rows] == [value / 1e6 for _, value in points]
    gone = [row for row in table.to_pylist() if row["value"] is None]
    assert {row["metric"] for row in gone} == {PINNED.name}
    assert table.schema.field("time").type == arrow.timestamp("us", "UTC")


@pytest.mark.usefixtures("arrow")
def test_any_damage_is_read_or_refused(tmp_path: Path) -> None:
    whole = parquet.content(recorded())
    source = random.Random(20)
    path = tmp_path / "x.parquet"
    refused = 0
    for _ in range(300):
        data = bytearray(whole[: source.choice([len(whole), source.randrange(len(whole))])])
        for _ in range(source.randrange(1, 4)):
            if data:
                data[source.randrange(len(data))] = source.randrange(256)
        path.write_bytes(data)
        try:
            parquet.read(path)
        except ParquetError as error:
            refused += 1
            assert "\n" not in str(error)
    assert refused > 100


def remade(change: Callable[[Any, Any], Any]) -> bytes:
    """Return the file of a changed table."""
    import pyarrow
    import pyarrow.parquet

    file = io.BytesIO()
    pyarrow.parquet.write_table(change(pyarrow, parquet._table(recorded())), file)
    return file.getvalue()


def replaced(table: Any, name: str, column: Any) -> Any:
    return table.set_column(table.schema.names.index(name), name, column)


@pytest.mark.usefixtures("arrow")
@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda _, t: t.drop_columns(["units"]), "found no column units; valid: "),
        (lambda a, t: t.set_column(0, "time", a.array(["x"] * len(t))), "no Parquet: "),
        (lambda a, t: t.set_column(1, "metric", a.array([1] * len(t))), "found metric 1"),
        (lambda _, t: t.append_column("units", t["units"]), "each once"),
        (lambda a, t: replaced(t, "units", a.array([-2] * len(t))), "units -2; valid: from 0"),
        (lambda a, t: replaced(t, "decimals", a.array([10] * len(t))), "decimals 10; valid: 0 to"),
    ],
)
def test_other_tables_are_refused(
    tmp_path: Path, change: Callable[[Any, Any], Any], said: str
) -> None:
    path = tmp_path / "x.parquet"
    path.write_bytes(remade(change))
    with pytest.raises(ParquetError, match=said) as found:
        parquet.read(path)
    assert "\n" not in str(found.value)


@pytest.mark.usefixtures("arrow")
def test_a_bomb_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A billion equal values take a few bytes."""
    monkeypatch.setattr(parquet, "MOST_ROWS", 1000)
    path = tmp_path / "x.parquet"
    path.write_bytes(remade(lambda a, t: a.concat_tables([t] * 20)))
    with pytest.raises(ParquetError, match="rows; valid: at most 1000"):
        parquet.read(path)


@pytest.mark.usefixtures("arrow")
def test_the_commands(
    tmp_path: Path, called: Called, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    called("import", str(make_run(tmp_path) / "cells/a"))
    export = ["export", "--source", "a", "--format", "parquet", "--store", str(tmp_path / "m.db")]
    out = io.TextIOWrapper(io.BytesIO())
    with monkeypatch.context() as patched:
        patched.setattr("sys.stdout", out)
        assert run(app, export) == 0
    (tmp_path / "x.parquet").write_bytes(out.buffer.getvalue())
    assert called("import", str(tmp_path / "x.parquet")) == (
        *(0, "x (native): 2 series, 4 values\n", ""),
    )
    texts = [called("export", "--source", name)[1] for name in ("a", "x")]
    assert texts[0] == texts[1] and texts[0].endswith("# EOF\n")
    with monkeypatch.context() as patched:
        patched.setattr(out, "isatty", lambda: True, raising=False)
        patched.setattr("sys.stdout", out)
        assert run(app, export) == 2
    assert capsys.readouterr().err == "found a terminal; valid: a file or a pipe (> FILE)\n"


def test_without_pyarrow_one_line_says_how_to_get_it(
    tmp_path: Path, called: Called, monkeypatch: pytest.MonkeyPatch
) -> None:
    called("import", str(make_run(tmp_path) / "cells/a"))
    real = builtins.__import__

    def without(name: str, *rest: Any) -> Any:
        if name.startswith("pyarrow"):
            raise ImportError(name)
        return real(name, *rest)

    monkeypatch.setattr(builtins, "__import__", without)
    said = "found no package pyarrow; valid: install it with `.venv/bin/pip install"
    code, out, error = called("export", "--source", "a", "--format", "parquet")
    assert (code, out, error.count("\n")) == (2, "", 1) and said in error
    (tmp_path / "x.parquet").write_bytes(b"PAR1")
    code, _, error = called("import", str(tmp_path / "x.parquet"))
    assert (code, error.count("\n")) == (2, 1) and said in error
