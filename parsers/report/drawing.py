# SPDX-License-Identifier: Apache-2.0
"""The style of all figures, and their conversion to PNG, SVG and PDF bytes.

Colours are the Okabe-Ito palette. Curves also differ in marker, dash or hatch, so that they can be
told apart without colour. The same data gives the same bytes.
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

import matplotlib
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

COLOURS: Final = {"ldm7": "#0072B2", "ldm6": "#D55E00", "fcast": "#009E73"}
PALETTE: Final = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
MARKERS: Final = ("o", "s", "^", "D", "v", "P", "X")
# (on, off) lengths; the first is a solid line.
DASHES: Final = ("-", (0, (5, 1.5)), (0, (1.5, 1.2)), (0, (6, 1.5, 1.5, 1.5)), (0, (9, 3)))
HATCHES: Final = ("", "///", "...", "\\\\\\", "xxx", "++", "oo")
GREY: Final = "#7a7a7a"
# The viewer renders the text of an SVG and may lack the first font; the others are about as wide.
FONTS_OF_SVG: Final = b"'DejaVu Sans', Verdana, sans-serif"

_STYLE: Final[dict[Any, Any]] = {
    "font.family": ["DejaVu Sans"],
    "font.size": 10,
    "axes.titlesize": 12,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#dddddd",
    "grid.linewidth": 0.8,
    "legend.frameon": False,
    "hatch.linewidth": 0.8,
    "svg.fonttype": "none",  # text stays text: you can search it, and files are a third of the size
    "pdf.fonttype": 42,
}


@dataclass(frozen=True)
class Plot:
    """A finished figure. `name`: the file name without extension; `alt`: a description in words;
    `caption`: the text below it (empty: `alt`)."""

    name: str
    title: str
    alt: str
    png: bytes
    svg: bytes
    pdf: bytes
    caption: str = ""

    @property
    def files(self) -> dict[str, bytes]:
        """Return the figure's files by name."""
        return {
            f"{self.name}.png": self.png,
            f"{self.name}.svg": self.svg,
            f"{self.name}.pdf": self.pdf,
        }


@contextmanager
def style() -> Iterator[None]:
    """Set the style for figures that are made and saved in this context."""
    with matplotlib.rc_context(_STYLE):
        yield


def blank(height: float = 4.0) -> Figure:
    """Return an empty figure of that height in inches."""
    figure = Figure(figsize=(9.0, height), dpi=120, layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def single(height: float = 4.0) -> tuple[Figure, Axes]:
    """Return an empty figure with one pair of axes; the height is in inches."""
    figure = blank(height)
    return figure, figure.add_subplot()


def save(figure: Figure, name: str, title: str, alt: str, caption: str = "") -> Plot:
    """Save with a fixed salt and no date, so that equal figures give equal bytes."""
    png, svg, pdf = io.BytesIO(), io.BytesIO(), io.BytesIO()
    figure.savefig(png, format="png")
    with matplotlib.rc_context({"svg.hashsalt": name}):
        figure.savefig(svg, format="svg", metadata={"Date": None})
    figure.savefig(pdf, format="pdf", metadata={"CreationDate": None})
    drawn = svg.getvalue().replace(b"'DejaVu Sans'", FONTS_OF_SVG)
    return Plot(name, title, alt, png.getvalue(), drawn, pdf.getvalue(), caption)


def place_of(protocol: str) -> int:
    """Return the number of a protocol's colour and dashes, the same in every report."""
    own = list(COLOURS)
    return own.index(protocol) if protocol in COLOURS else len(own) + sum(map(ord, protocol))


def colour_of(protocol: str) -> str:
    """Return a protocol's colour. Beyond the papers' protocols, two may share a colour."""
    return PALETTE[place_of(protocol) % len(PALETTE)]
