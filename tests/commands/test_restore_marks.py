"""Restore-marks: lost or spoilt marks come back from a copy that is as new as the last commit, and from no other."""

from typing import Any

import pytest
from pyiceberg.table.update import SetPropertiesUpdate

from bookkeeper.commands.restore_marks import restorable, restore
from bookkeeper.contract.marks import PROPERTY
from bookkeeper.errors import NotPossible
from tests.support.lake import Lake, Writes, append_by_others
from tests.tick.test_expired_marks import old_metadata
from tests.tick.test_history import change, lose_the_property, spoil_the_property


def put_back(lake: Lake) -> str:
    ledger = lake.book().ledger
    view, where = restorable(ledger, lake.folder)
    restore(ledger, lake.folder, view)
    return where


@pytest.mark.parametrize("lose", [lose_the_property, spoil_the_property])
@pytest.mark.parametrize("others", [0, 2])
def test_marks_come_back_from_marks_json_and_the_table_goes_on(
    lake: Lake, writer: Writes, lose: Any, others: int
) -> None:
    writer.goes_on(b"1", "a")
    lake.tick()
    waiting = writer.goes_on(b"2", "b")
    for number in range(others):
        append_by_others(lake, Writes(lake, "foreign").file([f"x{number}"]))
    lose(lake)
    assert put_back(lake) == "marks.json"
    lake.tick()
    assert lake.keys() == sorted(["a", "b", *(f"x{number}" for number in range(others))])
    assert lake.view().marks.is_in(waiting)


def test_a_marks_json_that_missed_the_last_commit_is_not_taken_but_an_older_metadata_file_is(
    lake: Lake, writer: Writes
) -> None:
    writer.publish("a")
    lake.tick()
    before = lake.folder.store.read("marks.json")
    name = writer.publish("b")
    lake.tick()
    lake.put("marks.json", before)  # a crash came between commit and marks.json
    data = writer.encoded([writer.file(["b"])], sequence=name.sequence)[1]
    lake.put(f"pending/{name}", data)
    lose_the_property(lake)
    assert put_back(lake).startswith("a metadata file")
    lake.tick()
    assert (lake.keys(), lake.pending()) == (["a", "b"], [])


def test_without_a_copy_that_is_new_enough_it_is_refused_and_nothing_is_changed(lake: Lake, writer: Writes) -> None:
    writer.publish("a")
    lake.tick()
    before = lake.folder.store.read("marks.json")
    writer.publish("b")
    lake.tick()
    lake.put("marks.json", before)
    lose_the_property(lake)
    for path in old_metadata(lake):
        path.unlink()
    with pytest.raises(NotPossible, match="as new as its last commit"):
        put_back(lake)
    assert lake.operations() == ["append", "append"]


def test_a_table_that_has_its_marks_is_left_alone(lake: Lake, writer: Writes) -> None:
    writer.publish("a")
    lake.tick()
    with pytest.raises(NotPossible, match="has its marks"):
        put_back(lake)


def test_marks_of_another_folder_are_not_taken(lake: Lake, writer: Writes) -> None:
    writer.publish("a")
    lake.tick()
    text = lake.table().metadata.properties[PROPERTY].replace(lake.folder.card().folder, "another")
    change(lake, SetPropertiesUpdate(updates={PROPERTY: text}))
    lose_the_property(lake)
    lake.folder.store.delete_many(["marks.json"])
    for path in old_metadata(lake)[:-1]:
        path.unlink()
    with pytest.raises(NotPossible):
        put_back(lake)
