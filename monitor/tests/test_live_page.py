# SPDX-License-Identifier: Apache-2.0
"""What viewers receive while a run is running, and the page that shows it."""

from __future__ import annotations

import asyncio
import base64
import json
import shutil
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from common.http.server import BUSY_MAX, bounded
from monitor.api import make_app
from monitor.news import MOST_STEPS, News, _Feed, _Message
from monitor.running import RunningRun, Shown, Waiting
from parsers.measure.delivered import decode
from parsers.tests.browser import axe_source, browser, program
from parsers.tests.synthetic import SyntheticCell, write_synthetic_run

CELL = SyntheticCell("ldm7", m=2, duration_s=20)
READY_S = 60.0


class Growing:
    """A run that is running: `put` writes the logs up to a share of them."""

    def __init__(self, folder: Path) -> None:
        self.runs = folder / "runs"
        self.path = self.runs / "synthetic/.20261124T000000Z.partial"
        self._logs = self.path / f"cells/.{CELL.name}.partial/logs"
        self._logs.mkdir(parents=True)
        whole = write_synthetic_run(folder / "whole", CELL) / "cells" / CELL.name
        self._texts = {f.name: f.read_text() for f in (whole / "logs").glob("*.log")}
        self._written = dict.fromkeys(self._texts, 0)

    def put(self, share: float) -> None:
        for name, text in self._texts.items():
            end = round(share * len(text))
            with (self._logs / name).open("a") as file:
                file.write(text[self._written[name] : end])
            self._written[name] = end


@pytest.fixture
def growing(tmp_path: Path) -> Growing:
    found = Growing(tmp_path)
    found.put(0.5)
    return found


async def messages(news: News, cell: str, since: int, count: int) -> list[str]:
    """Return the first messages of a stream after its head."""
    stream = news.stream(cell, since)
    await anext(stream)
    found = [(await asyncio.wait_for(anext(stream), 10)).decode() for _ in range(count)]
    await stream.aclose()
    return found


def events(text: str) -> list[str]:
    return [line.removeprefix("event: ") for line in text.split("\n") if line.startswith("event:")]


def test_viewers_get_what_changed_and_only_that(growing: Growing) -> None:
    news = News(RunningRun(growing.path))

    async def scene() -> None:
        stream = news.stream("", -1)
        await anext(stream)
        news._look()
        first = (await anext(stream)).decode()
        assert events(first) == ["board", "deliveries"]
        assert not news._look()  # nothing is new
        growing.put(1.0)
        deadline = time.monotonic() + 10
        while not news._look():  # packing uses only a share of a processor
            assert time.monotonic() < deadline
        second = (await anext(stream)).decode()
        assert events(second) == ["deliveries"]  # the board is the same as before
        data = json.loads(second.split("data: ")[1])
        assert data["cell"] == CELL.name and data["from"] > 0
        added = decode(base64.b64decode(data["data"]))  # and not what came before
        assert added.shape == (CELL.m, CELL.products - data["from"])
        await stream.aclose()

    asyncio.run(scene())


@pytest.mark.parametrize(("since", "expected"), [(-1, True), (10**12, True), (None, False)])
def test_who_has_this_version_is_not_told_again(
    growing: Growing, since: int | None, expected: bool
) -> None:
    """A greater number is from a server that has ended: its viewer knows nothing."""
    news = News(RunningRun(growing.path))
    news._look()

    async def scene() -> bool:
        try:
            await asyncio.wait_for(
                messages(news, "", news.version if since is None else since, 1), 0.5
            )
        except TimeoutError:
            return False
        return True

    assert asyncio.run(scene()) is expected


def test_who_reads_slowly_gets_steps_and_who_lags_far_behind_all() -> None:
    feed = _Feed()
    for version in range(1, 2 * MOST_STEPS + 1):
        feed.add(b"%d" % version, version, is_whole=False)
    newest = 2 * MOST_STEPS
    assert [m.made for m in feed.since(newest - 3)] == [newest - 2, newest - 1, newest]
    assert feed.since(newest) == () and not feed.is_whole_wanted
    assert feed.since(MOST_STEPS - 1) == () and feed.is_whole_wanted
    feed.whole = _Message(b"all", newest - 1)
    assert [m.text for m in feed.since(-1)] == [b"all", b"%d" % newest]
    assert len(feed.since(MOST_STEPS)) == MOST_STEPS  # its base is the oldest step's
    feed.add(b"over", newest + 1, is_whole=True)
    assert [m.text for m in feed.steps] == [b"over"] and feed.whole is None
    assert feed.since(-1) == feed.since(newest) == feed.since(3) == feed.steps


def test_a_viewer_that_has_nothing_gets_all(growing: Growing) -> None:
    """Steps that it did not see may be gone."""
    news = News(RunningRun(growing.path))
    news._wanted[CELL.name] += 1
    news._look()
    news._feeds[CELL.name].steps = ()
    news._feeds[CELL.name].add(b"later", news.version + 1, is_whole=False)
    news._feeds[CELL.name].steps = (_Message(b"later", news.version + 1, news.version),)

    async def scene() -> str:
        stream = news.stream(CELL.name, -1)
        await anext(stream)
        assert events((await anext(stream)).decode()) == ["board"]
        news._feeds[CELL.name].not_before = 0
        assert news._look()
        news._changed.set()
        return (await asyncio.wait_for(anext(stream), 10)).decode()

    text = asyncio.run(scene())
    data = json.loads(text.split("data: ")[1].split("\n")[0])
    assert data["from"] == 0 and decode(base64.b64decode(data["data"])).shape[0] == CELL.m


def test_names_that_viewers_invent_pin_nothing(growing: Growing) -> None:
    news = News(RunningRun(growing.path))
    for number in range(100):
        news._wanted[f"invented {number}"] += 1
    news._wanted[CELL.name] += 1
    news._look()
    assert set(news._feeds) == {CELL.name}
    news._wanted.clear()
    news._look()
    assert not news._feeds


@contextmanager
def served(shown: Shown) -> Iterator[str]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        server = bounded(make_app(shown), None, BUSY_MAX, has_lifespan=True)
        thread = threading.Thread(target=server.run, args=([listener],))
        thread.start()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}/"
        server.should_exit = True
        thread.join(20)


@pytest.mark.slow
def test_the_page_follows_a_run_without_asking_again(growing: Growing, tmp_path: Path) -> None:
    path = program()
    if path is None:
        pytest.skip("no browser; `make test-setup` installs one")
    arrived = "+(document.querySelector('#receivers tbody tr td:nth-child(3)')?.textContent ?? -1)"
    (tmp_path / "browser").mkdir()
    with (
        served(Waiting(growing.runs)) as url,
        browser(path, tmp_path / "browser/profile") as tab,
    ):

        def wait(condition: str) -> None:
            deadline = time.monotonic() + READY_S
            while not tab.evaluate(condition):
                assert time.monotonic() < deadline, (condition, tab.complaints())
                time.sleep(0.05)

        tab.open(url)
        wait("document.documentElement.dataset.ready && document.title != 'Downpour'")
        wait(f"{arrived} >= 0")
        before = tab.evaluate(arrived)
        tab.evaluate("performance.clearResourceTimings()")
        growing.put(1.0)
        wait(f"{arrived} > {before}")
        shutil.copytree(tmp_path / "whole", growing.path, dirs_exist_ok=True)
        growing.path.rename(growing.path.parent / "20261124T000000Z")
        wait("document.getElementById('verdict').textContent.includes('FAITHFUL')")
        assert tab.evaluate(arrived) == CELL.products
        axe = axe_source()
        assert axe is None or tab.axe(axe) == []
        asked = tab.evaluate("performance.getEntriesByType('resource').map(e => e.name)")
        assert [name for name in asked if "events" not in name] == []


@pytest.mark.slow
def test_a_refused_viewer_tries_again(
    growing: Growing, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = program()
    if path is None:
        pytest.skip("no browser; `make test-setup` installs one")
    (tmp_path / "browser").mkdir()
    state = "document.getElementById('state').textContent"
    monkeypatch.setattr("monitor.api.MOST_STREAMS", 0)
    with (
        served(Waiting(growing.runs)) as url,
        browser(path, tmp_path / "browser/profile") as tab,
    ):
        tab.open(url)
        for wanted in ("no connection; trying again", "live"):
            deadline = time.monotonic() + READY_S
            while tab.evaluate(state) != wanted:
                assert time.monotonic() < deadline, tab.complaints()
                time.sleep(0.05)
            monkeypatch.setattr("monitor.api.MOST_STREAMS", 9)
