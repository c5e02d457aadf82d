"""What goes at once in a publish, what waits for it, and what a crash leaves of it."""

import threading
import uuid
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import timedelta
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField

from bookkeeper.errors import Backpressure, BookkeeperError, Fenced, StorageUnavailable, WrongFolder
from bookkeeper.stores.open import open_store
from tests.support.desk import PLAIN, SCHEMA, START, Desk, Ledger, Tampered, only, rows
from tests.support.enumerated import Point, crash_points, crashed, error_points, recorded
from tests.support.faults import Faults, FaultyStore
from tests.support.in_turn import Order, in_turn, orders
from writers.files import rolling_writer
from writers.timing import at_once
from writers.writer import Writer

TOMORROW = START + timedelta(days=1)
TWO_DAYS = pa.concat_tables([rows("a"), rows("b", at=TOMORROW)])


class Meeting:
    """Stores of which some operations wait for each other: none returns before all have begun."""

    def __init__(self) -> None:
        self.parts: tuple[str, ...] = ()
        self.met: list[str] = []

    def of(self, *parts: str) -> None:
        """The next operations with these texts, once each."""
        self.parts, self.met = parts, []
        self.barrier = threading.Barrier(len(parts), timeout=60)

    def __call__(self, url: str) -> Any:
        return Tampered(open_store(url), self._meet)

    def _meet(self, operation: str, key: str) -> None:
        found = [part for part in self.parts if part in f"{operation} {key}" and part not in self.met]
        if found:
            self.met.append(found[0])
            self.barrier.wait()


def test_results_come_in_order_and_an_error_only_when_all_have_ended() -> None:
    ended = list[int]()
    gate = threading.Event()

    def late(number: int) -> int:
        assert gate.wait(60)
        ended.append(number)
        return number

    def fails(error: Exception) -> None:
        gate.set()
        raise error

    gate.set()
    assert at_once([lambda: late(1), lambda: late(2), lambda: late(3)]) == [1, 2, 3]
    assert at_once([]) == []
    for place in range(3):
        ended.clear()
        gate.clear()
        acts = [lambda: late(1), lambda: late(2)]
        acts.insert(place, lambda: fails(ValueError("first")))
        with pytest.raises(ValueError, match="first"):
            at_once(acts)
        assert sorted(ended) == [1, 2]
    with pytest.raises(KeyError):
        at_once([lambda: late(1), lambda: fails(KeyError()), lambda: fails(ValueError())])


def test_an_interrupt_waits_for_no_storage() -> None:
    gate = threading.Event()

    def interrupted() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        at_once([gate.wait, interrupted])
    gate.set()


def test_uploads_card_and_listing_of_a_publish_are_under_way_together(desk: Desk) -> None:
    desk.stores = meeting = Meeting()
    with desk.writer() as writer:
        writer.write(TWO_DAYS)
        meeting.of(
            "upload timestamp_day=2026-03-01", "upload timestamp_day=2026-03-02", "read_versions {'card", "list pending"
        )
        writer.publish()
        assert sorted(meeting.met) == sorted(meeting.parts)
    assert desk.keys() == ["a", "b"]


def test_the_marks_of_a_source_are_read_beside_its_listing(desk: Desk) -> None:
    desk.stores = meeting = Meeting()
    with desk.writer() as writer:
        writer.write(rows("a"))
        writer.publish(position=b"1")
        desk.clock.move(seconds=2)
        writer.write(rows("b"))
        meeting.of("upload", "read_versions {'card", "list pending", "read_versions {'marks")
        writer.publish(position=b"2")
        assert sorted(meeting.met) == sorted(meeting.parts)
    assert desk.keys() == ["a", "b"]


def test_the_upload_of_a_roll_and_the_card_are_under_way_together(desk: Desk) -> None:
    desk.stores = meeting = Meeting()
    with desk.writer() as writer:
        writer.write(rows("a"))
        meeting.of("upload", "read_versions {'card")
        writer.roll()
        assert sorted(meeting.met) == sorted(meeting.parts)


def test_of_many_files_a_bounded_number_and_size_goes_at_once(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    counts = list[int]()

    def counting(acts: Sequence[Callable[[], Any]]) -> list[Any]:
        counts.append(len(acts))
        return at_once(acts)

    days = pa.concat_tables([rows(f"{day:02d}", at=START + timedelta(days=day)) for day in range(40)])
    with desk.writer(at_once=counting) as writer:
        writer.write(days)
        writer.publish()
        assert counts == [3, 1, 16, 16, 8]  # the round itself, the listing, then the uploads
        counts.clear()
        monkeypatch.setattr(rolling_writer, "MOST_UPLOADED_BYTES", 1)
        writer.write(days)
        writer.publish()
        assert counts == [3] + [1] * 40
    assert desk.keys() == sorted([f"{day:02d}" for day in range(40)] * 2)


def test_no_txlog_is_sent_before_all_its_files_are_whole_in_the_storage(desk: Desk) -> None:
    sent = list[str]()

    def check(operation: str, key: str) -> None:
        if operation == "create":
            stored = {item.key: item.size for item in open_store(f"{desk.root}/data").list("")}
            assert stored == uploaded and len(stored) == 2 * len(sent) + 2
            sent.append(key)

    def note(operation: str, key: str) -> None:
        if operation == "upload":
            uploaded[key] = open_store(f"{desk.root}/data").size(key)

    uploaded: dict[str, int] = {}
    desk.stores = lambda url: Tampered(open_store(url), check, note)
    with desk.writer() as writer:
        for _ in range(3):
            writer.write(TWO_DAYS)
            writer.publish()
    assert len(sent) == 3
    assert [len(desk.rows(item.files)) for item in desk.txlogs()] == [2, 2, 2]


def test_files_whose_uploads_were_said_to_be_done_and_are_not_are_in_no_txlog(desk: Desk) -> None:
    def hasty(acts: Sequence[Callable[[], Any]]) -> list[Any]:
        return [None if "_upload" in str(act) else act() for act in acts]

    writer = desk.writer(at_once=hasty)
    writer.write(rows("a"))
    with pytest.raises(StorageUnavailable, match="not stored yet"):
        writer.publish()
    assert desk.txlogs() == []


def test_an_upload_that_fails_beside_others_is_the_only_one_sent_again(desk: Desk) -> None:
    uploads = Counter[str]()
    broken = [True]

    def fail(operation: str, key: str) -> None:
        if operation == "upload":
            uploads[key[:24]] += 1
            if broken[0] and "2026-03-02" in key:
                raise StorageUnavailable("503")

    desk.stores = lambda url: Tampered(open_store(url), fail)
    with desk.writer(wait=lambda seconds: True) as writer:
        writer.write(TWO_DAYS)
        with pytest.raises(StorageUnavailable):
            writer.publish()
        assert desk.txlogs() == [] and writer.unpublished_rows == 2
        broken[0] = False
        writer.publish()
    assert sorted(uploads.values()) == [1, 3]
    assert desk.keys() == ["a", "b"]


class Interrupted:
    """Stores that do `act` once, right after the operation `part` or right before."""

    def __init__(self, part: str, act: Callable[[], object], before: bool = False) -> None:
        self.part, self.act, self.before, self.done = part, act, before, False

    def __call__(self, url: str) -> Any:
        idle = lambda operation, key: None  # noqa: E731
        first, second = (self._do, idle) if self.before else (idle, self._do)
        return Tampered(open_store(url), first, second)

    def _do(self, operation: str, key: str) -> None:
        if self.armed and not self.done and self.part in f"{operation} {key}":
            self.done = True
            self.act()

    armed = False


COUNT = NestedField(4, "count", LongType())
CARD_FIRST, CARD_LAST = in_turn(), in_turn(lambda count: range(count - 1, -1, -1))


@contextmanager
def changed_during_the_upload(desk: Desk, act: Callable[[], object], order: Any) -> Iterator[Writer]:
    """A writer with a row, whose first upload from now on is followed by `act`."""
    desk.stores = stores = Interrupted("upload", act)
    writer = desk.writer(at_once=order)
    writer.write(rows("a"))
    stores.armed = True
    yield writer
    assert stores.done


@pytest.mark.parametrize("seconds", [0, 2])
@pytest.mark.parametrize("order", [CARD_FIRST, CARD_LAST], ids=["card first", "card last"])
def test_a_schema_that_changes_during_the_upload_is_written_after_the_publish(
    desk: Desk, order: Any, seconds: int
) -> None:
    def change() -> None:
        desk.set_card(Schema(*SCHEMA.fields, COUNT, schema_id=1))
        desk.clock.move(seconds=seconds)

    with changed_during_the_upload(desk, change, order) as writer:
        writer.publish()
        writer.roll()
        writer.write(rows("b").append_column("count", pa.array([5])))
        writer.publish()
    assert [item.schema_id for item in desk.txlogs()] == [0, 1]
    assert [row.get("count") for row in desk.rows()] == [None, 5]


@pytest.mark.parametrize("order", [CARD_FIRST, CARD_LAST], ids=["card first", "card last"])
def test_a_spec_that_changes_during_the_upload_is_written_after_the_publish(desk: Desk, order: Any) -> None:
    with changed_during_the_upload(desk, lambda: desk.set_card(spec=PLAIN), order) as writer:
        writer.publish()
        writer.roll()
        writer.write(rows("b"))
        writer.publish()
    assert [len(only(item.files).partition) for item in desk.txlogs()] == [1, 0]


@pytest.mark.parametrize("order", [CARD_FIRST, CARD_LAST], ids=["card first", "card last"])
@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda desk: desk.folder.store.delete_many(["card.json"]), "no card.json any more"),
        (lambda desk: desk.set_card(table_uuid="00000000-0000-4000-8000-000000000000"), "now belongs to"),
        (lambda desk: desk.set_card(folder="another"), "another txlog folder"),
        (lambda desk: desk.folder.store.replace("card.json", b"{"), "not readable"),
    ],
    ids=["gone", "other table", "other folder", "torn"],
)
def test_a_folder_that_is_lost_during_a_long_upload_gets_no_txlog(
    desk: Desk, change: Callable[[Desk], object], said: str, order: Any
) -> None:
    card = desk.folder.store.read("card.json")

    def lose() -> None:
        change(desk)
        desk.clock.move(seconds=2)

    with changed_during_the_upload(desk, lose, order) as writer:
        for _ in range(2):
            with pytest.raises(WrongFolder, match=said):
                writer.publish()
        assert desk.txlogs() == [] and writer.unpublished_rows == 1
        desk.folder.store.replace("card.json", card)
        writer.publish()
    assert desk.keys() == ["a"]


def test_a_folder_that_is_lost_while_the_writer_waits_at_the_limit_gets_no_txlog(desk: Desk) -> None:
    desk.set_card(pending_limit=1)

    def wait(seconds: float) -> None:
        desk.clock.wait(seconds)
        desk.folder.delete([item.name for item in desk.folder.pending()])
        desk.set_card(folder="another")

    other = desk.writer("other")
    writer = desk.writer(wait=wait)
    for each, key in ((other, "b"), (writer, "a")):
        each.write(rows(key))
    other.publish()
    with pytest.raises(WrongFolder, match="another txlog folder"):
        writer.publish()
    assert desk.clock.waits == [1.0] and desk.txlogs() == []


def test_files_that_grow_old_while_the_writer_waits_at_the_limit_are_written_again(desk: Desk) -> None:
    desk.set_card(pending_limit=1, orphan_age_ms=3_600_000)
    other = desk.writer("other")
    other.write(rows("b"))
    other.publish()
    name = only(desk.folder.pending()).name

    def wait(seconds: float) -> None:
        desk.clock.move(minutes=20)
        if desk.clock.now - START >= timedelta(hours=1):
            desk.folder.delete([name])

    with desk.writer(wait=wait, patience=timedelta(days=1)) as writer:
        writer.write(rows("a"))
        writer.publish()
    assert [file.path[-13:] for file in only(desk.txlogs()).files] == ["00002.parquet"]
    assert desk.keys() == ["a"]


def test_an_orphan_age_that_was_cut_counts_for_the_next_publish(desk: Desk) -> None:
    with desk.writer() as writer:
        writer.write(rows("a"))
        writer.roll()
        desk.clock.move(minutes=40)
        desk.set_card(orphan_age_ms=3_600_000)
        writer.publish()
    assert [file.path[-13:] for file in only(desk.txlogs()).files] == ["00002.parquet"]


def test_a_writer_that_stays_at_the_limit_makes_no_small_files(desk: Desk) -> None:
    desk.set_card(pending_limit=1)
    with desk.writer(wait=lambda seconds: True) as writer:
        writer.write(rows("a"))
        writer.publish()
        for number in range(5):
            writer.write(rows(f"b{number}"))
            with pytest.raises(Backpressure):
                writer.publish()
        desk.folder.delete([item.name for item in desk.folder.pending()])
        desk.clock.move(seconds=2)
        writer.publish()
    files = only(desk.txlogs()).files
    assert [file.record_count for file in files] == [5]


@pytest.mark.parametrize("order", [CARD_FIRST, CARD_LAST], ids=["marks first", "listing first"])
def test_a_txlog_that_is_committed_between_marks_and_listing_fences_no_run(desk: Desk, order: Any) -> None:
    ledger = Ledger(desk)
    desk.stores = stores = Interrupted("read_versions {'marks", ledger.tick)
    with desk.writer(at_once=order) as writer:
        for position in (b"1", b"2", b"3"):
            writer.write(rows(position.decode()))
            writer.publish(position=position)
            desk.clock.move(seconds=2)
            stores.armed = True
    ledger.tick()
    ledger.tick()
    assert stores.done and ledger.keys() == ["1", "2", "3"]


@pytest.mark.parametrize("order", [CARD_FIRST, CARD_LAST], ids=["marks first", "listing first"])
def test_a_run_whose_txlog_was_rejected_is_fenced_at_its_next_publish(desk: Desk, order: Any) -> None:
    ledger = Ledger(desk)
    writer = desk.writer(at_once=order)
    writer.write(rows("1"))
    name = writer.publish(position=b"1")
    assert name is not None
    desk.folder.reject(name, StorageUnavailable("because"), desk.clock())
    desk.clock.move(seconds=2)
    writer.write(rows("2"))
    with pytest.raises(Fenced, match="because"):
        writer.publish(position=b"2")
    ledger.tick()
    assert ledger.keys() == []


class Source:
    """A source of four rows, two days each time, read by one writer that may die or be disturbed anywhere."""

    def __init__(self, order: Order) -> None:
        self.desk, self.order = Desk(f"memory://{uuid.uuid4()}"), order
        self.desk.set_card()
        self.ledger = Ledger(self.desk)

    def copy(self, faults: Faults) -> None:
        """One run, from where the positions end."""
        desk, label = self.desk, {f"{self.desk.root}/data": "data"}
        desk.stores = lambda url: FaultyStore(open_store(url), faults, label.get(url, "folder"))  # type: ignore[return-value]
        with desk.writer(at_once=in_turn(self.order), wait=lambda seconds: True) as writer:
            for at in range(int(writer.position or b"0"), 2):
                writer.write(pa.concat_tables([rows(f"{at}a"), rows(f"{at}b", at=TOMORROW)]))
                writer.publish(position=b"%d" % (at + 1))
                self.ledger.tick()
                desk.clock.move(seconds=2)

    def outcome(self) -> list[str]:
        """What is in the table after a restart, with every file that a txlog named whole."""
        self.ledger.finish(lambda: self.copy(Faults()))
        return self.ledger.keys()


ROWS = ["0a", "0b", "1a", "1b"]


@pytest.mark.parametrize("number", range(6))
def test_a_crash_at_each_operation_in_any_order_loses_and_doubles_nothing(number: int) -> None:
    order, tried, parts = orders(3)[number], Counter[str](), set[int]()
    for point in [Point(0, "", "none"), *crash_points(_operations(order))]:
        source = Source(order)
        if point.when != "none":
            assert crashed(source.copy, point), point
            parts.add(len(list(open_store(f"{source.desk.root}/data").list(""))))
            tried[point.operation.split(" ")[0]] += 1
        assert source.outcome() == ROWS, point
    assert tried == {"upload": 12, "create": 6}
    assert parts >= {0, 1, 2, 3, 4}  # nothing of it, any part, all of it


@pytest.mark.parametrize("number", range(6))
def test_an_error_at_each_operation_in_any_order_loses_and_doubles_nothing(number: int) -> None:
    order = orders(3)[number]
    for point in error_points(_operations(order)):
        source = Source(order)
        with suppress(BookkeeperError):
            source.copy(Faults().at(point.number, point.when, StorageUnavailable))
        assert source.outcome() == ROWS, point


def _operations(order: Order) -> list[str]:
    return recorded(Source(order).copy)
