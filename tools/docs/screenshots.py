# SPDX-License-Identifier: Apache-2.0
"""Make the pages' pictures: `python -m tools.docs.screenshots RUN ONE`, two runs of `lossy`, ONE
with LDM7 alone.

- docs/guide/twocores.png: what `downpour topology show twocores --picture` draws
- docs/start/report.png: the top of the run's report page, 1280 pixels wide, by a headless browser
- docs/guide/monitor.png: the top of ONE's dashboard, 900 pixels wide

`--site FOLDER` instead takes pictures of every page of a built site at 1280 and 390 pixels, light
and dark, and writes them to the directory `shots` beside it.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from tools.docs.__main__ import PAGES, ROOT

BROWSERS: Final = ("chromium-headless-shell", "chromium", "google-chrome")
HEIGHT_PX: Final = {1280: 900, 390: 844}
DASHBOARD_PX: Final = (900, 1480)
COLOURS: Final = 64  # of a picture's palette; text and plots need no more


class NoBrowserError(Exception):
    """There is no browser, or it made no picture."""


def browser() -> str:
    """Return the first installed browser."""
    for name in BROWSERS:
        if path := shutil.which(name):
            return path
    raise NoBrowserError(f"found no browser; valid: one of {', '.join(BROWSERS)}")


def shoot(page: Path, picture: Path, size_px: tuple[int, int], *, dark: bool = False) -> None:
    """Write a picture of the top of a local page. `dark`: as for a reader who prefers dark."""
    width_px, height_px = size_px
    picture.unlink(missing_ok=True)
    with tempfile.TemporaryDirectory() as profile:
        command = [
            browser(), "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars",
            f"--user-data-dir={profile}", f"--screenshot={picture}",
            f"--window-size={width_px},{height_px}",
            f"--blink-settings=preferredColorScheme={0 if dark else 1}", page.resolve().as_uri(),
        ]  # fmt: skip
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    if not picture.exists():
        raise NoBrowserError(f"{page}: no picture: {done.stderr.strip()[-300:]}")


def smaller(picture: Path) -> None:
    """Reduce a picture to a palette."""
    from PIL import Image

    with Image.open(picture) as image:
        image.convert("RGB").quantize(COLOURS).save(picture, optimize=True)


def pages_of(site: Path) -> Iterable[Path]:
    """Return the pages of a site, without its error page."""
    return sorted(page for page in site.rglob("*.html") if page.name != "404.html")


def main(words: list[str]) -> int:
    """Make the pictures; return 2 for bad input."""
    parser = argparse.ArgumentParser(prog="python -m tools.docs.screenshots")
    parser.add_argument("run", type=Path, nargs="?", help="a run of lossy")
    parser.add_argument("one", type=Path, nargs="?", help="a run of lossy with LDM7 alone")
    parser.add_argument("--site", type=Path, help="a built site: look at all of its pages")
    options = parser.parse_args(words)
    try:
        if options.site is not None:
            shots = options.site.parent / "shots"
            shots.mkdir(exist_ok=True)
            for page in pages_of(options.site):
                name = "-".join(page.relative_to(options.site).with_suffix("").parts)
                for size in HEIGHT_PX.items():
                    shoot(page, shots / f"{name}-{size[0]}.png", size)
                    shoot(page, shots / f"{name}-{size[0]}-dark.png", size, dark=True)
            return 0
        for run in (options.run, options.one):
            if run is None or not (run / "report/dashboard.html").exists():
                parser.error(f"found {run}; valid: the directory of a run with its report")
        report = PAGES / "start/report.png"
        shoot(options.run / "report/index.html", report, (1280, HEIGHT_PX[1280]))
        dashboard = PAGES / "guide/monitor.png"
        shoot(options.one / "report/dashboard.html", dashboard, DASHBOARD_PX)
        topology = PAGES / "guide/twocores.png"
        show = ["-m", "downpour", "topology", "show", "twocores", "--picture", str(topology)]
        subprocess.run([sys.executable, *show], check=True, cwd=ROOT)
        for picture in (report, dashboard, topology):
            smaller(picture)
    except NoBrowserError as error:
        print(f"screenshots: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
