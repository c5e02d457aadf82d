"""Marks have room for so many writers, and for so many bytes of positions; who is known goes on."""

from pathlib import Path

import pytest

from bookkeeper.commands.replay import replay
from tests.support.lake import Lake, Writes


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return Lake(tmp_path, max_writers=3)


def test_one_more_writer_is_rejected_and_the_others_of_its_tick_get_in(lake: Lake) -> None:
    known = [Writes(lake, f"w{number}") for number in range(2)]
    for writer in known:
        writer.publish("a")
    lake.tick()
    for writer in (Writes(lake, "x1"), Writes(lake, "x2")):
        refused = writer.publish("x")
    known[0].publish("b")
    lake.drain()
    assert lake.keys() == ["a", "a", "b", "x"]
    assert lake.rejected() == {str(refused): "TooManyWriters"}
    why = lake.folder.reason(refused)
    assert "3 writers (max-writers)" in why["reason"] and "bookkeeper forget --idle" in why["hint"]


def test_what_was_rejected_for_want_of_room_gets_in_once_there_is_some(lake: Lake) -> None:
    for number in range(4):
        name = Writes(lake, f"w{number}").goes_on(b"1", f"{number}")
    lake.drain()
    assert lake.rejected() == {str(name): "TooManyWriters"}
    view, ledger = lake.view(), lake.book().ledger
    ledger.record(view, view.marks.forgotten(["w0"], 0), "forget w0")
    lake.tick(days=2)
    for number in (1, 2):  # the marks of w0 go with the next commit
        Writes(lake, f"w{number}").publish("later")
    lake.tick()
    replay(lake.folder, ledger, lake.settings, name, lake.clock.now, force=True)
    lake.drain()
    assert ("3" in [*lake.keys()], lake.rejected()) == (True, {})


def test_names_that_rejected_txlogs_need_make_no_room(lake: Lake) -> None:
    for number in range(3):
        writer = Writes(lake, f"w{number}")
        writer.publish("a")
        bad = writer.publish("bad", table_uuid="another")
    lake.drain()
    assert len(lake.rejected()) == 3 and bad.writer == "w2"
    lake.tick(days=2)
    name = Writes(lake, "x").publish("x")
    lake.drain()
    assert lake.rejected()[str(name)] == "TooManyWriters"


def test_a_run_whose_mark_was_pruned_needs_room_like_a_new_writer(lake: Lake) -> None:
    """The marks that it goes on with are made for it: they know every writer that asks."""
    paused = Writes(lake, "paused", started=lake.clock.now)
    paused.publish("a")
    lake.tick()
    lake.tick(days=2)
    for number in range(3):
        Writes(lake, f"w{number}").publish("b")
    lake.drain()
    assert lake.rejected() == {}  # the idle writer makes room, in the same commit
    assert "paused" not in lake.view().marks.writers
    name = paused.publish("c")
    lake.drain()
    assert lake.rejected() == {str(name): "TooManyWriters"}


def test_long_positions_share_the_room_and_short_ones_always_have_theirs(lake: Lake) -> None:
    one, two = Writes(lake, "one"), Writes(lake, "two")
    one.goes_on(b"1" * 200, "a")
    two.goes_on(b"2" * 100, "b")
    lake.tick()
    refused = two.goes_on(b"2" * 185, "c")  # 385 of 384 bytes
    one.goes_on(b"3" * 200, "d")
    Writes(lake, "three").goes_on(b"3" * 128, "e")
    lake.drain()
    assert lake.keys() == ["a", "b", "d", "e"]
    assert lake.rejected() == {str(refused): "TooManyWriters"}
    assert "384 bytes" in lake.folder.reason(refused)["reason"]
