"""Producers that were silent for long are forgotten: they begin anew, others have their room, and no row is lost."""

from collections.abc import Callable, Mapping
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from bookkeeper.commands.discard import discard, outlook
from bookkeeper.config.units import epoch_ms
from bookkeeper.contract import marks as marks_format
from bookkeeper.contract.marks import Mark, Marks, WriterMarks
from bookkeeper.contract.marks_json import MarksCopy
from bookkeeper.contract.offsets import FORGOTTEN
from bookkeeper.errors import ConfigInvalid
from tests.http.served import Reply, door, ndjson, numbers, queue, until
from tests.support.threads import again_and_again
from tests.support.writer_queue import Queue
from writers import Writer
from writers.http import silence as silent
from writers.http.command import check_keep
from writers.http.sequences import day_of, number_of, offset_of
from writers.http.silence import EVERY, MOST, Silence
from writers.timing import pause, utc_now

KEEP, DAY = timedelta(days=90), timedelta(days=1)
OLD = offset_of(2, date(2020, 1, 31))
PUBLISHED = "?wait=published"


def today() -> str:
    return f"{utc_now():%Y%m%d}"


def lake_of(root: Path, **offsets: str) -> Queue:
    """A table in which slot 0 has these offsets, and one row for each."""
    lake = queue(root)
    with Writer.open(lake.made.folder, "door-00") as writer:
        writer.write([{"n": 100 + number} for number in range(len(offsets))], offsets=offsets)
        writer.publish()
    lake.tick()
    return lake


def offsets_of(lake: Queue) -> Mapping[str, str]:
    return lake.view().marks.writer("door-00").offsets


def again(act: Callable[[], Reply]) -> Reply:
    for _ in range(40):
        reply = act()
        if reply.status != 503:
            return reply
        pause(0.05)
    raise AssertionError(reply)


def test_a_silent_producer_is_forgotten_and_begins_anew(tmp_path: Path) -> None:
    lake = lake_of(tmp_path, silent=OLD, heard=f"4/{today()}", before="7")
    with door(lake, keep=KEEP) as served, again_and_again(lake.tick, 0.05):
        until(lambda: "silent" not in offsets_of(lake))
        assert dict(offsets_of(lake)) == {"heard": f"4/{today()}", "before": "7"}
        assert again(lambda: served.rows(ndjson(5), "heard", 5)).status == 200
        assert again(lambda: served.rows(ndjson(8), "before", 8)).status == 200
        assert served.rows(ndjson(9), "silent", 3).body["next"] == 1
        reply = served.rows(ndjson(1), "silent", 1)
        assert reply.status == 200 and "duplicate" not in reply.body
        assert served.rows(ndjson(1), "silent", 1).body["duplicate"]
        assert served.state("silent") == (1, 1)

    assert numbers(lake) == [1, 5, 8, 100, 101, 102] and not lake.rejected()
    assert dict(offsets_of(lake)) == {"heard": f"5/{today()}", "before": f"8/{today()}", "silent": f"1/{today()}"}


def test_without_producer_keep_each_is_remembered(tmp_path: Path) -> None:
    lake = lake_of(tmp_path, silent=OLD)
    with door(lake) as served, again_and_again(lake.tick, 0.05):
        assert served.rows(ndjson(2), "silent", 2).body["duplicate"]
        assert served.rows(ndjson(3), "silent", 3).status == 200

    assert numbers(lake) == [3, 100]


def test_others_have_the_room_of_those_that_are_forgotten(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(marks_format, "MOST_CHANNELS", 2)
    lake = lake_of(tmp_path, a=OLD, b=OLD)
    with door(lake, keep=KEEP) as served, again_and_again(lake.tick, 0.05):
        until(lambda: not offsets_of(lake))
        assert [served.rows(ndjson(1), producer, 1).status for producer in "cde"] == [200, 200, 409]

    assert numbers(lake) == [1, 1, 100, 101] and not lake.rejected()


@pytest.mark.parametrize("restarted", [False, True])
def test_nothing_of_a_producer_is_taken_while_it_is_being_forgotten(tmp_path: Path, restarted: bool) -> None:
    """Its sequence in the table, from before, would be taken for the one that it begins with."""
    lake = lake_of(tmp_path, silent=OLD, heard=f"4/{today()}")
    with door(lake, keep=KEEP) as served:
        until(lake.pending)
        if not restarted:
            being_forgotten(lake, served)
    if restarted:
        with door(lake, keep=KEEP) as served:
            being_forgotten(lake, served)
    lake.drain()

    assert numbers(lake) == [1, 5, 100, 101] and not lake.rejected()


def being_forgotten(lake: Queue, served: Any) -> None:
    for sequence in (1, 2, 3):
        reply = served.rows(ndjson(1), "silent", sequence, PUBLISHED)
        assert reply.status == 503 and reply.headers["retry-after"], reply
    assert served.rows(ndjson(5), "heard", 5, PUBLISHED).status == 202
    lake.tick()
    reply = again(lambda: served.rows(ndjson(1), "silent", 1, PUBLISHED))
    assert "duplicate" not in reply.body and reply.body["published"] == 1


def test_a_txlog_that_forgets_and_is_given_up_is_published_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(silent, "EVERY", timedelta(0))
    lake = lake_of(tmp_path, silent=OLD)
    with door(lake, keep=KEEP) as served:
        until(lake.pending)
        (name,) = [item.name for item in lake.folder.pending()]
        lake.folder.store.delete_many([f"pending/{name}"])
        ledger = lake.book().ledger
        view, given = outlook(lake.folder, ledger, name)
        discard(lake.folder, ledger, view, given, lake.clock.now)
        lake.drain()
        assert dict(offsets_of(lake)) == {"silent": OLD}
        with again_and_again(lake.tick, 0.05):
            assert again(lambda: served.rows(ndjson(2), "silent", 2)).body["duplicate"]  # it is there again
            until(lambda: not offsets_of(lake))
            assert "duplicate" not in again(lambda: served.rows(ndjson(1), "silent", 1)).body

    assert numbers(lake) == [1, 100] and dict(offsets_of(lake)) == {"silent": f"1/{today()}"}


# which are silent

NOW = datetime(2026, 11, 28, 12, tzinfo=UTC)


class Folder:
    """A folder whose marks were committed at `at`, by the bookkeeper's clock."""

    def __init__(self, at: datetime | None) -> None:
        self.at, self.looks = at, 0

    def marks(self) -> MarksCopy | None:
        self.looks += 1
        if self.at is None:
            return None
        seen = {"run": Mark(1, seen_ms=epoch_ms(self.at))}
        return MarksCopy("uuid", 1, Marks("f", writers={"w": WriterMarks(incarnations=seen)}))


def silence(at: datetime | None, clock: Callable[[], datetime] = lambda: NOW, keep: timedelta | None = KEEP) -> Silence:
    folder: Any = Folder(at)
    return Silence(folder, clock, lambda seconds: None, keep)


def heard(days: int) -> str:
    return offset_of(3, (NOW - timedelta(days=days)).date())


def test_a_producer_is_silent_after_the_whole_time() -> None:
    offsets = {"last": heard(91), "not yet": heard(90), "now": heard(0), "to come": heard(-9), "never said": "3"}
    assert silence(NOW).forgotten(offsets, ()) == {"last": FORGOTTEN}
    assert silence(NOW).forgotten(offsets, {"last"}) == {}
    assert silence(NOW, keep=None).forgotten(offsets, ()) == {}


@pytest.mark.parametrize(
    ("own", "committed"), [(NOW, None), (NOW + 900 * DAY, NOW), (NOW, NOW + 900 * DAY)], ids=["none", "own", "other"]
)
def test_one_clock_that_is_ahead_forgets_none(own: datetime, committed: datetime | None) -> None:
    assert silence(committed, lambda: own).forgotten({"p": heard(0), "q": heard(80)}, ()) == {}


@pytest.mark.parametrize("own", [NOW, NOW - 900 * DAY])
def test_a_clock_that_is_behind_makes_none_silent(own: datetime) -> None:
    assert silence(NOW, lambda: own).day == NOW.date()


def test_a_clock_that_was_ahead_and_was_put_right_is_believed_no_more() -> None:
    """`bookkeeper accept-clock` takes its time out of the marks; else no producer that sends after it would ever go."""
    now, folder = [NOW], Folder(NOW + 900 * DAY)
    given: Any = folder
    found = Silence(given, lambda: now[0], lambda seconds: None, KEEP)
    assert found.day == (NOW + 900 * DAY).date()
    folder.at = NOW
    now[0] += EVERY
    assert found.day == now[0].date()


def test_marks_of_a_time_that_no_clock_can_show_are_the_latest() -> None:
    class Far(Folder):
        def marks(self) -> MarksCopy | None:
            return MarksCopy("uuid", 1, Marks("f", writers={"w": WriterMarks(seen_ms=2**62)}))

    folder: Any = Far(None)
    found = Silence(folder, lambda: NOW, lambda seconds: None, KEEP)
    assert found.forgotten({"p": heard(80)}, ()) == {} and found.day.year > 2100


def test_all_are_looked_at_once_a_minute_and_so_many_are_forgotten_by_one_txlog() -> None:
    now = [NOW]
    found = silence(NOW, lambda: now[0])
    many = {f"p{number}": heard(100) for number in range(MOST + 1)}
    first = found.forgotten(many, ())
    assert len(first) == MOST
    left = {name: offset for name, offset in many.items() if name not in first}
    assert len(found.forgotten(left, ())) == 1
    assert found.forgotten(left, ()) == {}
    now[0] += EVERY
    assert len(found.forgotten(left, ())) == 1


@pytest.mark.parametrize("offset", ["1/2026112", "1/202611281", "1/99999999", "1/2026-1-1", "/20261128", "1@7", "x"])
def test_what_is_no_day_is_none(offset: str) -> None:
    assert day_of(offset) is None


def test_an_offset_is_a_sequence_and_a_day() -> None:
    assert offset_of(10**18 - 1, NOW.date()) == "999999999999999999/20261128"
    assert number_of("17/20261128") == number_of("17") == 17
    assert (number_of("17/2026"), number_of(None)) == (None, 0)
    assert day_of("17/20261128") == NOW.date()


def test_a_keep_of_less_than_a_day_is_refused() -> None:
    check_keep(None)
    check_keep(DAY)
    with pytest.raises(ConfigInvalid, match="at least 1d"):
        check_keep(DAY - timedelta(seconds=1))
