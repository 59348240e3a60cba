# SPDX-License-Identifier: Apache-2.0
"""Reports of SYNTHETIC runs (see synthetic.py) as a browser shows them."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pytest
from matplotlib.image import imread

from parsers.report.publish import Written, write_report
from parsers.tests.browser import Browser
from parsers.tests.synthetic import SyntheticCell, write_synthetic_run

pytestmark = pytest.mark.slow

BOXES = """
[...document.querySelectorAll('body *')].filter(e => {
  if (e.closest('.scroll, pre') && !e.matches('.scroll, pre')) return false;
  const box = e.getBoundingClientRect();
  return box.width > 0 && box.right > innerWidth + 0.5;
}).map(e => e.tagName + ' ' + e.textContent.trim().slice(0, 40))
"""
IMAGES = "[...document.images].map(i => [i.alt, i.complete && i.naturalWidth])"
# WCAG 2.1: relative luminance and contrast of the page's text with its background.
CONTRAST = """
(() => {
  const channel = v => { v /= 255; return v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4 };
  const light = text => { const c = text.match(/[\\d.]+/g).map(Number);
    return 0.2126 * channel(c[0]) + 0.7152 * channel(c[1]) + 0.0722 * channel(c[2]) };
  const page = light(getComputedStyle(document.body).backgroundColor);
  return [...document.querySelectorAll('p, li, td, th, h2, a, summary, figcaption')].map(e => {
    const box = e.closest('.verdict, tr:nth-child(even)');
    const back = box && getComputedStyle(box).backgroundColor !== 'rgba(0, 0, 0, 0)'
      ? light(getComputedStyle(box).backgroundColor) : page;
    const text = light(getComputedStyle(e).color);
    return (Math.max(text, back) + 0.05) / (Math.min(text, back) + 0.05);
  }).reduce((a, b) => Math.min(a, b));
})()
"""


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    cells = (SyntheticCell("ldm7"), SyntheticCell("ldm6", verdict="degraded", damaged=True))
    run = write_synthetic_run(tmp_path_factory.mktemp("run"), *cells)
    return write_report(run).report_dir / "index.html"


@pytest.fixture
def sweep_page(drawn_sweep: Written) -> Path:
    return drawn_sweep.report_dir / "index.html"


def looks_right(tab: Browser, page: Path, width: int) -> None:
    """Check what holds for every report at that width, with everything unfolded."""
    tab.resize(width)
    tab.open(page.as_uri())
    assert tab.complaints() == []
    tab.evaluate("document.querySelectorAll('details').forEach(d => d.open = true)")
    assert tab.evaluate("document.documentElement.scrollWidth") == width
    assert tab.evaluate(BOXES) == []
    images = tab.evaluate(IMAGES)
    assert images and all(alt and loaded for alt, loaded in images), images
    picture = imread(io.BytesIO(tab.screenshot(height=3000)))[..., :3]
    assert picture.shape[1] == width
    # Text, rules and figures on an even ground: neither blank nor black.
    ground = np.abs(picture - picture[2, 2]).max(axis=2) < 0.02
    assert 0.4 < ground.mean() < 0.97


@pytest.mark.parametrize("width", [1280, 390])
def test_report_in_a_browser(tab: Browser, page: Path, width: int) -> None:
    tab.media()
    looks_right(tab, page, width)
    titles = tab.evaluate("[...document.querySelectorAll('h2')].map(h => h.textContent)")
    assert titles[0].startswith("LDM7 and LDM6 at m = 2, r = 20 Mbit/s, p = 1 %")
    assert {"Receivers", "Losses", "Fidelity verdict and its evidence"} <= set(titles)
    assert tab.evaluate("document.querySelectorAll('table').length") == tab.evaluate(
        "document.querySelectorAll('table:has(thead th[scope=col])').length"
    )
    # Every link inside the page leads somewhere, and every region can be scrolled by keyboard.
    links = tab.evaluate("[...document.querySelectorAll('nav a')].map(a => a.textContent)")
    assert set(titles) <= set(links)
    targets = "[...document.querySelectorAll('nav a')].filter(a => !document.querySelector(a.hash))"
    assert tab.evaluate(f"{targets}.length") == 0
    assert tab.evaluate("[...document.querySelectorAll('.scroll')].every(e => e.tabIndex == 0)")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_can_be_read_in_light_and_dark(tab: Browser, page: Path, scheme: str) -> None:
    tab.media(scheme)
    looks_right(tab, page, 1280)
    red, green, blue = tab.evaluate(
        "getComputedStyle(document.body).backgroundColor.match(/\\d+/g).map(Number)"
    )
    assert (red + green + blue > 600) == (scheme == "light")
    assert tab.evaluate(CONTRAST) >= 4.5  # WCAG 2.1, 1.4.3


def test_printed_pages_hold_everything(tab: Browser, page: Path) -> None:
    tab.media("dark", "print")
    tab.resize(700)  # about the width of a sheet of paper
    tab.open(page.as_uri())
    assert tab.evaluate("getComputedStyle(document.querySelector('nav')).display") == "none"
    assert tab.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    tab.evaluate("document.querySelectorAll('details').forEach(d => d.open = true)")
    assert tab.evaluate("document.documentElement.scrollWidth") == 700
    assert tab.pdf().startswith(b"%PDF")


@pytest.mark.parametrize("width", [1280, 400])
def test_report_of_a_sweep_in_a_browser(tab: Browser, sweep_page: Path, width: int) -> None:
    tab.media()
    looks_right(tab, sweep_page, width)
    sections = tab.evaluate(
        "[...document.querySelectorAll('main > section')].map(s => "
        "s.querySelector('h2, summary').textContent)"
    )
    assert sections == [
        "Ours and the papers'",
        "The papers' claims",
        "Figures",
        "Run conditions",
        "All points",
        "Each group of cells by itself",
        "Failed cells",
        "Excluded cells",
        "Fidelity verdicts and their evidence",
        "The generated trace",
        "Input: what was missing, malformed or warned about",
        "How to repeat it",
        "Provenance",
    ]
    # A figure of each kind, at the top; sections stay folded until the reader opens them.
    assert tab.evaluate("document.querySelectorAll('main > section > figure').length") == 5
    tab.open(sweep_page.as_uri())
    assert tab.evaluate("document.querySelectorAll('details[open]').length") == 0
    seen = "[...document.querySelectorAll('details table')].filter(t => t.checkVisibility())"
    assert tab.evaluate(f"{seen}.length") == 0
    # A keyboard opens them.
    tab.evaluate("document.querySelector('summary').focus()")
    tab.press("Enter", 13)
    assert tab.evaluate("document.querySelectorAll('details[open]').length") == 1
