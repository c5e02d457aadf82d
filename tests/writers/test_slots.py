"""Slots on a real bookkeeper: upserts and deletes by key, txlogs of offsets alone between them, columns on request."""

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pyarrow as pa
import pytest

from bookkeeper.config.settings import Evolve
from bookkeeper.contract.txlog_folder import Folder
from bookkeeper.errors import Fenced
from tests.support.faults import Faults
from tests.support.keyed import keyed_lake
from tests.support.keyed_rows import state
from tests.support.lake import Lake
from tests.support.slots import Slot, offsets_of
from writers import Writer
from writers.publish import channel_offsets
from writers.timing import at_once


def opened(lake: Lake, name: str = "slot-00") -> Writer:
    return Writer.open(lake.made.folder, name, clock=lake.clock, wait=lambda seconds: True, at_once=at_once)


def rows(**values: str) -> pa.Table:
    return pa.table({"id": pa.array([*map(int, (key[1:] for key in values))]), "value": [*values.values()]})


@pytest.fixture
def at_any_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Offsets wait for no rows."""
    monkeypatch.setattr(channel_offsets, "ALONE", channel_offsets.ALONE * 0)


def test_upserts_deletes_and_offsets_alone_in_one_batch_and_in_many(tmp_path: Path, at_any_time: None) -> None:
    lake = keyed_lake(tmp_path)
    for ticks in (False, True):
        with opened(lake) as writer:
            at = int(writer.offsets.get("p0", "0"))
            writer.upsert(rows(k1=f"a{at}", k2=f"b{at}"), offsets={"p0": str(at + 1)})
            writer.publish()
            if ticks:
                lake.tick()
            writer.publish(offsets={"p1": str(at + 1)})
            if ticks:
                lake.tick()
            writer.delete(pa.table({"id": [1]}), offsets={"p0": str(at + 2)})
            writer.publish()
        lake.tick()
        assert (offsets_of(lake), lake.rejected()) == ({"p0": str(at + 2), "p1": str(at + 1)}, {})
        assert state(lake) == {2: f"b{at}"}
    # The first three in one commit; then each in one: the one without files is a replace.
    assert lake.operations()[:2] == ["delete", "append"] and "replace" in lake.operations()[2:]


def test_deletes_beside_offsets_alone_are_a_delete_snapshot(tmp_path: Path, at_any_time: None) -> None:
    lake = keyed_lake(tmp_path)
    with opened(lake) as writer:
        writer.upsert(rows(k1="a"), offsets={"p0": "1"})
    lake.tick()
    with opened(lake) as writer:
        writer.publish(offsets={"p1": "1"})
        writer.delete(pa.table({"id": [1]}), offsets={"p0": "2"})
        writer.publish()
        writer.publish(offsets={"p2": "1"})
    lake.tick()
    assert (state(lake), offsets_of(lake)) == ({}, {"p0": "2", "p1": "1", "p2": "1"})
    assert lake.rejected() == {} and lake.pending() == []


def test_an_older_run_of_a_slot_is_fenced_on_a_keyed_table_as_any_other(tmp_path: Path) -> None:
    lake = keyed_lake(tmp_path)
    old = opened(lake)
    old.upsert(rows(k1="old"), offsets={"p0": "1"})
    lake.clock.move(seconds=5)
    with opened(lake) as new:
        new.upsert(rows(k1="new"), offsets={"p0": "1"})
    lake.tick()
    lake.clock.move(seconds=5)
    with pytest.raises(Fenced, match="a later run of slot-00"):
        old.publish()
    assert state(lake) == {1: "new"}


def test_a_column_is_asked_for_with_rows_that_have_offsets(tmp_path: Path) -> None:
    lake = Lake(tmp_path, evolve=Evolve(add=True))
    book, asked = lake.book(), []

    def wait(seconds: float) -> None:
        asked.append(seconds)
        lake.tick(book, seconds=61)

    with Writer.open(lake.made.folder, "slot-00", clock=lake.clock, wait=wait) as writer:
        known = pa.table({"timestamp": pa.array([lake.clock.now], pa.timestamp("us", "UTC")), "key": ["a"]})
        writer.write(known, offsets={"p0": "1"})
        writer.write(known.append_column("wind", pa.array([1.5])), offsets={"p1": "1"})
        writer.publish()
    lake.tick(book)
    assert asked and "wind" in lake.folder.card().schema.column_names
    assert (lake.keys(), offsets_of(lake)) == (["a", "a"], {"p0": "1", "p1": "1"})


# taken over


class TakenOver:
    """A slot of two channels of five rows: an old run has read two of each, one of its four txlogs is committed."""

    def __init__(self, root: Path) -> None:
        self.lake, self.faults = Lake(root), Faults()
        self.old = Slot(self.lake)
        self.old.reaches("p0-1", p0="1")
        self.lake.tick()
        self.pending = [self.old.reaches(key, **{key[:2]: key[-1]}) for key in ("p1-1", "p0-2", "p1-2")]
        self.saved = self.lake.saved()
        self.end = self.old.position

    def restored(self) -> "TakenOver":
        self.saved.restore()
        run = self.old.name.at(self.pending[-1].sequence)
        self.old.name, self.old.position, self.faults = run, self.end, Faults()
        return self

    def lets_in(self, act: Callable[["TakenOver"], object], number: int) -> None:
        """Does this before the operation of this number."""
        seen = self.faults.seen
        self.faults.hooks.append((lambda _: len(seen) == number + 1, lambda: void(act(self))))

    def opened(self) -> Writer:
        folder = Folder(self.lake.faulty(self.faults)(self.lake.made.folder))
        return Writer.open(folder, "slot-00", clock=self.lake.clock, wait=lambda seconds: True, at_once=at_once)

    def reads(self, writer: Writer) -> None:
        """Reads each channel to its end, from where the writer says; then all is committed."""
        ends = {channel: int(writer.offsets.get(channel, "0")) for channel in ("p0", "p1")}
        keys = [f"{channel}-{number}" for channel, at in ends.items() for number in range(at + 1, 6)]
        at = pa.array([self.lake.clock.now] * len(keys), pa.timestamp("us", "UTC"))
        if keys:
            writer.write(pa.table({"timestamp": at, "key": keys}), offsets={"p0": "5", "p1": "5"})
            with suppress(Fenced):  # by a reject of what it goes on from: another run reads again
                writer.publish()
        self.lake.drain()

    def goes_on(self) -> None:
        """As the run that is taken over may do, which does not know of it: it reads one more row."""
        self.old.reaches("p0-3", p0="3")

    def spoil(self) -> None:
        """The second pending txlog will be rejected."""
        if str(self.pending[1]) in map(str, self.lake.pending()):
            self.lake.put(f"pending/{self.pending[1]}", b"no Avro")


def void(_: object) -> None: ...


BETWEEN: dict[str, Callable[[TakenOver], object]] = {
    "a commit": lambda scene: scene.lake.tick(),
    "a reject": lambda scene: (scene.spoil(), scene.lake.drain()),
    "a txlog that will be rejected": TakenOver.spoil,
    "the other run": TakenOver.goes_on,
    "the other run, committed": lambda scene: (scene.goes_on(), scene.lake.tick()),
}


@pytest.mark.parametrize("what", BETWEEN)
def test_a_slot_is_taken_over_at_the_end_of_its_chain_whatever_comes_between(tmp_path: Path, what: str) -> None:
    """Before each operation of the start: pending/ first, marks.json second, and each pending txlog between them."""
    scene = TakenOver(tmp_path)
    scene.restored().opened()
    operations = list(scene.faults.seen)
    assert {"list folder/pending/", "read folder/marks.json"} < {*operations}
    for number in range(len(operations)):
        scene.restored().lets_in(BETWEEN[what], number)
        scene.reads(scene.opened())
        scene.faults.clear()
        for _ in range(2):  # a run that was rejected starts again
            scene.reads(scene.opened())
        expected = sorted(f"{channel}-{offset}" for channel in ("p0", "p1") for offset in range(1, 6))
        assert scene.lake.keys() == expected, f"{what} before {operations[number]}"
        assert what != "a commit" or scene.lake.rejected() == {}, f"a commit before {operations[number]}"
