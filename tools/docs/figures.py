# SPDX-License-Identifier: Apache-2.0
"""Draw the figures of the results pages from kept metrics: docs/results/NAME/points.csv.

That file has a sweep's points like a run's report/points.csv, but only the metrics of the figures.
What to draw, and the published values beside it, are in the experiment file. A page names a figure
as `<!-- figure: NAME/FIGURE -->`; the site's build writes the SVG beside the page's copy.

`python -m tools.docs.figures RUN` keeps the points of a run; with `--page FIGURE` also its report,
with `--today` judged by claims that the experiment file has got since.
`--readme` draws the README's figure.
"""

from __future__ import annotations

import argparse
import csv
import io
import json
import os
import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from experiments.design.spec import find, load
from parsers.base.factors import FACTORS, show
from parsers.base.intervals import ONE_RUN, Estimate
from parsers.base.metric_units import METRICS
from parsers.measure.evaluate import evaluate
from parsers.measure.latency_parts import METRICS_OF
from parsers.measure.sweep import Point, metric_of, varying
from parsers.read.published import Figure, PaperValue, parse_published
from parsers.report import curves, latency
from parsers.report.drawing import Plot, style
from parsers.report.markdown import render_markdown
from parsers.report.publish import make_report

ROOT: Final = Path(__file__).resolve().parents[2]
RESULTS: Final = ROOT / "docs/results"
KEPT: Final = "points.csv"
CLAIMS: Final = "## The papers' claims\n\n"
LATER: Final = "These claims are later than the run, whose own differ."
REPORT: Final = "report.md"
MARK: Final = re.compile(r"<!-- figure: ([a-z0-9-]+)/([a-z0-9-]+) -->")
PICTURE: Final = re.compile(r"^!\[.*\]\(([\w-]+)\.svg\)\n\n", re.MULTILINE)
RUN_COMMAND: Final = re.compile(r"^\S*downpour run .*$", re.MULTILINE)
OF_A_MACHINE: Final = re.compile(r" --(?:runs \S+|resume)\b")
README_FIGURE: Final = ("resources", "fig6a")
README_FILE: Final = ROOT / "docs/start/bandwidth.svg"
TEXT: Final = frozenset({"method", "cells", "excluded"})  # the last columns of a report's file
ENDS: Final = ("", " low", " high", " n")
REPEATS: Final = "Student t over the repeats"

# By the reader's setting: ink, paper, grid, and a palette that is lighter on a dark page.
LIGHT: Final = {
    "#000000": "ink", "#333333": "soft", "#7a7a7a": "grey", "#dddddd": "grid", "#ffffff": "paper",
    "#0072b2": "blue", "#d55e00": "red", "#009e73": "green", "#cc79a7": "pink",
    "#e69f00": "orange", "#56b4e9": "sky",
}  # fmt: skip
DARK: Final = {
    "ink": "#e8e8e8", "soft": "#cccccc", "grey": "#9a9a9a", "grid": "#444444", "paper": "#1e2129",
    "blue": "#4fb0f0", "red": "#ff8c42", "green": "#35c79a", "pink": "#e6a5c8",
    "orange": "#f2b632", "sky": "#8fd0f5",
}  # fmt: skip


class NotKeptError(Exception):
    """There is no such figure, or there are no kept metrics for it. The message says what is
    valid."""


def read_points(file: Path) -> list[Point]:
    """Return the points of a kept file, with their levels as factors.

    Raises `NotKeptError` with the line of a number or a level that cannot be read.
    """
    if not file.exists():
        raise NotKeptError(f"{file}: no kept metrics; valid: python -m tools.docs.figures RUN")
    with file.open(newline="") as text:
        rows = csv.DictReader(text)
        return [_point(row, f"{file}:{rows.line_num}") for row in rows]


def _point(row: dict[str, str], place: str) -> Point:
    values = {name.partition(" [")[0]: text for name, text in row.items() if text != ""}
    names = [n for n in values if n.removesuffix(" n") in METRICS and n.endswith(" n")]
    metrics = {name.removesuffix(" n") for name in names}
    known = {f"{name}{end}" for name in metrics for end in ENDS}
    try:
        factors = {n: _level(n, text) for n, text in values.items() if n not in known | TEXT}
        estimates = {name: _estimate(name, row) for name in metrics}
    except ValueError as error:
        raise NotKeptError(f"{place}: {error}") from None
    return Point(factors, estimates, tuple(row.get("cells", "").split()))


def _level(name: str, text: str) -> float | int | str:
    """Return a level. Raises ValueError, which says what was found and what is valid."""
    factor = FACTORS.get(name)
    if factor is None:
        raise ValueError(f"found column {name}; valid: a factor, or a metric with its n")
    try:
        number: object = float(text)
    except ValueError:
        number = text
    try:
        return factor.read(number)
    except ValueError as error:
        raise ValueError(f"found {name} {text}; valid: {error}") from None


def _columns(name: str) -> list[str]:
    unit = f" [{METRICS[name].unit}]" if METRICS[name].unit else ""
    return [f"{name}{unit}", f"{name} low{unit}", f"{name} high{unit}", f"{name} n"]


def _estimate(name: str, row: dict[str, str]) -> Estimate:
    mean, low, high, n = (row.get(column, "") for column in _columns(name))
    try:
        value = float(mean)
        if not low:
            return Estimate(value, value, value, 1, ONE_RUN)
        return Estimate(value, float(low), float(high), int(n), REPEATS)
    except ValueError:
        found = ", ".join((mean, low, high, n))
        raise ValueError(f"found {name} {found}; valid: mean, low, high, n") from None


def specification(name: str) -> tuple[tuple[Figure, ...], tuple[PaperValue, ...]]:
    """Return the figures and the published values of an experiment file."""
    spec = load(find(name))
    return tuple(spec.figures), tuple(spec.paper)


def metrics_of(figures: Sequence[Figure], points: Sequence[Point]) -> list[str]:
    """Return the metrics that the figures show, in the order of METRICS."""
    wanted: set[str] = set()
    for figure in figures:
        if figure.kind in ("lines", "bars") and figure.metric is not None:
            wanted |= {metric_of(points, figure.metric), figure.second or figure.metric}
        elif figure.kind == "boxes":
            wanted.add("throughput_iqr")
        elif figure.kind == "latency":
            wanted |= set(METRICS_OF.values())
    return [name for name in METRICS if name in wanted]


def draw(experiment: str, name: str, folder: Path = RESULTS) -> Plot:
    """Draw a figure of an experiment's page from the kept points. Raises `NotKeptError`."""
    figures, paper = specification(experiment)
    figure = next((one for one in figures if one.name == name), None)
    if figure is None:
        valid = ", ".join(one.name for one in figures)
        raise NotKeptError(f"found figure {experiment}/{name}; valid: {valid}")
    points = read_points(folder / experiment / KEPT)
    with style():
        drawn = _drawn(figure, points, paper)
    if isinstance(drawn, str):
        raise NotKeptError(f"{experiment}/{name}: {drawn}")
    return drawn


def _drawn(figure: Figure, points: list[Point], paper: Sequence[PaperValue]) -> Plot | str:
    if figure.kind == "latency":
        chosen = [p for p in points if _shows_parts(figure, p)]
        parts = {
            str(p.factors["subscriber"]): {
                part: p.estimates[metric].mean for part, metric in METRICS_OF.items()
            }
            for p in chosen
        }
        vary = {n: chosen[0].factors[n] for n in varying(points) if n != "subscriber"}
        return latency.stacked(figure, parts, show(vary))
    if figure.kind == "boxes":  # the file-sets themselves are not kept
        title = f"Inter-quartile range: {figure.title}"
        new = {"kind": "lines", "metric": "throughput_iqr", "log": ("x",), "title": title}
        figure = figure.model_copy(update=new)
    if figure.kind not in ("lines", "bars"):
        return f"found kind {figure.kind}; valid: lines, bars, boxes, latency"
    return curves.draw(figure, points, paper)


def themed(svg: bytes) -> str:
    """Return an SVG whose colours follow the reader's setting, light or dark, with no background.

    Browsers apply the media query inside a picture as well.
    """
    text = svg.decode()
    for colour, name in LIGHT.items():
        text = re.sub(f"{colour}(?![0-9a-f])", f"var(--{name})", text, flags=re.IGNORECASE)
    # The first patch is the figure's background.
    text = re.sub(r'(<g id="patch_1">\s*<path [^>]*fill: )var\(--paper\)', r"\1none", text)
    light = "".join(f"--{name}:{colour};" for colour, name in LIGHT.items())
    dark = "".join(f"--{name}:{colour};" for name, colour in DARK.items())
    rules = (
        f"svg{{{light}}}text{{fill:var(--ink)}}@media(prefers-color-scheme:dark){{svg{{{dark}}}}}"
    )
    return re.sub(r"(<svg [^>]*>)", rf"\1\n<style>{rules}</style>", text, count=1)


def with_figures(text: str, page: Path, results: Path) -> str:
    """Return a page's text with its figures, which are written as SVG into `results`.

    `page` and `results` are paths in the copy of docs/ that the site is built from.
    """

    def picture(match: re.Match[str]) -> str:
        plot = draw(match[1], match[2])
        file = results / match[1] / f"{plot.name}.svg"
        file.write_text(themed(plot.svg))
        return f"![{plot.alt}]({os.path.relpath(file, page.parent)})\n\n{plot.caption}."

    return MARK.sub(picture, text)


def kept(run: Path) -> tuple[str, str]:
    """Return the name of a run's experiment, and its points as a kept file.

    Raises `NotKeptError`; `OSError` for a run without a report.
    """
    name = run.resolve().parent.name
    figures, _ = specification(name)
    with (run / "report" / KEPT).open(newline="") as text:
        rows = [*csv.DictReader(text)]
    points = [_point(row, f"{run}:{number}") for number, row in enumerate(rows, 2)]
    wanted = [column for metric in metrics_of(figures, points) for column in _columns(metric)]
    wanted = [column for column in wanted if column in rows[0]]
    used = [*_used(rows, points, figures, wanted)]
    named = [n for n in rows[0] if n.partition(" [")[0] in FACTORS]
    levels = [n for n in named if any(row[n] for row in used)]
    out = io.StringIO()
    writer = csv.DictWriter(out, [*levels, *wanted], extrasaction="ignore", lineterminator="\n")
    writer.writeheader()
    writer.writerows(used)
    return name, out.getvalue()


def judged_today(run: Path) -> str:
    """Return a run's report with the claims of today's experiment file, which it says."""
    name = run.resolve().parent.name
    then, _ = parse_published(json.loads((run / "manifest.json").read_text()))
    found = evaluate(run, instead=load(find(name)).claims)
    text = render_markdown(make_report(found, f"{name}/{run.resolve().name}"))
    if then.claims == found.published.claims:
        return text
    return text.replace(CLAIMS, f"{CLAIMS}{LATER}\n\n")


def report_page(run: Path, figure: str, *, today: bool = False) -> str:
    """Return a run's report as a page of the site, which draws `figure`; the words of the others
    stay. Commands do not name this machine's folder of runs. `today`: with today's claims.

    Raises `NotKeptError`; `OSError` for a run without a report.
    """
    text = judged_today(run) if today else (run / "report" / REPORT).read_text()
    names = PICTURE.findall(text)
    if figure not in names:
        raise NotKeptError(f"--page: found {figure}; valid: {', '.join(names) or 'no figure'}")
    mark = f"<!-- figure: {run.resolve().parent.name}/{figure} -->\n\n"
    text = PICTURE.sub(lambda match: mark if match[1] == figure else "", text)
    return RUN_COMMAND.sub(lambda match: OF_A_MACHINE.sub("", match[0]), text)


def _used(
    rows: Sequence[dict[str, str]],
    points: Sequence[Point],
    figures: Sequence[Figure],
    wanted: Sequence[str],
) -> Iterator[dict[str, str]]:
    """Yield the rows that a figure shows. Subscribers and file-sets are shown only if it asks."""
    others = [figure for figure in figures if figure.kind != "latency"]
    about = {f.x for f in others} | {n for f in others for n in (*f.by, *f.where.levels)}
    for row, point in zip(rows, points, strict=True):
        apart = {"subscriber", "file_set_bytes", "first_s"} & point.factors.keys()
        shown = (others and apart <= about) or any(_shows_parts(f, point) for f in figures)
        if shown and any(row[column] for column in wanted):
            yield row


def _shows_parts(figure: Figure, point: Point) -> bool:
    """Return whether a figure of latency's parts, one bar by subscriber, shows the point."""
    by_subscriber = figure.kind == "latency" and "subscriber" in point.factors
    return by_subscriber and figure.where.holds(point.factors)


def main(words: list[str]) -> int:
    """Keep a run's points, or draw the README's figure; return 2 for bad input."""
    parser = argparse.ArgumentParser(prog="python -m tools.docs.figures")
    parser.add_argument("run", type=Path, nargs="?", help="a run directory with its report")
    parser.add_argument("--page", metavar="FIGURE", help="also keep the report, with this figure")
    parser.add_argument(
        "--today", action="store_true", help="judge the report's claims as the file has them today"
    )
    parser.add_argument("--readme", action="store_true", help=f"draw {README_FILE.name} again")
    options = parser.parse_args(words)
    try:
        if options.readme:
            README_FILE.write_text(themed(draw(*README_FIGURE).svg))
            return 0
        if options.run is None or not (options.run / "report" / KEPT).exists():
            parser.error(f"found {options.run}; valid: the directory of a run with its report")
        name, text = kept(options.run)
        page = report_page(options.run, options.page, today=options.today) if options.page else None
    except NotKeptError as error:
        print(f"figures: {error}", file=sys.stderr)
        return 2
    (RESULTS / name).mkdir(exist_ok=True)
    (RESULTS / name / KEPT).write_text(text)
    if page is not None:
        (RESULTS / name / REPORT).write_text(page)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
