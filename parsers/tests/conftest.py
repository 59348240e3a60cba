# SPDX-License-Identifier: Apache-2.0
"""Reports with their figures, drawn once for all tests, since drawing takes most of the room's
time; and a browser that shows them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from parsers.report.publish import Written, write_report
from parsers.tests.browser import PROGRAMS, Browser, browser, program
from parsers.tests.synthetic import write_synthetic_run, write_synthetic_sweep


@pytest.fixture(scope="session")
def drawn(tmp_path_factory: pytest.TempPathFactory) -> Written:
    """Write a run of both protocols, which tests only read."""
    return write_report(
        write_synthetic_run(tmp_path_factory.mktemp("drawn") / "lossy" / "20261121T020000Z")
    )


@pytest.fixture(scope="session")
def drawn_sweep(tmp_path_factory: pytest.TempPathFactory) -> Written:
    """Write a run with a figure of each kind, which tests only read."""
    return write_report(
        write_synthetic_sweep(tmp_path_factory.mktemp("drawn") / "synthetic" / "s1")
    )


@pytest.fixture(scope="module")
def tab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    """Yield a page of a headless browser, for a file's tests one after the other."""
    path = program()
    if path is None:
        pytest.skip(f"no browser: none of {', '.join(PROGRAMS)}; `make test-setup` installs one")
    with browser(path, tmp_path_factory.mktemp("browser") / "profile") as found:
        yield found


@pytest.fixture
def no_plots(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave the figures out: they take most of the time, and tests of the text do not need them."""
    monkeypatch.setattr("parsers.report.publish.render_plots", lambda *_: ())
