"""
A run that a newcomer has to make sense of: four tables, one with a reader that is stuck, one with rejected txlogs.

`python -m tests.observe.http.show PAGE.png PHONE.png` draws it; without names it is served until it is stopped.
"""

import math
import os
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from bookkeeper.config.settings import Reaper
from bookkeeper.console.web import WebServer
from bookkeeper.history.registry import Registry, spark
from tests.servers.installed import chromium
from tests.support.checkpoints import Query, offset
from tests.support.lake import Clock, Writes
from tests.support.watched import SETTINGS, Watched

WIDE, PHONE = (1180, 900), (360, 740)


class Passing(Clock):
    """Time passes whenever it is asked for, so that nothing takes no time at all."""

    looks = 0

    def __call__(self) -> datetime:
        self.looks += 1
        return self.move(milliseconds=2 + math.sin(self.looks / 700))


class Show:
    """Its tables, written to and read from as the minutes go by."""

    def __init__(self, root: Path, minutes: int, missing: str, every: int) -> None:
        # In step with the steps of the history, and not before the tables are made.
        self.began = datetime.fromtimestamp(math.ceil(time.time() / every) * every, UTC)
        self.missing, self.every = missing, every
        self.watched = Watched(Passing(self.began), replace(SETTINGS, every=timedelta(seconds=every)))
        self.steps = minutes * 60 // every
        hold = {"reaper": Reaper(max_hold=timedelta(minutes=minutes * 1.3))}
        for name, settings in {"clicks": {}, "orders": hold, "payments": {}, "sensors": {}}.items():
            self.watched.add(root, name, reload=600, **settings)
        self.writers = {name: Writes(lake) for name, lake in self.watched.lakes.items()}
        self.queries = {name: Query(root / f"checkpoint-{name}") for name in ("orders", "payments")}

    def run(self) -> Watched:
        for step in range(self.steps):
            self.watched.clock.now = self.began + timedelta(
                seconds=self.every * (step + 0.5) - 0.3 * math.sin(step / 9)
            )
            for place, name in enumerate(self.writers):
                self._write(name, step, place)
            if step == self.steps // 2:
                self._tear()
            if step == self.steps * 2 // 3:
                self._lose()
            self.watched.turn(seconds=1.2)
            self._read(step)
            if not step % 6:
                self.watched.look()
        self.watched.look()
        return self.watched

    def _write(self, name: str, step: int, place: int) -> None:
        """More at some times than at others; the last table only now and then."""
        if step % {"sensors": 30, "payments": 3}.get(name, 1):
            return
        rows = int(40 + 30 * math.sin(step / 25 + 2 * place) + 3 * math.sin(step))
        self.writers[name].publish(*(f"{step}-{row}" for row in range(rows)))

    def _tear(self) -> None:
        lake = self.watched.lakes["clicks"]
        name, data = self.writers["clicks"].encoded([self.writers["clicks"].file(["torn"])])
        lake.folder.publish(name, data[:-40])
        self.writers["clicks"] = Writes(lake, "clicks-2")

    def _lose(self) -> None:
        lake = self.watched.lakes["clicks"]
        other = Writes(lake, "importer")
        path = f"{lake.folder.card().data_path}/{self.missing}"
        lake.folder.publish(*other.encoded([other.file(["gone"], path=path)]))

    def _read(self, step: int) -> None:
        for name, query in self.queries.items():
            head = self._head(name)
            if step == 0:
                folder = self.watched.lakes[name].folder
                Registry(folder.store).add(spark("warehouse", query.url, self.watched.clock.now, by="command"))
                query.begin(offset(head, 99)).done(offset(head, 99))
            elif name == "payments" or step < self.steps * 0.1:
                query.done(offset(head, 99))

    def _head(self, name: str) -> int:
        book = next(slot.book for slot in self.watched.slots if slot.table == name)
        assert book is not None and book.view is not None and book.view.head is not None
        return book.view.head.snapshot_id


@contextmanager
def shown(minutes: int, missing: str, every: int = 10) -> Iterator[tuple[WebServer, Watched]]:
    """
    The run, with a tick each `every` seconds, served; `missing` is a file that a txlog names and no writer wrote.
    """
    with tempfile.TemporaryDirectory(prefix="lake-") as root:
        watched = Show(Path(root), minutes, missing, every).run()
        with closing(WebServer("127.0.0.1:0", watched.site.routes()).open()) as web:
            yield web, watched


@contextmanager
def browser() -> Iterator[Any]:
    """
    A headless Chromium; raises Unavailable.
    """
    from playwright.sync_api import sync_playwright

    program = chromium(os.environ)
    with sync_playwright() as play:
        started = play.chromium.launch(executable_path=program, args=["--no-sandbox", "--disable-gpu"])
        try:
            yield started
        finally:
            started.close()


def draw(page: Any, url: str, path: str, unfold: str | None, scheme: str = "light") -> None:
    """
    A picture of the whole page, one table unfolded.
    """
    page.emulate_media(color_scheme=scheme)
    page.goto(url)
    page.wait_for_selector("details")
    if unfold:
        page.locator(f"details[data-table={unfold}] > summary").click()
        page.wait_for_selector(f"details[data-table={unfold}] figure")
    page.screenshot(path=path, full_page=True)


def main(paths: list[str]) -> None:
    """
    Draws it, or serves it.
    """
    with shown(60, "part-00017.parquet") as (web, _):
        if not paths:
            print(web.url, flush=True)
            time.sleep(3600)
        with browser() as started:
            for path, size in zip(paths, (WIDE, PHONE, WIDE), strict=False):
                page = started.new_page(viewport={"width": size[0], "height": size[1]}, device_scale_factor=1.5)
                draw(page, web.url, path, "orders", "dark" if [path] == paths[2:] else "light")


if __name__ == "__main__":
    main(sys.argv[1:])
