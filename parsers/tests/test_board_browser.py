# SPDX-License-Identifier: Apache-2.0
"""The interactive page of SYNTHETIC runs, in a browser."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from parsers.report.board import render_board
from parsers.report.publish import Written, write_report
from parsers.tests.browser import Browser
from parsers.tests.synthetic import SyntheticCell, write_synthetic_run

pytestmark = pytest.mark.slow

COLOURS = """
(c => { const d = c.getContext('2d').getImageData(0, 0, c.width, c.height).data, seen = new Set();
for (let i = 0; i < d.length; i += 4) seen.add(d[i] << 16 | d[i + 1] << 8 | d[i + 2]);
return seen.size; })(document.getElementById('heat'))
"""
NAMES = "[...document.querySelectorAll('#beside .name')].map(e => {})"
READY_S = 60.0


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = write_synthetic_run(tmp_path_factory.mktemp("run"), SyntheticCell("ldm7"))
    write_report(made)
    return made


def opened(tab: Browser, page: Path, fragment: str = "") -> None:
    tab.open("about:blank")
    tab.open(page.as_uri() + fragment)
    deadline = time.monotonic() + READY_S
    while not tab.evaluate("document.documentElement?.dataset.ready"):
        assert time.monotonic() < deadline, tab.complaints()
        time.sleep(0.05)


def fragment(tab: Browser) -> dict[str, str]:
    text = tab.evaluate("location.hash").removeprefix("#")
    return dict(part.split("=") for part in text.split("&") if part)


@pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), (390, "dark")])
def test_it_says_what_metrics_json_says(tab: Browser, run: Path, width: int, scheme: str) -> None:
    tab.media(scheme)
    tab.resize(width)
    opened(tab, run / "report/dashboard.html")
    assert tab.complaints() == []  # its own policy lets it run; it requests nothing from elsewhere
    assert tab.evaluate("document.documentElement.scrollWidth") == width
    assert tab.evaluate(COLOURS) > 3
    cells = json.loads((run / "metrics.json").read_text())["cells"]
    (cell,) = cells.values()
    rows = tab.evaluate(
        "[...document.querySelectorAll('#receivers tbody tr')].map(r => "
        "[...r.children].map(c => c.textContent))"
    )
    assert [(row[0], int(row[2]), int(row[4]), int(row[5])) for row in rows] == [
        (r["host"], r["by"]["fmtp"], r["repaired"]["count"], r["fmtp"]["retx_blocks"])
        for r in cell["receivers"]
    ]


def test_keys_move_and_the_fragment_brings_the_view_back(tab: Browser, run: Path) -> None:
    tab.media()
    tab.resize(1280)
    page = run / "report/dashboard.html"
    opened(tab, page)
    tab.press(".", 190)
    tab.press("]", 221)
    tab.press("+", 187)
    seen = fragment(tab)
    assert seen["product"] == "0" and seen["hosts"] and float(seen["to"]) > float(seen["from"])
    opened(tab, page, "#" + "&".join(f"{k}={v}" for k, v in seen.items()))
    assert tab.evaluate("document.querySelectorAll('#product table').length") == 1
    assert tab.evaluate("document.querySelectorAll('.pick[aria-pressed=true]').length") == 1
    tab.press("?", 191)
    assert tab.evaluate("document.getElementById('help').open") is True
    tab.press("Escape", 27)
    assert tab.evaluate("document.getElementById('help').open") is False
    tab.press("Tab", 9)
    assert tab.evaluate("document.activeElement.tagName") in ("BUTTON", "A", "SUMMARY", "INPUT")


@pytest.mark.parametrize(
    "given",
    [
        "from=1e13&to=1e13", "from=-1e300&to=1e300", "from=1e300", "to=-5", "from=20&to=1",
        "metric=toString", "metric=__proto__", "product=1.5", "product=-1", "product=1e9",
        "t=1e300", "t=-1", "lines=1,1,1", "hosts=,,a,%00", "cell=__proto__", "=&",
        "t=&from=&to=&product=", "%",
    ],
)  # fmt: skip
def test_a_hostile_address_shows_the_run(tab: Browser, run: Path, given: str) -> None:
    tab.media()
    opened(tab, run / "report/dashboard.html", f"#{given}")
    assert tab.complaints() == []
    assert tab.evaluate("document.querySelectorAll('#series .chart .median').length") == 1
    assert "NaN" not in tab.evaluate("document.querySelector('main').innerHTML")
    assert "undefined" not in tab.evaluate("document.querySelector('main').innerText")
    tab.press(".", 190)
    assert tab.evaluate("document.querySelectorAll('#product table').length") == 1


QUANTILES = """
(() => {
  let seed = 1;
  const next = () => seed = seed * 48271 % 2147483647;
  for (let round = 0; round < 400; round++) {
    const values = Float64Array.from({ length: next() % 40 }, () => next() % 12);
    const sorted = values.slice().sort(), shares = [0, 0.1, 0.5, 0.5, 0.99, 1];
    const wanted = shares.map((p) => {
      if (!sorted.length) return null;
      const at = p * (sorted.length - 1), low = Math.floor(at), high = Math.ceil(at);
      return sorted[low] + (sorted[high] - sorted[low]) * (at - low);
    });
    const found = D.quantiles(values, shares);
    if (found.join() !== wanted.join()) return `${[...sorted]}: ${found}, ${wanted}`;
  }
  return 'same';
})()
"""


def test_quantiles_without_sorting_are_those_of_sorted_values(tab: Browser, run: Path) -> None:
    opened(tab, run / "report/dashboard.html")
    assert tab.evaluate(QUANTILES) == "same"


MISSING = """
D.series({ n: 3, m: 1, hosts: ['a'], created: [0, 1, 2.05], size: [1, 1, 1], way: [1, 0, 2],
  latency: [0.5, 0, 0.01], delay: [0.5, 0, 0.01], blocks: [0, 0, 1] }, 'missing', 3).rows[0]
"""


def test_a_product_is_missing_from_its_creation_until_it_comes(tab: Browser, run: Path) -> None:
    """In steps of 0.1 s: the first for five, the second forever, the third in none."""
    opened(tab, run / "report/dashboard.html")
    assert tab.evaluate(MISSING) == [1] * 5 + [0] * 5 + [1] * 20


def test_a_dot_of_a_sweep_leads_to_its_cell(tab: Browser, drawn_sweep: Written) -> None:
    tab.media()
    tab.resize(1280)
    opened(tab, drawn_sweep.report_dir / "dashboard.html")
    assert tab.complaints() == []
    assert tab.evaluate("document.querySelectorAll('#multiples figure, #multiples svg').length") > 1
    assert tab.evaluate("document.querySelectorAll('#claims tbody tr').length") > 0
    tab.evaluate(
        "document.querySelector('#multiples [tabindex]')"
        ".dispatchEvent(new MouseEvent('click', { bubbles: true }))"
    )
    names = json.loads((drawn_sweep.report_dir.parent / "metrics.json").read_text())["cells"]
    deadline = time.monotonic() + READY_S
    while fragment(tab).get("cell") not in names:
        assert time.monotonic() < deadline
        time.sleep(0.05)


LINES = """
[...document.querySelectorAll('#legend button')].map(e => [e.textContent.trim(), e.ariaPressed])
"""
TICKS = """
[...document.querySelectorAll('#multiples svg:first-child .tick')].map(e => e.textContent)
"""
STYLES = """
[...document.querySelectorAll('#multiples svg')].map(svg =>
  Object.fromEntries([...svg.querySelectorAll('.dot')].map(e =>
    [e.ariaLabel.split(', ')[0], e.getAttribute('class')])))
"""


def sweep_of_many(text: str, protocols: int) -> str:
    """Return a page whose points are of so many protocols, each with values at two receivers."""
    board = json.loads(text.split('id="board">')[1].split("</script>")[0])
    estimate = next(e for p in board["points"] for e in p["estimates"].values())
    board["points"] = []
    for number in range(protocols):
        for loss in (0.0, 0.01, 0.05):
            for subscriber in ({}, {"subscriber": "r1"}, {"subscriber": "r2"}):
                of = {"throughput": estimate, "latency_p50": estimate}
                if number == 0:
                    del of["throughput"]  # a metric that only the others have
                board["points"].append({
                    "factors": {"protocol": f"p{number}", "loss": loss} | subscriber,
                    "shown": {"protocol": f"P{number}", "loss": f"p = {100 * loss:g} %"},
                    "estimates": of, "cells": [board["cells"][0]["name"]],
                })  # fmt: skip
    return render_board(board, {})


def test_a_sweep_has_a_line_for_each_level_and_none_for_receivers(
    tab: Browser, drawn_sweep: Written, tmp_path: Path
) -> None:
    page = tmp_path / "page.html"
    page.write_text(sweep_of_many((drawn_sweep.report_dir / "dashboard.html").read_text(), 6))
    tab.media()
    tab.resize(1280)
    opened(tab, page)
    assert tab.evaluate(LINES) == [[f"P{number}", "true"] for number in range(6)]
    throughput, latency = tab.evaluate(STYLES)
    assert list(latency) == [f"P{number}" for number in range(6)]
    assert len(set(latency.values())) == 6
    assert throughput == {name: style for name, style in latency.items() if name != "P0"}
    labels = "[...document.querySelectorAll('#multiples .label')].map(e => e.textContent)"
    assert {"0", "1", "5"} < set(tab.evaluate(TICKS))
    assert "Packet loss p, %" in tab.evaluate(labels)
    tab.evaluate("document.querySelector('#sweep-table button').click()")
    assert tab.evaluate("document.querySelectorAll('#sweep-table tbody tr').length") == 6 * 3


def test_lines_of_a_large_sweep_are_chosen_and_the_fragment_keeps_them(
    tab: Browser, drawn_sweep: Written, tmp_path: Path
) -> None:
    page = tmp_path / "page.html"
    page.write_text(sweep_of_many((drawn_sweep.report_dir / "dashboard.html").read_text(), 11))
    opened(tab, page)
    assert [pressed for _, pressed in tab.evaluate(LINES)] == ["true"] * 8 + ["false"] * 3
    assert "8 of 11" in tab.evaluate("document.getElementById('legend').textContent")
    for number in (0, 9):
        tab.evaluate(f"document.querySelectorAll('#legend button')[{number}].click()")
    chosen = [0, 1, 1, 1, 1, 1, 1, 1, 0, 1, 0]
    for fresh in (False, True):
        if fresh:
            opened(tab, page, "#lines=1,2,3,4,5,6,7,9,999,x")
        assert [int(p == "true") for _, p in tab.evaluate(LINES)] == chosen
        assert len(set(tab.evaluate(STYLES)[0].values())) == 8
    assert fragment(tab)["lines"].startswith("1,2,3,4,5,6,7,9")


def test_texts_as_levels_are_places_in_their_order(
    tab: Browser, drawn_sweep: Written, tmp_path: Path
) -> None:
    """Nothing numeric varies: no line joins points without an order."""
    text = (drawn_sweep.report_dir / "dashboard.html").read_text()
    board = json.loads(text.split('id="board">')[1].split("</script>")[0])
    (first, *_) = board["points"]
    board["points"] = [
        first | {"factors": {"aqm": name}, "shown": {"aqm": name}}
        for name in ("fifo", "codel", "fq-codel")
    ]
    page = tmp_path / "page.html"
    page.write_text(render_board(board, {}))
    opened(tab, page)
    assert tab.evaluate("document.querySelectorAll('#multiples .dot').length") >= 3
    assert tab.evaluate("document.querySelectorAll('#multiples path.chosen').length") == 0
    assert {"fifo", "codel", "fq-codel"} < set(tab.evaluate(TICKS))


# Texts of the small multiples that a border cuts off, and pairs beside each other that overlap.
CUT = """
[...document.querySelectorAll('#multiples svg')].flatMap(svg => {
  const edge = svg.getBoundingClientRect();
  const ticks = [...svg.querySelectorAll('.tick[text-anchor=middle]')]
    .map(e => [e.textContent, e.getBoundingClientRect()]);
  return ticks.filter(([, r], i) => r.left < edge.left || r.right > edge.right
    || ticks[i - 1]?.[1].right > r.left).map(([text]) => text);
})
"""


@pytest.mark.parametrize("width", [1280, 390])
def test_no_level_is_cut_off_or_covered(
    tab: Browser, drawn_sweep: Written, tmp_path: Path, width: int
) -> None:
    text = (drawn_sweep.report_dir / "dashboard.html").read_text()
    board = json.loads(text.split('id="board">')[1].split("</script>")[0])
    (first, *_) = board["points"]
    names = ["none", "loss-10", "rate-5", "delay-300", "stop-10"]
    board["points"] = [
        first | {"factors": {"worst": name}, "shown": {"worst": name}} for name in names
    ]
    page = tmp_path / "page.html"
    page.write_text(render_board(board, {}))
    tab.media()
    tab.resize(width)
    opened(tab, page)
    assert "none" in tab.evaluate(TICKS)
    assert tab.evaluate(CUT) == []


SHAPES = """
[...document.querySelectorAll('#multiples svg:last-child .line')].map(g => {
  const dot = g.querySelector('.dot');
  return [dot.getAttribute('d').replace(/^M[0-9.]+ [0-9.]+/, ''), getComputedStyle(dot).fill];
})
"""


def test_lines_differ_without_colours(tab: Browser, drawn_sweep: Written, tmp_path: Path) -> None:
    """By the shape of their dots, filled or not: where texts are levels, nothing joins them."""
    page = tmp_path / "page.html"
    page.write_text(sweep_of_many((drawn_sweep.report_dir / "dashboard.html").read_text(), 8))
    tab.media(forced_colours=True)
    opened(tab, page)
    shapes = [tuple(shape) for shape in tab.evaluate(SHAPES)]
    assert len(shapes) == len(set(shapes)) == 8


FOLDED = """
[...document.querySelectorAll('#verdict details li, #claims li')]
  .filter(e => !e.checkVisibility()).length
"""
FIRST = "document.querySelector('#verdict > ul')"
CLAIM = "[...document.querySelectorAll('#claims tbody td')].map(e => e.textContent)"


def edited(written: Written, folder: Path, **changes: object) -> Path:
    """Return a page of a run whose board has these changes."""
    text = (written.report_dir / "dashboard.html").read_text()
    board = json.loads(text.split('id="board">')[1].split("</script>")[0])
    page = folder / "page.html"
    page.write_text(render_board(board | changes, {}))
    return page


def claim(written: Written, count: int) -> dict[str, object]:
    """Return an undecided claim about so many points. Its texts have semicolons of their own."""
    text = (written.report_dir / "dashboard.html").read_text()
    board = json.loads(text.split('id="board">')[1].split("</script>")[0])
    first: dict[str, object] = board["claims"][0]
    parts = [
        {"label": f"m = {n}", "numbers": f"{n}; one run", "reason": "few; too few", "sees": ""}
        for n in range(count)
    ]
    reasons = [f"{part['label']}: {part['reason']}" for part in parts]
    numbers = "; ".join(f"{part['label']}: {part['numbers']}" for part in parts)
    listed = {"parts": parts, "reasons": reasons}
    return first | listed | {"numbers": numbers, "reason": "; ".join(reasons)}


def test_doubts_and_long_numbers_are_folded_but_on_paper(
    tab: Browser, drawn_sweep: Written, tmp_path: Path
) -> None:
    """The first doubt, cut to three lines, stands before the result; the figures follow."""
    doubts = [f"fail: check {n}: 5 of 9: " + "; ".join(["a to b 1"] * 40) for n in range(12)]
    page = edited(drawn_sweep, tmp_path, doubts=doubts, claims=[claim(drawn_sweep, 12)])
    tab.media()
    tab.resize(390)
    opened(tab, page)
    assert tab.complaints() == []
    assert tab.evaluate("document.getElementById('verdict').offsetHeight") < 250
    assert tab.evaluate(f"{FIRST}.textContent") == doubts[0]  # to a screen reader whole
    assert tab.evaluate(f"{FIRST}.offsetHeight") < 90
    assert tab.evaluate(FOLDED) == 12 + 2 * 12
    tab.media(medium="print")
    assert tab.evaluate(FOLDED) == 0
    tab.media()
    tab.evaluate("document.querySelectorAll('summary').forEach(e => e.click())")
    assert tab.evaluate(FOLDED) == 0


@pytest.mark.parametrize("doubts", [[], ["warn: shell: `a; b` was slow"]])
def test_short_texts_are_shown_whole(
    tab: Browser, drawn_sweep: Written, tmp_path: Path, doubts: list[str]
) -> None:
    """Nothing in them decides what is cut or folded: a semicolon is only a character."""
    page = edited(drawn_sweep, tmp_path, doubts=doubts, claims=[claim(drawn_sweep, 2)])
    tab.media()
    tab.resize(1280)
    opened(tab, page)
    assert tab.evaluate("document.querySelectorAll('#verdict details').length") == 0
    assert tab.evaluate("document.querySelectorAll('#verdict li').length") == len(doubts)
    assert tab.evaluate(f"{FIRST}?.innerText ?? ''") == "".join(doubts)
    assert tab.evaluate(CLAIM)[1:3] == [
        "m = 0: 0; one run; m = 1: 1; one run",
        "m = 0: few; too few; m = 1: few; too few",
    ]
    page = edited(drawn_sweep, tmp_path, claims=[claim(drawn_sweep, 3)])
    opened(tab, page)
    items = tab.evaluate("[...document.querySelectorAll('#claims li')].map(e => e.textContent)")
    assert items == [f"m = {n}: {n}; one run" for n in range(3)] + [
        f"m = {n}: few; too few" for n in range(3)
    ]


def test_rows_beside_published_values_have_names_of_their_own(
    tab: Browser, drawn_sweep: Written, tmp_path: Path
) -> None:
    text = (drawn_sweep.report_dir / "dashboard.html").read_text()
    board = json.loads(text.split('id="board">')[1].split("</script>")[0])
    row = next(r for r in board["beside"] if r["ours"] and r["paper"])
    other = {**row, "source": "elsewhere"}
    levels = [{"loss": 0.01, "rate_bps": 2e7}, {"loss": 0.02, "rate_bps": 2e7}, {"loss": 0.02}]
    board["beside"] = [{**row, "at": at} for at in levels] + [other | {"at": levels[0]}] * 2
    page = tmp_path / "page.html"
    page.write_text(render_board(board, {}))
    tab.media()
    for width in (1280, 390):
        tab.resize(width)
        opened(tab, page)
        names = tab.evaluate(NAMES.format("e.textContent"))
        assert len(set(names)) == len(names) == 5
        assert sum("loss 2 %" in name for name in names) == 2
        assert "rate 20 Mbit/s" in names[0] and sum("elsewhere" in name for name in names) == 2
        assert min(tab.evaluate(NAMES.format("e.getBBox().x"))) >= -0.5
