# SPDX-License-Identifier: Apache-2.0
"""`python -m tools.docs`: the documentation as a site that works from disk, in build/docs.

`--into FOLDER` also adds the site to a folder with a site for each version (versions.py).

Generated pages: the REST interface's OpenAPI document, the keys of topology and experiment files,
every command of `downpour`, the manual pages, the drawing of the architecture by Graphviz, and the
figures of the results from kept metrics (figures.py).
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

from controller.api.rest import description
from controller.tests.openapi import whole_app
from controller.tests.rig import Rig
from downpour.cli import app
from tools.docs.command_pages import command_page, manual_page
from tools.docs.figures import with_figures
from tools.docs.house_graph import MARK, both_houses, graphviz
from tools.docs.recording import shown
from tools.docs.schema_pages import schema_page
from tools.docs.versions import publish

ROOT: Final = Path(__file__).resolve().parents[2]
PAGES: Final = ROOT / "docs"
BUILD: Final = ROOT / "build/docs"
SECTIONS: Final = ("start", "guide", "results", "reference", "develop")
SEARCH_FROM_DISK: Final = "search-from-disk.iframe-worker.js"
STYLE: Final = "site.css"
SCHEMAS: Final = {
    "topology-file": ("Topology file", ROOT / "topologies/schema.json"),
    "experiment-file": ("Experiment file", ROOT / "experiments/catalogue/schema.json"),
}


def main(folder: Path, into: Path | None = None) -> int:
    """Build the site in `folder`, which is emptied first; return mkdocs' exit code."""
    version = subprocess.run(
        [ROOT / "tools/version"], capture_output=True, text=True, check=True
    ).stdout.strip()
    source = folder / "source"
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(PAGES, source)
    for page in source.rglob("*.md"):
        text = with_figures(page.read_text(), page, source / "results")
        page.write_text(indented(_inside(text, page.relative_to(source))))
        shown(page)
    _reference(source / "reference")
    _drawing(source / "develop")
    settings = Path(__file__).with_name("mkdocs.yml").read_text()
    settings += f"copyright: Downpour {version}\n"
    # Otherwise the theme would fetch such a script from the web, and have no search without it.
    for name in (SEARCH_FROM_DISK, STYLE):
        shutil.copy(Path(__file__).with_name(name), source)
    extra: dict[str, object] = {"polyfills": [SEARCH_FROM_DISK]}
    if into is not None:
        extra["version"] = {"provider": "mike"}
    settings += f"extra: {json.dumps(extra)}\n"
    (folder / "mkdocs.yml").write_text(f"{settings}nav: {json.dumps(_contents(source))}\n")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet"]
    environment = os.environ | {"NO_MKDOCS_2_WARNING": "1"}
    code = subprocess.run(command, check=False, env=environment, cwd=folder).returncode
    if code == 0:
        print(f"docs: {folder / 'site/index.html'}")
        if into is not None:
            publish(folder / "site", into, version)
    return code


def _contents(source: Path) -> list[object]:
    """Return mkdocs' `nav`: the sections in the order in which a reader needs them."""
    sections = [{name.capitalize(): _section(source / name, source)} for name in SECTIONS]
    return [{"Home": "index.md"}, *sections, "references.md"]


def _section(folder: Path, source: Path) -> list[object]:
    """Return the pages of a folder: first its README, then its folders."""
    pages = sorted(folder.glob("*.md"), key=lambda page: (page.name != "README.md", page.name))
    names: list[object] = [str(page.relative_to(source)) for page in pages]
    reports: list[object] = [
        {page.parent.name: str(page.relative_to(source))}
        for page in sorted(folder.glob("*/report.md"))
    ]
    below: list[object] = [
        {one.name.capitalize(): _section(one, source)}
        for one in sorted(folder.iterdir())
        if one.is_dir() and [*one.glob("*.md")] and not (one / "report.md").exists()
    ]
    return [*names, *below, *([{"Reports": reports}] if reports else [])]


def indented(text: str) -> str:
    """Return a page whose numbered list items continue with four spaces, as Python-Markdown
    requires. Authors write three, as CommonMark allows."""
    in_item = in_block = False
    lines: list[str] = []
    for line in text.splitlines():
        if re.match(r"\d+\. ", line) and not in_block:
            if in_item and lines[-1].startswith("    "):
                lines.append("")  # otherwise the item would continue with the paragraph
            in_item = True
        elif line and not line.startswith("   "):
            in_item = False
        in_block ^= re.match(r" *```", line) is not None
        lines.append(f" {line}" if in_item and line.startswith("   ") else line)
    return "\n".join(lines) + "\n"


def _inside(text: str, page: Path) -> str:
    """Return a page's text with links to files outside docs/ replaced by the files' names."""

    def link(match: re.Match[str]) -> str:
        target = match[2].partition("#")[0]
        file = (PAGES / page.parent / target).resolve()
        if re.match(r"[a-z]+:", match[2]) or not target or file.is_relative_to(PAGES):
            return match[0]
        name = f"`{file.relative_to(ROOT)}`"
        return name if match[1].strip("`/") == name.strip("`") else f"{match[1]} ({name})"

    return re.sub(r"(?<!!)\[([^\]]*)\]\(([^)\s]+)\)", link, text)


def _reference(folder: Path) -> None:
    folder.mkdir(exist_ok=True)
    (folder / "openapi.json").write_text(description(whole_app(Rig())))
    for name, (title, file) in SCHEMAS.items():
        schema = json.loads(file.read_text())
        (folder / f"{name}.md").write_text(schema_page(title, schema))
    (folder / "all-commands.md").write_text(command_page(app, "downpour"))
    (folder / "manual").mkdir()
    for source in sorted(ROOT.glob("*/**/man/*.[1-8]")):
        name, text = manual_page(source)
        (folder / "manual" / f"{name}.md").write_text(text)


def _drawing(folder: Path) -> None:
    """Replace the architecture's Mermaid text, which needs a script from the web, by SVG."""
    page = folder / "architecture.md"
    file = folder / "house.svg"
    text = graphviz(both_houses())
    subprocess.run(["dot", "-Tsvg", "-o", file], input=text, text=True, check=True)
    picture = rf"{MARK}\n![Rooms and wings]({file.name})\n"
    shown = re.sub(rf"{MARK}\n```mermaid\n.*?```\n", picture, page.read_text(), flags=re.DOTALL)
    page.write_text(shown)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m tools.docs")
    parser.add_argument("--into", type=Path, help="a folder with a site for each version")
    sys.exit(main(BUILD, parser.parse_args().into))
