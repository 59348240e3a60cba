# SPDX-License-Identifier: Apache-2.0
"""Pages of SYNTHETIC runs: their accessibility (axe-core), by the keyboard alone, in forced colours
and on paper."""

from __future__ import annotations

from pathlib import Path

import pytest

from parsers.report.publish import Written
from parsers.tests.browser import Browser, axe_source
from parsers.tests.test_board_browser import opened

pytestmark = pytest.mark.slow

PAGES = ("dashboard.html", "index.html")
UNFOLD = "document.querySelectorAll('details').forEach(d => d.open = true)"
FOCUS = """
(() => {
  const e = document.activeElement;
  if (e === document.body) return null;
  const all = [...document.querySelectorAll('*')], box = e.getBoundingClientRect();
  return [all.indexOf(e),
    e.getAttribute('aria-label') || e.labels?.[0]?.textContent || e.textContent.trim().slice(0, 40),
    getComputedStyle(e).outlineStyle !== 'none' && box.bottom > 0 && box.top < innerHeight];
})()
"""
REACHABLE = """
[...document.querySelectorAll('a[href], button, select, input, summary, [tabindex="0"]')]
  .filter(e => e.checkVisibility({ visibilityProperty: true })).length
"""
HELD = "[document.activeElement.tagName, document.activeElement.textContent]"
STROKES = "[...document.querySelectorAll('{}')].map(e => getComputedStyle(e).stroke)"
BAD = (
    "data:text/html,<html lang=en><title>t</title><main><h1>h</h1>"
    "<p style='color:%23bbb;background:%23fff'>pale</p><img src='data:,'><button></button></main>"
)


@pytest.fixture(scope="module")
def axe() -> str:
    """Return axe-core's text. A machine without it skips these tests."""
    source = axe_source()
    if source is None:
        pytest.skip("no axe-core; `make test-setup` installs it where there is npm")
    return source


@pytest.fixture(params=["run", "sweep"])
def folder(request: pytest.FixtureRequest, drawn: Written, drawn_sweep: Written) -> Path:
    """Return the folder with a report's pages."""
    return (drawn if request.param == "run" else drawn_sweep).report_dir


def shown(tab: Browser, page: Path) -> None:
    """Open a page, and unfold everything in it."""
    if page.name == "dashboard.html":
        opened(tab, page, "#product=1&hosts=r1")
        tab.evaluate("document.querySelectorAll('button[aria-expanded]').forEach(b => b.click())")
    else:
        tab.open(page.as_uri())
    tab.evaluate(UNFOLD)


def test_axe_finds_what_is_wrong(tab: Browser, axe: str) -> None:
    tab.media()
    tab.open(BAD)
    rules = {text.split(":")[0] for text in tab.axe(axe)}
    assert {"color-contrast", "image-alt", "button-name"} <= rules


@pytest.mark.parametrize("page", PAGES)
@pytest.mark.parametrize(
    ("width", "scheme", "forced"),
    [(1280, "light", False), (390, "dark", False), (1280, "dark", True)],
)
def test_nothing_violates_accessibility(
    tab: Browser, axe: str, folder: Path, page: str, width: int, scheme: str, forced: bool
) -> None:
    tab.media(scheme, forced_colours=forced)
    tab.resize(width)
    shown(tab, folder / page)
    assert tab.axe(axe) == []
    if page == "dashboard.html":
        tab.evaluate("document.getElementById('help').showModal()")
        assert tab.axe(axe) == []


def tab_through(tab: Browser) -> list[tuple[int, str, bool]]:
    """Return (place in the document, name, visible) of what Tab reaches, from the top."""
    found: list[tuple[int, str, bool]] = []
    for _ in range(400):
        tab.press("Tab", 9)
        focus = tab.evaluate(FOCUS)
        if focus is None or (found and focus[0] == found[0][0]):
            return found
        found.append((focus[0], focus[1], focus[2]))
    raise AssertionError(f"no end after {len(found)}: {found[-4:]}")


@pytest.mark.parametrize("page", PAGES)
def test_a_keyboard_reaches_everything_in_its_order(tab: Browser, folder: Path, page: str) -> None:
    tab.media()
    tab.resize(1280)
    shown(tab, folder / page)
    found = tab_through(tab)
    places = [place for place, _, _ in found]
    assert places == sorted(set(places))
    assert [name for _, name, visible in found if not visible] == []
    assert all(name for _, name, _ in found)
    assert len(found) == tab.evaluate(REACHABLE)


def test_focus_and_tables_stay_when_parts_are_drawn_again(tab: Browser, drawn: Written) -> None:
    tab.media()
    tab.resize(1280)
    opened(tab, drawn.report_dir / "dashboard.html")
    tab.evaluate("document.querySelector('#receivers button').focus()")
    held = tab.evaluate(HELD)
    tab.press("Enter", 13)
    pressed = "document.querySelectorAll('#receivers [aria-pressed=true]').length"
    assert (tab.evaluate(pressed), tab.evaluate(HELD)) == (1, held)
    tab.press("Enter", 13)
    assert (tab.evaluate(pressed), tab.evaluate(HELD)) == (0, held)
    tab.evaluate("document.querySelector('#series button').focus()")
    tab.press("Enter", 13)
    tab.press("+", 187)  # draws the series again
    tab.press("ArrowLeft", 37, shift=True)
    assert tab.evaluate("document.activeElement.getAttribute('aria-expanded')") == "true"
    assert tab.evaluate("document.querySelectorAll('#series table').length") == 1
    tab.evaluate("document.querySelector('#evidence summary').focus()")
    tab.press("Enter", 13)
    tab.press("Escape", 27)  # draws the cell again
    assert tab.evaluate("document.querySelector('#evidence details').open") is True


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_forced_colours_are_the_readers(tab: Browser, drawn: Written, scheme: str) -> None:
    """A legend's lines look like those of its chart; texts and buttons follow the forced
    colours."""
    tab.media(scheme, forced_colours=True)
    tab.resize(1280)
    shown(tab, drawn.report_dir / "dashboard.html")
    text = tab.evaluate("getComputedStyle(document.body).color")
    assert set(tab.evaluate(STROKES.format("#series .median, #series .axis"))) == {text}
    ticks = "[...document.querySelectorAll('#series text')].map(e => getComputedStyle(e).fill)"
    assert set(tab.evaluate(ticks)) == {text}
    frames = tab.evaluate(
        "['true', 'false'].map(v => getComputedStyle(document.querySelector("
        "`button.pick[aria-pressed=${v}]`)).borderTopColor)"
    )
    assert frames[0] != frames[1]


def test_paper_shows_what_is_folded_and_no_controls(tab: Browser, drawn: Written) -> None:
    tab.media("dark", "print")
    tab.resize(700)
    opened(tab, drawn.report_dir / "dashboard.html")
    assert tab.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert tab.evaluate("document.documentElement.scrollWidth") == 700
    hidden = "[...document.querySelectorAll('.bar, #asks, .choose')].filter(e => e.offsetHeight)"
    assert tab.evaluate(f"{hidden}.length") == 0
    tables = "[...document.querySelectorAll('#evidence table')]"
    assert tab.evaluate(f"{tables}.length") >= 2
    assert tab.evaluate(f"{tables}.every(t => t.checkVisibility() && t.offsetHeight)") is True
    assert tab.pdf().startswith(b"%PDF")
