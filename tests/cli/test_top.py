"""`bookkeeper top`: what is wrong is first and said in words; the terminal is left as it was."""

import json
import os
import re
import socket
import sys
import termios
import threading
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import click
import pytest

from bookkeeper.cli.top import Overview, Refresher, ask, lines, watch
from bookkeeper.config.settings import Settings, Table
from bookkeeper.console.screen import cut
from bookkeeper.console.signals import StopSignal
from tests.cli.terminal import terminal
from tests.support.checkpoints import Query, offset
from tests.support.lake import Lake, Writes


def seen(lake: Lake, daemon: Any = None, **more: Table) -> list[dict[str, Any]]:
    tables = [lake.settings, *more.values()]
    settings = Settings(catalog=lake.catalog_settings, tables={table.name: table for table in tables})
    return Overview(settings, tables, lake.clock, lambda: daemon or {}).rows()


def test_a_table_at_a_glance_without_any_bookkeeper(lake: Lake, writer: Writes) -> None:
    for number in range(6):
        writer.publish(f"{number}a", f"{number}b")
        lake.tick()
    writer.publish("waits")
    lake.clock.move(seconds=10)
    (row,) = seen(lake)
    assert (row["table"], row["pending"], row["oldest"], row["trouble"]) == ("events", 1, timedelta(seconds=10), None)
    assert (row["rows_per_s"], row["files_per_s"], row["snapshots"]) == (0.2, 0.1, 6)
    assert timedelta(seconds=9) < row["last_commit"] < timedelta(seconds=12)
    assert (row["commit"], row["visible"], row["lag"]) == (None, None, None)


def test_an_empty_table_is_no_trouble(lake: Lake) -> None:
    (row,) = seen(lake)
    assert (row["pending"], row["last_commit"], row["rows_per_s"], row["trouble"]) == (0, None, 0, None)


def test_a_txlog_that_stays_pending_is_trouble_and_so_is_a_rejected_one(lake: Lake, writer: Writes) -> None:
    lake.put(f"pending/{Writes(lake, 'w2').name.at(1)}", b"no Avro")
    lake.tick()
    assert seen(lake)[0]["trouble"] == "1 rejected"
    writer.publish("a")
    lake.clock.move(minutes=5)
    (row,) = seen(lake)
    assert (row["trouble"], row["oldest"]) == ("no bookkeeper commits", timedelta(minutes=5))
    assert "running" in row["hint"]


def test_a_table_in_trouble_comes_first_and_hides_no_other(lake: Lake, writer: Writes) -> None:
    writer.publish("a")
    lake.tick()
    gone = Table(name="gone", identifier="demo.gone")
    rows = seen(lake, gone=gone)
    assert [row["table"] for row in rows] == ["gone", "events"]
    assert rows[0]["trouble"].startswith("TableMissing") and "init" in rows[0]["hint"]
    with lake.table().transaction() as change:
        change.remove_properties("bookkeeper.marks")
    writer.publish("b")
    halted = {row["table"]: row for row in seen(lake, gone=gone)}["events"]
    assert halted["trouble"].startswith("MarksLost") and halted["pending"] == 1


def test_a_catalog_that_is_down_is_each_tables_trouble_until_it_is_back(lake: Lake, tmp_path: Path) -> None:
    away = lake.root.with_name("away")
    lake.catalog.engine.dispose()
    lake.root.rename(away)
    settings = Settings(catalog=lake.catalog_settings, tables={"events": lake.settings})
    overview = Overview(settings, [lake.settings], lake.clock)
    assert overview.rows()[0]["trouble"].startswith("CatalogMissing")
    away.rename(lake.root)
    assert overview.rows()[0]["trouble"] is None


def test_the_slowest_consumer_is_named_and_one_that_is_cut_off_is_trouble(lake: Lake, writer: Writes) -> None:
    for key in "abc":
        writer.publish(key)
        lake.tick(minutes=10)
    first, second, _ = (snapshot.snapshot_id for snapshot in lake.table().metadata.snapshots)
    settings = replace(
        lake.settings,
        consumers=tuple(
            {"name": name, "checkpoint": Query(lake.root / name).begin(offset(at)).done(offset(at, 1)).url}
            for name, at in (("slow", first), ("fast", second))
        ),
    )
    lake.settings = settings
    (row,) = seen(lake)
    assert (row["consumer"], row["trouble"]) == ("slow", None)
    assert row["lag"] > timedelta(minutes=9)
    Query(lake.root / "slow").done(offset(4711))
    assert seen(lake)[0]["trouble"] == "consumer slow cut off"


def test_a_bookkeeper_that_answers_adds_what_only_it_knows(lake: Lake, writer: Writes) -> None:
    writer.publish("a")
    lake.tick()
    said = {"last_commit": lake.clock.now.isoformat(), "plots": {"visible": [0.5, 1.25, None]}, "why": "", "hint": ""}
    assert seen(lake, {"events": said})[0]["visible"] == timedelta(seconds=1.25)
    said |= {"why": "the disk is full", "hint": "Make room."}
    (row,) = seen(lake, {"events": said})
    assert (row["trouble"], row["hint"]) == ("the disk is full", "Make room.")


def test_a_bookkeeper_of_another_table_of_that_name_is_not_believed(lake: Lake, writer: Writes) -> None:
    writer.publish("a")
    lake.tick()
    other = {"last_commit": (lake.clock.now - timedelta(hours=1)).isoformat(), "plots": {"visible": [9.0]}, "why": "x"}
    assert (seen(lake, {"events": other})[0]["visible"], seen(lake, {"events": other})[0]["trouble"]) == (None, None)


@pytest.mark.parametrize("listen", ["", "127.0.0.1:0", "127.0.0.1:9", "nonsense"])
def test_no_bookkeeper_answers_and_that_is_no_trouble(listen: str) -> None:
    assert ask(listen) == {}


@pytest.mark.parametrize(
    "said", ["", "220 mail", "HTTP/1.0 200 OK\r\nContent-Length: 99\r\n\r\n{", "HTTP/1.0 200 OK\r\n\r\n[]"]
)
def test_another_server_answers_or_ends_in_the_middle_and_that_is_no_trouble(said: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def answer() -> None:
            with listening.accept()[0] as asking:
                asking.recv(4096)
                asking.sendall(said.encode())

        answering = threading.Thread(target=answer)
        answering.start()
        assert ask(f"127.0.0.1:{listening.getsockname()[1]}") == {}
        answering.join()


NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)


def row(table: str, trouble: str | None = None) -> dict[str, Any]:
    return {"table": table, "pending": 0, "lag": None, "trouble": trouble, "hint": "Do it." if trouble else None}


def test_what_is_drawn_fits_the_terminal_and_keeps_the_hints() -> None:
    many = [row("bad", "halted"), *(row(f"t{number}") for number in range(50))]
    drawn = [click.unstyle(line) for line in lines(many, NOW, timedelta(seconds=2), 20)]
    assert len(drawn) <= 20
    assert "51 tables, 1 in trouble" in drawn[0]
    assert drawn[-1] == "bad: halted. Do it."
    assert any("more; --table" in line for line in drawn)
    assert "reading" in lines(None, NOW, timedelta(seconds=2), 20)[-1]


def test_a_line_is_cut_by_what_is_seen_and_never_within_its_style() -> None:
    assert cut("\x1b[31mtrouble\x1b[0m and more", 9) == "\x1b[31mtrouble\x1b[0m a"
    assert cut("\x1b[31mtrouble\x1b[0m", 3) == "\x1b[31mtro\x1b[0m"


def test_where_no_terminal_is_it_shows_once(lake: Lake, writer: Writes, run: Any, asked: Any) -> None:
    writer.publish("a")
    shown = run("top").stdout.splitlines()
    assert shown[0].split() == ["table", "pending", "oldest", "rows/s", "files/s", "snapshots"]
    assert shown[1].split()[:2] == ["events", "1"]
    assert asked("top")[0]["trouble"] is None
    assert asked("top", "--once")[0]["pending"] == 1


class Quick(Refresher):
    """Looks in no time, once it may."""

    def ask(self) -> None:
        self._asked = Future()

    def look(self) -> None:
        if self._asked is not None:
            self._asked.set_result(self._read())


class Paper:
    """A screen on which `drawn` waits to be read; while a frame is drawn, something else goes on."""

    size = os.terminal_size((80, 24))
    wakes = staticmethod(tuple)

    def __init__(self, meanwhile: Callable[[], None]) -> None:
        self.drawn, self._meanwhile = list[str](), meanwhile

    def draw(self, lines: list[str]) -> None:
        self.drawn.append(click.unstyle("\n".join(lines)))
        self._meanwhile()


class Pauses(StopSignal):
    """Ends after so many of them, none of which it waits for."""

    def __init__(self, most: int) -> None:
        super().__init__()
        self.seconds, self._most = list[float](), most

    def wait(self, seconds: float, *_: Any) -> bool:
        self.seconds.append(seconds)
        return len(self.seconds) >= self._most


def test_what_it_sees_while_it_draws_is_drawn_at_once() -> None:
    refresher, stop = Quick(lambda: [row("events")]), Pauses(2)
    screen: Any = Paper(refresher.look)
    watch(screen, refresher, timedelta(hours=1), stop, lambda: NOW)
    assert "reading" in screen.drawn[0] and "events" in screen.drawn[1]
    assert stop.seconds == [0.05, 3600.0]


def test_on_a_terminal_it_draws_resizes_and_leaves_it_as_it_was(lake: Lake, writer: Writes, run: Any) -> None:
    writer.publish("a")
    words = [sys.executable, "-m", "bookkeeper", "top", "--config", f"{lake.root}/bookkeeper.toml", "--every", "50ms"]
    with terminal(*words) as shown:
        assert "1 table" in shown.until("events +1 ")
        assert "\x1b[1m" in shown.drawn, "no colour on a terminal"
        writer.publish("b")
        shown.until("events +2 ")
        shown.resize(10, 20)
        shown.until(r"^bookkeeper top  \d\d:\d")
        narrow = shown.until(r"^(.{0,20}\r\n)*.{0,20}$")
        assert len(narrow.splitlines()) <= 10
        shown.press("q")
        assert shown.end() == 0
        assert shown.drawn.endswith("\x1b[?7h\x1b[?25h\x1b[?1049l")
        assert termios.tcgetattr(shown.slave) == shown.before
    with terminal(*words[:-1], "1h") as shown:
        shown.until("events +2 ")
        shown.press("\x03")
        assert shown.end() == 0
        assert shown.drawn.rstrip("\r\n^C").endswith("\x1b[?1049l")
        assert termios.tcgetattr(shown.slave) == shown.before


def test_lag_is_watched_on_a_terminal_like_it(lake: Lake, writer: Writes, run: Any) -> None:
    for key in "abc":
        writer.publish(key)
        lake.tick()
    query = Query(lake.root / "cp").begin(offset(-1)).done(offset(lake.table().metadata.snapshots[0].snapshot_id, 1))
    run("consumers", "add", "nightly", "--checkpoint", str(query.root))
    words = [sys.executable, "-m", "bookkeeper", "lag", "--config", f"{lake.root}/bookkeeper.toml", "--watch", "50ms"]
    with terminal(*words) as shown:
        shown.until("nightly +live +2 +2 +2 ")
        query.done(offset(lake.table().metadata.current_snapshot_id, 1))
        shown.until("nightly +live +0 +0 +0 ")
        shown.press("q")
        assert shown.end() == 0
        assert termios.tcgetattr(shown.slave) == shown.before


def test_a_table_too_wide_for_the_terminal_is_shown_as_records(lake: Lake, writer: Writes, run: Any) -> None:
    writer.publish("a")
    words = [sys.executable, "-m", "bookkeeper", "pending", "--config", f"{lake.root}/bookkeeper.toml"]
    with terminal(*words, columns=40) as shown:
        assert shown.end() == 0
    assert re.search(r"writer\s*(\x1b\[0m)?  w1\r\n", shown.drawn)


def test_a_terminal_is_coloured_unless_it_is_told_not_to_be(lake: Lake, run: Any) -> None:
    run("init")
    with_color, without = run("--version"), run("status")
    assert "\x1b[" not in with_color.stdout + without.stdout
    assert "\x1b[32mok" in run("status", "--color", "always").stdout
    assert "\x1b[" not in run("status", "--color", "always", "--json").stdout
    assert json.loads(run("status", "--json").stdout)["state"] == "ok"
