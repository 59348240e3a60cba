# SPDX-License-Identifier: Apache-2.0
"""The Markdown files name only links, paths, code and commands that exist."""

from __future__ import annotations

import ast
import itertools
import json
import re
import shutil
import time
from functools import cache
from pathlib import Path
from typing import Final

import markdown  # type: ignore[import-untyped]
import pytest
import typer
from ruamel.yaml import YAML

from downpour.cli import app
from experiments.design.spec import find, load
from parsers.measure.latency_parts import METRICS_OF
from parsers.tests.browser import browser, program
from parsers.tests.synthetic import SyntheticCell, write_synthetic_run
from tests.c_house import MAY_INCLUDE
from tests.house import MAY_IMPORT, ROOMS
from tests.prose import ROOT, headings, markdown_files, prose_lines, repository_files
from tools.docs import artifact, command_tables, decisions, figures, house_graph, recording
from tools.docs.__main__ import indented
from tools.docs.__main__ import main as build_site
from tools.docs.command_pages import command_page, manual_page
from tools.docs.count import MOST_WORDS, table
from tools.docs.schema_pages import schema_page
from tools.docs.sentences import pages
from tools.docs.versions import listed, publish

LINK: Final = re.compile(r"\]\(<?([^)\s>]+)>?(?: \"[^\"]*\")?\)")
CODE: Final = re.compile(r"`([^`\n]+)`")
# A path in backticks is one of the repository if it begins with one of its folders.
FOLDERS: Final = tuple(
    sorted(p.name for p in ROOT.iterdir() if p.is_dir() and p.name not in ("build", "runs"))
)
PLACEHOLDER: Final = re.compile(r"(?:\b|_)(?:N|NAME)\b")
PATH: Final = re.compile(rf"(?:{'|'.join(map(re.escape, FOLDERS))})/[\w./-]*[\w/]")
SOURCE: Final = re.compile(r"[\w./-]+\.(?:py|c|h)")


@cache
def sources() -> frozenset[str]:
    """Return every name of each source file: its path, and each end of the path."""
    files = [p for ext in ("py", "c", "h") for p in repository_files(ext)]
    return frozenset(
        "/".join(parts[start:])
        for parts in (file.relative_to(ROOT).parts for file in files)
        for start in range(len(parts))
    )


def anchors(page: Path) -> set[str]:
    """Return the anchors of a page's headings."""
    return {
        re.sub(r"[^\w\- ]", "", heading.lower().replace("`", "")).replace(" ", "-")
        for heading in headings(page)
    }


@pytest.mark.parametrize("page", markdown_files(), ids=lambda p: str(p.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    missing = []
    for number, line in prose_lines(page):
        for target in LINK.findall(CODE.sub("", line)):
            if re.match(r"[a-z]+:", target):
                continue
            name, _, anchor = target.partition("#")
            file = page if not name else page.parent / name
            if not file.exists():
                missing.append(f"{page.relative_to(ROOT)}:{number}: found link to {target}")
            elif anchor and anchor not in anchors(file):
                missing.append(f"{page.relative_to(ROOT)}:{number}: found no heading {target}")
    assert not missing, "\n".join(missing)


@pytest.mark.parametrize("page", markdown_files(), ids=lambda p: str(p.relative_to(ROOT)))
def test_paths_in_backticks_exist(page: Path) -> None:
    missing = []
    for number, line in prose_lines(page):
        for code in CODE.findall(line):
            path = code.partition(":")[0]
            if PLACEHOLDER.search(path):
                continue
            if (PATH.fullmatch(path) and not (ROOT / path).exists()) or (
                SOURCE.fullmatch(path) and path not in sources()
            ):
                missing.append(f"{page.relative_to(ROOT)}:{number}: found `{path}`: no such file")
    assert not missing, "\n".join(missing)


FILE_ENDINGS: Final = ("json", "log", "conf", "yaml", "txt")
DOTTED: Final = re.compile(rf"(?:{'|'.join(ROOMS)})(?:\.\w+)+")


def missing_name(dotted: str) -> str | None:
    """Return the first part of `room.module.Name` that does not exist; None if all parts exist."""
    place = ROOT
    for part in dotted.split("."):
        if (place / part).is_dir():
            place = place / part
        elif (place / f"{part}.py").exists():
            place = place / f"{part}.py"
        else:
            source = (place / "__init__.py" if place.is_dir() else place).read_text()
            found = re.search(rf"^\s*(?:def|class) {part}\b|^\s*{part}\b.*=", source, re.MULTILINE)
            return None if found else part
    return None


@pytest.mark.parametrize("page", markdown_files(), ids=lambda p: str(p.relative_to(ROOT)))
def test_names_of_the_code_exist(page: Path) -> None:
    missing = [
        f"{page.relative_to(ROOT)}:{number}: found `{match[0]}`: no {part}"
        for number, line in prose_lines(page)
        for code in CODE.findall(line)
        if (match := DOTTED.match(code)) and match[0].rsplit(".", 1)[-1] not in FILE_ENDINGS
        if (part := missing_name(match[0]))
    ]
    assert not missing, "\n".join(missing)


def test_a_missing_name_is_found() -> None:
    assert missing_name("topologies.model.load.load") is None
    assert missing_name("topologies.model.load.lode") == "lode"


REPORTS: Final = sorted((ROOT / "docs").glob("results/*/report.md"))


def test_every_report_has_a_figure_from_kept_metrics() -> None:
    assert len(REPORTS) >= 15
    assert [*(ROOT / "docs/results").rglob("*.png")] == []
    for page in REPORTS:
        marks = figures.MARK.findall(page.read_text())
        assert [name for name, _ in marks] == [page.parent.name], page
        assert (page.parent / figures.KEPT).stat().st_size <= 5_000, page


@pytest.mark.parametrize("page", REPORTS, ids=lambda p: p.parent.name)
def test_a_figure_says_what_its_report_says(page: Path) -> None:
    """A figure's words come from the kept points, the report's from its run."""
    plot = figures.draw(*figures.MARK.findall(page.read_text())[0])
    said = plot.alt.partition(". ")[2].replace("all: ", "").replace("all: IQR", "")
    report = page.read_text().replace("\\", "").replace("all: ", "").replace("IQR ", "")
    for words in said.rstrip(".").split("; "):
        if page.parent.name == "latency":  # totals may differ in the last digit
            words = words.partition(", ")[2]
        assert words in report, words


def test_every_figure_that_a_page_names_is_drawn() -> None:
    pages = [*(ROOT / "docs").rglob("*.md")]
    marks = {mark for page in pages for mark in figures.MARK.findall(page.read_text())}
    assert len(marks) >= 18
    for experiment, name in marks:
        assert figures.draw(experiment, name).svg, (experiment, name)


def test_a_wrong_figure_or_a_broken_line_is_told(tmp_path: Path) -> None:
    with pytest.raises(figures.NotKeptError, match=r"figure rtt/thruput; valid: throughput, lat"):
        figures.draw("rtt", "thruput")
    with pytest.raises(figures.NotKeptError, match=r"rtt.points\.csv: no kept metrics"):
        figures.draw("rtt", "throughput", tmp_path)
    kept = (ROOT / "docs/results/rtt/points.csv").read_text().splitlines()
    kept[2] = kept[2].replace("ldm6,2", "ldm6,many")
    (tmp_path / "rtt").mkdir()
    (tmp_path / "rtt/points.csv").write_text("\n".join(kept))
    with pytest.raises(figures.NotKeptError, match=r"csv:3: found receivers many; valid: a whole"):
        figures.draw("rtt", "throughput", tmp_path)


def test_figures_follow_light_and_dark() -> None:
    plot = figures.draw("resources", "fig6a")
    svg = figures.themed(plot.svg)
    assert not re.findall(r"(?:fill|stroke): #[0-9a-f]{6}", svg)
    assert svg.count("prefers-color-scheme:dark") == 1
    names = set(re.findall(r"var\(--([a-z]+)\)", svg))
    assert {"ink", "grid", "blue", "red"} <= names <= figures.DARK.keys()


def test_the_picture_of_the_readme_is_current() -> None:
    drawn = figures.themed(figures.draw(*figures.README_FIGURE).svg)
    assert figures.README_FILE.read_text() == drawn, "`python -m tools.docs.figures --readme`"
    assert f"]({figures.README_FILE.relative_to(ROOT)})" in (ROOT / "README.md").read_text()


def test_a_runs_points_become_a_kept_file(tmp_path: Path) -> None:
    """The file leaves out other metrics, and single subscribers, which no figure shows."""
    report = tmp_path / "migration/20260101T000000Z/report"
    report.mkdir(parents=True)
    (report / "points.csv").write_text(
        "protocol,without_multicast,ldm6_from,subscriber,"
        "nic_bandwidth [bit/s],nic_bandwidth low [bit/s],nic_bandwidth high [bit/s],"
        "nic_bandwidth n,ffdr [%],ffdr low [%],ffdr high [%],ffdr n,method,cells,excluded\r\n"
        "ldm7,0,relays,,9e6,8e6,1e7,3,100,99,100,3,t,a b c,\r\n"
        "ldm7,0,relays,uva,9e6,8e6,1e7,3,100,99,100,3,t,a b c,\r\n"
    )
    name, text = figures.kept(report.parent)
    assert name == "migration"
    assert text.splitlines() == [
        "protocol,without_multicast,ldm6_from,nic_bandwidth [bit/s],nic_bandwidth low [bit/s],"
        "nic_bandwidth high [bit/s],nic_bandwidth n",
        "ldm7,0,relays,9e6,8e6,1e7,3",
    ]


def test_a_runs_report_becomes_a_page(tmp_path: Path) -> None:
    """It draws one figure, keeps the words of the others, and names no folder of runs."""
    run = tmp_path / "buffers/20260101T000000Z"
    (run / "report").mkdir(parents=True)
    (run / "report/report.md").write_text(
        "## Figures\n\n![Delay. all: 3 ms.](latency.svg)\n\nDelay. all: 3 ms.\n\n"
        "![Loss. all: 5 %.](mplr.svg)\n\nLoss. all: 5 %.\n\n```\n"
        "downpour run buffers --runs /x/y --resume --jobs 1\ndownpour report runs/buffers\n```\n"
    )
    assert figures.report_page(run, "mplr") == (
        "## Figures\n\nDelay. all: 3 ms.\n\n<!-- figure: buffers/mplr -->\n\nLoss. all: 5 %.\n\n"
        "```\ndownpour run buffers --jobs 1\ndownpour report runs/buffers\n```\n"
    )
    with pytest.raises(figures.NotKeptError, match="--page: found fig1; valid: latency, mplr"):
        figures.report_page(run, "fig1")


def test_latencys_parts_are_kept_by_subscriber_where_a_figure_shows_them(tmp_path: Path) -> None:
    report = tmp_path / "latency/20260101T000000Z/report"
    report.mkdir(parents=True)
    parts = list(METRICS_OF.values())
    columns = [f"{name}{end}" for name in parts for end in (" [s]", " low [s]", " high [s]", " n")]
    values = ",".join("0.1,,,1" for _ in parts)
    rows = [
        f"ldm7,4,{rate},0.01,{offset},{host},{values}"
        for rate, offset in ((20_000_000, 0), (20_000_000, 5), (500_000_000, 5))
        for host in ("", "uva")
    ]
    head = "protocol,receivers,rate_bps [bit/s],loss [share],clock_offset_ms [ms],subscriber,"
    (report / "points.csv").write_text("\n".join([head + ",".join(columns), *rows]) + "\n")
    name, text = figures.kept(report.parent)
    assert text.splitlines()[1:] == [rows[1], rows[5]]
    (tmp_path / name / figures.KEPT).write_text(text)
    assert "uva: 600.0 ms" in figures.draw("latency", "eq7-20", tmp_path).alt


def test_nothing_generated_is_committed() -> None:
    made = [*(ROOT / "docs").rglob("*.svg"), *(ROOT / "docs").rglob("*.json")]
    assert made == [figures.README_FILE]  # README.md shows it without the site's build


def test_the_drawing_of_the_house_is_current() -> None:
    page = house_graph.PAGE.read_text()
    assert page.count("```mermaid") == 1
    assert house_graph.drawn(page) == page, "`python -m tools.docs.house_graph` draws it"


def test_words_that_people_wrote_are_few() -> None:
    rows = table()
    total = sum(words for words, _ in rows)
    assert len(rows) > 60
    assert total <= MOST_WORDS, f"found {total} words; the longest pages: {rows[:5]}"


def test_blocks_in_numbered_lists_become_blocks() -> None:
    """Python-Markdown takes a block in a list for one only if it is indented by four spaces."""
    page = "1. Do\n\n   ```sh\n   a\n     b\n   ```\n\n   It ends.\n2. Go\n\n```\n   left\n```\n"
    assert indented(page) == (
        "1. Do\n\n    ```sh\n    a\n      b\n    ```\n\n    It ends.\n\n"
        "2. Go\n\n```\n   left\n```\n"
    )
    html = markdown.markdown(indented(page), extensions=["pymdownx.superfences"])
    assert html.count("<ol>") == 1 and html.count("<li>") == 2 and html.count("<pre") == 2, html


def test_a_site_for_each_version(tmp_path: Path) -> None:
    """Releases come first, 0.10.0 after 0.9.0; a version that is published again is replaced."""
    site, folder = tmp_path / "site", tmp_path / "www"
    site.mkdir()
    for number, version in enumerate(("0.9.0", "0.10.0", "0.10.1.dev0", "0.9.0")):
        (site / "index.html").write_text(f"build {number}")
        publish(site, folder, version)
    assert listed(folder) == ["0.10.0", "0.9.0", "0.10.1.dev0"]
    assert (folder / "0.9.0/index.html").read_text() == "build 3"
    rows = json.loads((folder / "versions.json").read_text())
    assert [row["version"] for row in rows] == listed(folder)
    assert [row["aliases"] for row in rows] == [["latest"], [], []]
    assert "url=0.10.0/index.html" in (folder / "index.html").read_text()
    with pytest.raises(ValueError, match=r"found version '\.\.'"):
        publish(site, folder, "..")


def test_the_tables_of_commands_and_factors_are_current() -> None:
    for one in command_tables.PAGES:
        page = one.read_text()
        assert "<!-- made: " in page
        assert command_tables.drawn(page) == page, "`python -m tools.docs.command_tables`"


def test_the_tables_of_the_artifact_are_current() -> None:
    page = artifact.PAGE.read_text()
    assert artifact.drawn(page) == page, "`python -m tools.docs.artifact`"
    claims = [line for line in page.splitlines() if line.startswith("| C")]
    assert len(claims) >= 40
    assert not [line for line in claims if line.count(" | ") != 5 or not line.split(" | ")[3]]


def test_the_artifacts_commands_add_the_repeats_of_the_reports() -> None:
    """Other options are left out: they are those of the machine."""
    report = "```\ngit checkout c\n.venv/bin/downpour run rtt --clock virtual --jobs 1\n```\n"
    assert artifact.make_command("rtt", report) == "make experiment-rtt CLOCK=virtual"
    report = report.replace("--jobs 1", "--until-decided --repeats 9 --budget 15min --jobs 1")
    assert artifact.make_command("rtt", report) == (
        "make experiment-rtt CLOCK=virtual REPEATS=9 UNTIL_DECIDED=1 BUDGET=15min"
    )


def test_an_open_claim_costs_the_repeats_of_its_own_cells() -> None:
    """Of ecn's four cells the claim is about LDM6's two, of 15 s and about 20 MB each."""
    claim = load(find("ecn")).claims[0]
    of = [
        (protocol, ecn)
        for protocol in ("ldm7", "ldm6")
        for ecn in ("drop", "mark")
        if artifact.is_of(claim, {"protocol": protocol, "ecn": ecn, "receivers": 2})
    ]
    assert of == [("ldm6", "drop"), ("ldm6", "mark")]
    assert 10 < artifact.seconds_of("ecn", claim) < 60
    seconds = artifact.seconds_of("ecn", claim)
    open_ = "x; what would decide it: about 360 repeats would (6 here); this run: why"
    assert artifact.more("ecn", claim, open_) == (
        f"; about 360 repeats would: {seconds / 10:.2g} core hours"
    )
    assert artifact.more("ecn", claim, "1 (one run)") == "; `UNTIL_DECIDED=1` adds repeats"


def test_a_report_may_be_judged_by_todays_claims(tmp_path: Path) -> None:
    """The run of `rtt` had one claim; today's file has others, and the page says so."""
    own = {
        **{"kind": "above", "metric": "throughput", "text": "an old claim", "source": "x"},
        **{"where": {"protocol": "ldm7"}, "against": {"protocol": "ldm6"}},
    }
    claims = load(find("rtt")).claims
    for block, said in (([own], True), ([c.model_dump(mode="json") for c in claims], False)):
        run = write_synthetic_run(
            tmp_path / str(said) / "rtt" / "1", SyntheticCell("ldm7"), manifest={"claims": block}
        )
        text = figures.judged_today(run)
        assert (figures.LATER in text) is said
        assert "an old claim" not in text
        judged = [row.split(" | ")[0] for row in text.splitlines() if " | not decidable | " in row]
        assert [row.lstrip("| ").replace("\\", "") for row in judged] == [c.text for c in claims]


def test_a_reports_claims_are_read() -> None:
    """Two claims, one with a bar in its text; the table ends before other lines."""
    report = (
        "| x | y |\n\n| Claim | verdict | Figures | Source |\n| :--- | :--- | :--- | :--- |\n"
        "| a \\| b | held | 1; since | s |\n| c | not decidable | 2 | t |\n\n| d | e | f | g |\n"
    )
    assert [*artifact.judged(report)] == [
        ("a \\| b", "held", "1; since", "s"),
        ("c", "not decidable", "2", "t"),
    ]
    page = "| [lossy](a), [lossless](b) | q | f | 2 | 0.6 | 6 | 6 |\n| [rtt](c) | q | f | 3 | *2* |"
    times = {"lossy": "0.6 min", "lossless": "0.6 min", "rtt": "*2 min*"}
    assert artifact.quick_times(page) == times


def test_the_list_of_decisions_is_current() -> None:
    assert decisions.PAGE.read_text() == decisions.listed(), "`python -m tools.docs.decisions`"


def test_every_room_is_on_the_page_of_the_architecture() -> None:
    page = house_graph.PAGE.read_text()
    rooms = {place.split(".")[0] for place in MAY_IMPORT} | {
        place.split("/")[0] for place in MAY_INCLUDE
    }
    assert [room for room in sorted(rooms) if f"| `{room}/` |" not in page] == []


def test_the_drawing_leaves_out_what_other_arrows_imply() -> None:
    arrows = [("b.up", "b.low"), ("b.low", "a"), ("b.up", "a"), ("c", "b.up"), ("c", "a")]
    houses = {"X": house_graph.reduced(arrows), "Y": house_graph.reduced([("a", "b/d")])}
    assert house_graph.mermaid(houses).splitlines() == [
        "flowchart TD",
        "  subgraph X",
        "    X_a[a]",
        "    subgraph X_b_room[b/]",
        "      X_b_low[low]",
        "      X_b_up[up]",
        "    end",
        "    X_c[c]",
        "    X_b_low --> X_a",
        "    X_b_up --> X_b_low",
        "    X_c --> X_b_up",
        "  end",
        "  subgraph Y",
        "    Y_a[a]",
        "    subgraph Y_b_room[b/]",
        "      Y_b_d[d]",
        "    end",
        "    Y_a --> Y_b_d",
        "  end",
        "  X -. contracts .-> Y",
    ]


def test_the_drawing_for_the_site_has_one_language_below_the_other() -> None:
    houses = {"X": house_graph.reduced([("b", "a")]), "Y": house_graph.reduced([("a", "c")])}
    text = house_graph.graphviz({**houses})
    assert '"X b" -> "X a";' in text and '"Y a" -> "Y c";' in text
    assert '"X a" -> "Y a" [ltail="cluster_X", lhead="cluster_Y"' in text


def test_the_page_of_a_schema() -> None:
    rate = {"anyOf": [{"type": "integer"}, {"type": "null"}], "default": None}
    hosts = {"type": "array", "items": {"$ref": "#/$defs/Host"}, "description": "who | where"}
    block = {"properties": {"rate": rate, "hosts": hosts}, "required": ["hosts"]}
    assert schema_page("File", {"$defs": {"Net": block}}).splitlines()[2:] == [
        "## Net",
        "",
        "| key | type | default | meaning |",
        "|---|---|---|---|",
        "| `rate` | integer | `None` |  |",
        "| `hosts` | list of [Host](#host) | required | who \\| where |",
    ]


def test_the_page_of_commands() -> None:
    page = command_page(app, "downpour")
    assert "\n## downpour lab check\n" in page
    run = page.partition("\n## downpour run\n")[2].partition("\n## ")[0]
    assert "| `--seed` |" in run and "| `--dry-run` |" in run


@pytest.mark.skipif(shutil.which("mandoc") is None, reason="mandoc is not installed")
def test_the_page_of_a_manual_page() -> None:
    name, page = manual_page(ROOT / "ldm7/tools/man/pqcat.1")
    assert name == "pqcat.1"
    assert page.startswith("# pqcat(1)\n")
    assert "\n## OPTIONS\n" in page and "**--list**" in page


def said(text: str) -> list[str]:
    """Return the parts of a message that do not vary, if they have eight characters or more."""
    return [part for part in re.split(r"…|\d+|: |[A-Z]{5,}", text) if len(part) >= 8]


def test_messages_of_the_questions_page_are_said() -> None:
    """A program prints each message of the page."""
    files = [path for ext in ("py", "c") for path in repository_files(ext)]
    programs = [path for path in files if "tests" not in path.parts]
    text = "".join(path.read_text(errors="replace") for path in programs)
    sources = re.sub(r'"\s*\n\s*f?"', "", text)
    rows = [line for _, line in prose_lines(ROOT / "docs/guide/faq.md") if line.startswith("| `")]
    messages = [code for row in rows for code in CODE.findall(row.split(" | ")[0])]
    assert len(messages) >= 10
    missing = [
        f"{message}: no program says {part!r}"
        for message in messages
        for part in said(message)
        if part not in sources
    ]
    assert not missing, "\n".join(missing)


COMMAND: Final = re.compile(r"(?:^|\s|bin/)downpour((?: [a-z][a-z-]*)+)")


def unknown_command(words: list[str]) -> str | None:
    """Return the word of `downpour WORDS...` that does not name a command; None if all do."""
    command = typer.main.get_command(app)
    for word in words:
        below = getattr(command, "commands", None)  # None: the other words are arguments
        if below is None:
            return None
        if word not in below:
            return word
        command = below[word]
    return None


@pytest.mark.parametrize("page", markdown_files(), ids=lambda p: str(p.relative_to(ROOT)))
def test_commands_exist(page: Path) -> None:
    text = page.read_text()
    code = [*re.findall(r"^```\w*\n(.*?)^```", text, re.DOTALL | re.MULTILINE), *CODE.findall(text)]
    wrong = [
        f"{page.relative_to(ROOT)}: found downpour{words}: no command {unknown}"
        for one in code
        for words in COMMAND.findall(one)
        if (unknown := unknown_command(words.split()))
    ]
    assert not wrong, "\n".join(wrong)


def test_an_unknown_command_is_found() -> None:
    assert unknown_command(["virtual", "fly"]) == "fly"
    assert unknown_command(["run", "lossy"]) is None


@pytest.mark.slow
def test_the_site_builds(tmp_path: Path) -> None:
    assert build_site(tmp_path / "docs") == 0
    site = tmp_path / "docs/site"
    assert "house.svg" in (site / "develop/architecture.html").read_text()
    assert "/v1/paths" in (site / "reference/openapi.json").read_text()
    assert "delay_ms" in (site / "reference/topology-file.html").read_text()
    assert "--dry-run" in (site / "reference/all-commands.html").read_text()
    assert "key_file" in (site / "reference/manual/ldmd.conf.5.html").read_text()
    index = (site / "search/search_index.js").read_text()
    assert "File Multicast Transport Protocol" in index and "guide/verdict.html" in index
    figure = (site / "results/resources/fig6a.svg").read_text()
    assert "prefers-color-scheme:dark" in figure
    assert 'src="resources/fig6a.svg"' in (site / "results/resources.html").read_text()
    for page in site.rglob("*.html"):
        assert not re.findall(r'<(?:script|img|link rel="style)[^>]*"https?:', page.read_text()), (
            page
        )
    if (path := program()) is None:
        pytest.skip("no browser: the search was NOT tested")
    assert found_from_disk(path, tmp_path, site / "index.html", "glossary") == "Glossary"
    assert hidden_px(path, tmp_path, site / "guide/comparison.html") == 0


def found_from_disk(path: str, folder: Path, page: Path, word: str) -> str:
    """Return the title of the first result that a page's search finds within 20 seconds."""
    title = "document.querySelector('.md-search-result__link h1')?.innerText ?? ''"
    with browser(path, folder / "profile") as window:
        window.resize(1280)
        window.open(page.as_uri())
        window.evaluate(
            "const field = document.querySelector('.md-search__input'); field.focus();"
            f"field.value = '{word}'; field.dispatchEvent(new Event('keyup')); 1"
        )
        ends = time.monotonic() + 20
        while not (found := window.evaluate(title)) and time.monotonic() < ends:
            time.sleep(0.2)
        assert window.complaints() == []
    return str(found)


def hidden_px(path: str, folder: Path, page: Path) -> int:
    """Return how many pixels of a page's tables are hidden in a window of 1280 pixels."""
    hidden = (
        "Math.max(...[...document.querySelectorAll('.md-typeset__scrollwrap')]"
        ".map(one => one.scrollWidth - one.clientWidth))"
    )
    with browser(path, folder / "profile-wide") as window:
        window.resize(1280)
        window.open(page.as_uri())
        return int(str(window.evaluate(hidden)))


@pytest.mark.parametrize("page", markdown_files(), ids=lambda p: str(p.relative_to(ROOT)))
def test_code_blocks_can_be_read(page: Path) -> None:
    """Python and YAML parse; other tests run the commands."""
    for kind, code in re.findall(
        r"^```(\w+)\n(.*?)^```", page.read_text(), re.DOTALL | re.MULTILINE
    ):
        if kind == "python":
            ast.parse(code)
        elif kind in ("yaml", "yml"):
            YAML(typ="safe").load(code)


def blocks_without_room(lines: list[str]) -> list[int]:
    """Return the numbers of lines where a list or table touches the paragraph above it."""
    return [
        number
        for number, (above, line) in enumerate(itertools.pairwise(lines), 2)
        if re.match(r"- |\d+\. |\|", line)
        and above.strip()
        and not re.match(r"\s|- |\d+\. |\||#|<!--|```", above)
    ]


@pytest.mark.parametrize("page", pages(), ids=lambda p: str(p.relative_to(ROOT)))
def test_lists_and_tables_have_room(page: Path) -> None:
    """Without an empty line, the site shows them as a line of the paragraph."""
    prose = dict(prose_lines(page))
    lines = [prose.get(n, "") for n in range(1, max(prose, default=0) + 1)]
    assert blocks_without_room(lines) == []


def test_a_list_without_room_is_found() -> None:
    assert blocks_without_room(["Take:", "- one", "- two", "", "| a |", "End", "| b |"]) == [2, 7]


def test_a_recording_is_drawn_for_its_page(tmp_path: Path) -> None:
    """Lines wrap at 80 columns; a pause of a minute takes a second."""
    events = recording.events_of((ROOT / "docs/start/first-run.cast").read_text())
    assert recording.events_of(recording.cast(events)) == [(round(at, 3), t) for at, t in events]
    rows = recording.wrapped([(0.0, "$ x"), (60.0, "a" * 81), (60.5, "<b>")])
    assert rows == [(0.0, "$ x"), (1.0, "a" * 80), (1.0, "a"), (1.5, "<b>")]
    page = tmp_path / "page.md"
    (tmp_path / "x.cast").write_text(recording.cast([(0.0, "$ x"), (60.5, "<b>")]))
    page.write_text("[A run](x.cast)\n")
    recording.shown(page)
    assert page.read_text() == "![A run](x.svg)\n"
    assert "&lt;b&gt;" in (tmp_path / "x.svg").read_text()
