# SPDX-License-Identifier: Apache-2.0
"""The report's files and page of a SYNTHETIC run: complete, the same when repeated, and safe to
open."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from markdown_it import MarkdownIt

from parsers.__main__ import main
from parsers.report.document import render_text
from parsers.report.publish import Written, write_report
from parsers.tests.synthetic import SyntheticCell, metrics_of, write_synthetic_run

LDM7, LDM6 = SyntheticCell("ldm7"), SyntheticCell("ldm6")


@pytest.mark.slow
def test_report_files_and_width(drawn: Written) -> None:
    written, run = drawn, drawn.report_dir.parent
    names = {p.name for p in written.report_dir.iterdir()}
    kinds = ("throughput", "bandwidth", "cpu", "latency")
    plots = {f"{kind}.{ending}" for kind in kinds for ending in ("png", "svg", "pdf")}
    texts = {
        "report.txt",
        "report.md",
        "brief.json",
        "dashboard.html",
        "index.html",
        "points.csv",
        "cells.csv",
        "digests.json",
    }
    assert names == texts | plots
    text = (written.report_dir / "report.txt").read_text(encoding="utf-8")
    assert text == written.text
    assert max(len(line) for line in text.splitlines()) <= 80
    text = render_text(written.report, 100)
    assert max(len(line) for line in text.splitlines()) <= 100
    assert "\x1b" not in text
    for name in plots:
        head = (written.report_dir / name).read_bytes()[:100]
        assert head.startswith({"png": b"\x89PNG", "svg": b"<?xml", "pdf": b"%PDF"}[name[-3:]])
    assert "FAITHFUL" in text
    assert re.search(r"Run throughput, Mbit/s +15\.00 +n/a +7\.50 +n/a", text)
    assert re.search(r"FFDR, %\s+100\.00\s+88\.7\s+\+11\.30 \(\+13%\)\s+n/a\s+n/a", text)
    assert "median size   bytes        1000    1050       +5.0 %" in text
    assert 'says: "the same throughput for LDM6 and LDM7"' in text
    # The value for m = 24 is shown but not compared with m = 2.
    assert "LDM6 Sender NIC bandwidth   350.00 Mbit/s" in text
    assert metrics_of(run)["groups"][0]["paper"][0]["metric"] == "ffdr"
    assert len(metrics_of(run)["groups"][0]["paper"]) == 1


class _Page(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.links: list[str] = []
        self.targets: list[str] = []
        self.images = 0
        self.alternatives = 0
        self.cells: list[str] = []
        self._open = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = dict(attrs)
        self._open = tag
        self.links += [str(found[k]) for k in ("src", "href") if k in found]
        self.targets += [f"#{found['id']}"] if "id" in found else []
        self.images += tag == "img"
        self.alternatives += bool(tag == "img" and found.get("alt"))

    def handle_data(self, data: str) -> None:
        if self._open == "td":
            self.cells.append(data.strip())


@pytest.mark.slow
def test_page_needs_no_network_and_shows_the_same(drawn: Written) -> None:
    written = drawn
    html = (written.report_dir / "index.html").read_text(encoding="utf-8")
    page = _Page()
    page.feed(html)
    assert page.images == page.alternatives == 4
    assert len(page.targets) == len(set(page.targets))
    for link in page.links:
        assert (
            link.startswith("data:image/svg+xml;base64,")
            or link in page.targets
            or (written.report_dir / link).is_file()
        )
    assert "http" not in re.sub(r"data:[^\"]*", "", html)
    assert {"15.00", "7.50", "+11.30 (+13%)"} <= set(page.cells)


@pytest.mark.usefixtures("no_plots")
def test_text_of_logs_cannot_become_markup(tmp_path: Path) -> None:
    run = write_synthetic_run(tmp_path)
    log = run / "cells" / LDM7.name / "logs" / "r1.ldmd.log"
    evil = "<script>alert(1)</script> [bold]x[/bold]"
    with log.open("a", encoding="utf-8") as file:
        file.write(evil + "\n")
    written = write_report(run)
    html = (written.report_dir / "index.html").read_text(encoding="utf-8")
    assert "<script" not in html
    assert "&lt;script&gt;" in html
    assert "[bold]x[/bold]" in written.text
    assert "logs/r1.ldmd.log:42: not a log line" in written.text


EVIL = "<img src=x onerror=alert(1)> </pre> &lt;b&gt; [a](javascript:alert(1)) \n```\n<script>"


def _put_everywhere(value: Any, text: str) -> Any:
    """Return a JSON document with `text` after each of its texts; numbers, keys and the verdict
    stay."""
    if isinstance(value, dict):
        kept = ("verdict", "status", "name", "cell", "protocol", "clock", "experiment")
        return {k: v if k in kept else _put_everywhere(v, text) for k, v in value.items()}
    if isinstance(value, list):
        return [_put_everywhere(one, text) for one in value]
    return f"{value} {text}" if isinstance(value, str) else value


@pytest.mark.usefixtures("no_plots")
def test_markdown_has_no_html_of_logs_verdict_and_manifest(tmp_path: Path) -> None:
    run = write_synthetic_run(tmp_path)
    cell = run / "cells" / LDM7.name
    with (cell / "logs" / "r1.ldmd.log").open("a", encoding="utf-8") as file:
        file.write(EVIL + "\n")
    for path in (run / "manifest.json", cell / "verdict.json"):
        if path.is_file():
            value = _put_everywhere(json.loads(path.read_text(encoding="utf-8")), EVIL)
            path.write_text(json.dumps(value), encoding="utf-8")
    manifest = json.loads((run / "manifest.json").read_text(encoding="utf-8"))
    manifest["command"] = ["downpour", "run", EVIL]
    (run / "manifest.json").write_text(json.dumps(manifest), encoding="utf-8")
    text = (write_report(run).report_dir / "report.md").read_text(encoding="utf-8")
    assert "&lt;img src=x onerror" in text
    assert "<img" not in text
    assert "<script" not in text
    tokens = MarkdownIt("commonmark", {"html": True}).enable("table").parse(text)
    every = [*tokens, *(child for token in tokens for child in token.children or ())]
    raw = [token.content for token in every if token.type in ("html_block", "html_inline")]
    assert raw
    assert all(re.fullmatch(r"<pre><code>[^<>]*</code></pre>\s*", block) for block in raw)
    assert not [token for token in every if token.type == "link_open"]


@pytest.mark.usefixtures("no_plots")  # test_sweep_report.py tests it with figures
def test_report_is_idempotent(tmp_path: Path) -> None:
    run = write_synthetic_run(tmp_path)
    write_report(run)
    first = {p: p.read_bytes() for p in sorted(run.rglob("*")) if p.is_file()}
    write_report(run)
    second = {p: p.read_bytes() for p in sorted(run.rglob("*")) if p.is_file()}
    assert first == second
    assert not list(run.rglob(".*"))


@pytest.mark.usefixtures("no_plots")
def test_a_failing_report_leaves_the_old_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = write_synthetic_run(tmp_path)
    write_report(run)
    before = {p: p.read_bytes() if p.is_file() else b"" for p in sorted(run.rglob("*"))}

    def full(self: Path, _: bytes) -> int:
        raise OSError(28, "No space left on device", str(self))

    monkeypatch.setattr(Path, "write_bytes", full)
    assert main(["report", str(run)]) == 1
    after = {p: p.read_bytes() if p.is_file() else b"" for p in sorted(run.rglob("*"))}
    assert after == before
