"""Dead letters on a scripted cluster: each message in one of two tables, whatever crashes and whoever judges."""

import os
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from bookkeeper.commands.rehash import claim_letters, rehash
from bookkeeper.commands.rejected_rows import RejectedRows, Wanted
from bookkeeper.config.dead_letters import KEY
from bookkeeper.config.units import epoch_ms
from bookkeeper.contract import letter_export
from bookkeeper.contract.offsets import is_slot
from bookkeeper.contract.txlog_folder import Folder
from bookkeeper.errors import CommitConflict, Fenced, NotPossible
from bookkeeper.leases.lease import NoLease
from bookkeeper.stores.open import open_store
from tests.kafka.scripted import Topics
from tests.kafka.topics import Copy, letters_queue, queue, running, until
from tests.support.keyed_rows import rows as live_rows
from tests.support.threads import again_and_again
from tests.support.wrapped import WrappedStore
from writers.kafka import run
from writers.kafka import verdicts as verdicts_module
from writers.kafka.dead_letters import Letters
from writers.kafka.verdicts import Verdicts
from writers.loader.formats import Format
from writers.timing import pause
from writers.writer import Writer

STRICT, LAX = Format("ndjson"), Format("ndjson", ignore_unknown=True)
#: no row for a strict reader, a row for a lax one
ODD = {"more": 1}


@pytest.fixture
def topics() -> Topics:
    return Topics()


@pytest.fixture
def copy(topics: Topics, tmp_path: Path) -> Copy:
    rows = queue(tmp_path / "rows", roll_after=timedelta(seconds=1))
    return Copy(topics, rows, "t", letters=letters_queue(tmp_path / "letters"))


def send(topics: Topics, count: int, odd: tuple[int, ...], partition: int = 0) -> None:
    """Messages whose number is their offset; some with a column that the table does not have."""
    first = topics.logs["t"][partition].end
    topics.send("t", [{"n": n} | (ODD if n in odd else {}) for n in range(first, first + count)], partition)


def read(copy: Copy, **more: Any) -> None:
    """To the end, beside the bookkeepers of both tables."""
    with again_and_again(copy.tick, 0.02):
        copy.run(**{"form": STRICT, **more})


def check(copy: Copy, ends: dict[int, int], odd: dict[int, set[int]] | None = None) -> None:
    """Each message is in one of the tables, once; with `odd` those are the letters."""
    rows = [(partition, offset) for _, partition, offset, _ in copy.rows()]
    aside = [(partition, offset) for _, partition, offset in copy.put_aside()]
    assert sorted(rows + aside) == [(partition, offset) for partition in ends for offset in range(ends[partition])]
    if odd is not None:
        assert aside == sorted((partition, offset) for partition, offsets in odd.items() for offset in offsets)


def test_messages_that_are_no_rows_become_letters_and_their_partitions_go_on(topics: Topics, copy: Copy) -> None:
    topics.make("t", 2)
    send(topics, 10, odd=(0, 3, 9))
    topics.send("t", [b"{", {"n": 1}, None], 1, millis=1_700_000_000_123)

    read(copy)

    check(copy, {0: 10, 1: 3}, {0: {0, 3, 9}, 1: {0, 2}})
    assert copy.letters is not None
    found = {(it["partition"], it["offset"]): it for it in live_rows(copy.letters, *KEY)}
    letter = found[1, 0]
    assert letter["source"] == "copy"
    assert letter["channel"].endswith("/1")
    assert letter["value"] == b"{"
    assert letter["timestamp"].timestamp() == 1_700_000_000.123
    assert "more" in found[0, 3]["reason"]


def test_a_letter_has_the_timestamp_of_its_message_whatever_that_is(topics: Topics, copy: Copy, tmp_path: Path) -> None:
    given = [1_700_000_000_123, -1, 1_700_000_000_123_456, 2**62]  # the third: microseconds, the year 55,841
    topics.make("t")
    for millis in given:
        topics.send("t", [b"["], millis=millis)
    read(copy)
    assert copy.letters is not None
    copy.letters.tick()
    audit, path = copy.letters.audit(), str(tmp_path / "letters.ndjson")
    found = RejectedRows(audit.ledger, audit.view, Wanted())
    assert found.newest(9)[0] == found.export(path) == 4
    times = {letter.at: letter.millis for letter in letter_export.opened(path).letters()}
    assert [times[at] for at in range(4)] == [*given[:3], None]  # no column of the table holds the last


def test_a_topic_of_bad_messages_alone_is_passed(topics: Topics, copy: Copy) -> None:
    topics.make("t")
    topics.send("t", [b"["] * 30)
    read(copy)
    commits = len(copy.letters.table().snapshots())  # type: ignore[union-attr]
    read(copy)

    check(copy, {0: 30}, {0: set(range(30))})
    assert len(copy.letters.table().snapshots()) == commits  # type: ignore[union-attr]


def test_a_topic_goes_on_behind_its_letters(topics: Topics, copy: Copy) -> None:
    topics.make("t")
    with again_and_again(copy.tick, 0.02), running(copy, form=STRICT):
        for last in (20, 40):
            send(topics, 20, odd=(last - 20, last - 10, last - 1))
            until(lambda wanted=last - 3 * last // 20: copy.queue.table().scan().count() == wanted)

    check(copy, {0: 40}, {0: {0, 10, 19, 20, 30, 39}})


class Crash(Exception):
    """The process ends here."""


STEPS = {
    "before the verdict": (Verdicts, "add", True),
    "behind the verdict": (Verdicts, "add", False),
    "before the letters": (Letters, "send", True),
    "behind the letters": (Letters, "send", False),
}


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("then", [STRICT, LAX], ids=["the same verdict", "another verdict"])
def test_a_crash_at_each_step_and_another_verdict_leave_a_message_in_one_table(
    topics: Topics, copy: Copy, step: str, then: Format
) -> None:
    topics.make("t", 2)
    for partition in (0, 1):
        send(topics, 12, odd=(0, 5, 11), partition=partition)
    kind, name, before = STEPS[step]
    rightly = getattr(kind, name)

    def crash(self: Any, *given: Any, **more: Any) -> Any:
        result = None if before else rightly(self, *given, **more)
        if before or result is not False:
            raise Crash
        return result

    with mock.patch.object(kind, name, crash), pytest.raises(Crash):
        read(copy)
    copy.tick()
    send(topics, 3, odd=(13,))

    read(copy, form=then)

    check(copy, {0: 15, 1: 12})


@pytest.mark.parametrize("number", range(1, 9))
def test_a_crash_around_each_publish_of_either_table_leaves_a_message_in_one(
    topics: Topics, copy: Copy, number: int
) -> None:
    topics.make("t")
    send(topics, 12, odd=(0, 5, 11))
    rightly, calls = Writer.publish, iter(range(1, 1000))

    def publish(self: Writer, *given: Any, **more: Any) -> Any:
        call = next(calls)
        if call == number:
            raise Crash
        result = rightly(self, *given, **more)
        if call + 1 == number and number % 2 == 0:
            raise Crash
        return result

    with mock.patch.object(Writer, "publish", publish):
        try:
            read(copy)
        except Crash:
            copy.tick()
    read(copy, form=LAX)

    check(copy, {0: 12})


@pytest.mark.parametrize("stops", ["before its verdict", "behind its verdict", "behind its letters"])
def test_a_run_that_stood_still_and_one_that_judges_otherwise_leave_a_message_in_one_table(
    topics: Topics, copy: Copy, stops: str
) -> None:
    topics.make("t")
    send(topics, 12, odd=(0, 5, 11))
    kind, name = (Verdicts, "add") if "verdict" in stops else (Letters, "send")
    rightly, other = getattr(kind, name), Copy(topics, copy.queue, "t", letters=copy.letters)
    met = list[str]()

    def stand_still(self: Any, *given: Any) -> Any:
        if met or (stops == "behind its letters" and not (done := rightly(self, *given))):
            return rightly(self, *given) if met else done
        met.append(stops)
        if stops == "behind its verdict":
            rightly(self, *given)
        with mock.patch("writers.kafka.source.Shared.lease", no_lease):
            other.run(form=LAX)
        return None if stops == "behind its verdict" else rightly(self, *given)

    with mock.patch.object(kind, name, stand_still), again_and_again(copy.tick, 0.02):
        copy.run(form=STRICT)
    read(copy, form=LAX)

    assert met
    check(copy, {0: 12})


def test_a_run_that_stood_still_before_its_rows_does_not_bring_one_that_has_a_letter_now(
    topics: Topics, copy: Copy
) -> None:
    topics.make("t")
    send(topics, 12, odd=(0, 5, 11))
    rightly, other, met = Writer.publish, Copy(topics, copy.queue, "t", letters=copy.letters), list[int]()
    sends = Letters.send

    def crash(self: Letters, *given: Any) -> bool:
        if sends(self, *given):
            raise Crash
        return False

    def stand_still(self: Writer, *given: Any, **more: Any) -> Any:
        if not met:
            met.append(1)
            with (
                mock.patch("writers.kafka.source.Shared.lease", no_lease),
                mock.patch.object(Letters, "send", crash),
                pytest.raises(Crash),
            ):
                other.run(form=STRICT)
        return rightly(self, *given, **more)

    with mock.patch.object(Writer, "publish", stand_still), again_and_again(copy.tick, 0.02):
        copy.run(form=LAX)
    read(copy, form=LAX)

    check(copy, {0: 12}, {0: {0, 5, 11}})


def no_lease(self: Any, folder: Any, slot: int) -> Any:
    return NoLease()


def test_two_instances_that_judge_otherwise_put_each_message_into_one_table(
    topics: Topics, copy: Copy, caplog: pytest.LogCaptureFixture
) -> None:
    topics.make("t", 3)
    other = Copy(topics, copy.queue, "t", letters=copy.letters)
    with (
        mock.patch("writers.kafka.source.Shared.lease", no_lease),
        again_and_again(copy.tick, 0.02),
        running(copy, form=STRICT),
        running(other, form=LAX),
    ):
        for first in range(0, 90, 30):
            for partition in range(3):
                send(topics, 30, odd=tuple(range(first, first + 30, 4)), partition=partition)
            until(lambda wanted=first // 10 + 3: caplog.text.count("slot begins anew") >= wanted)
    read(copy)

    check(copy, dict.fromkeys(range(3), 90))


def test_a_source_with_letters_is_not_started_without(topics: Topics, copy: Copy) -> None:
    topics.make("t")
    send(topics, 3, odd=(1,))
    read(copy)
    bare = Copy(topics, copy.queue, "t")

    with pytest.raises(NotPossible, match="copy has dead letters, and is started without"):
        bare.run()


def test_letters_of_a_table_that_was_dropped_are_not_mixed_with_those_of_the_next_one(
    topics: Topics, copy: Copy, tmp_path: Path
) -> None:
    """`bookkeeper drop` of the rows alone: all is read again, and a replay would make second rows of the letters."""
    topics.make("t", 4)
    send(topics, 6, odd=(2,), partition=1)
    read(copy)
    copy.tick()
    anew = Copy(topics, queue(tmp_path / "anew", roll_after=timedelta(seconds=1)), "t", letters=copy.letters)
    for slots in (4, 2):  # no slot begins, also none that has no letters: else the next start would go on
        with pytest.raises(NotPossible, match="has dead letters of another table") as refused:
            read(anew, form=LAX, slots=slots)
        assert "`bookkeeper drop`" in refused.value.hint
    anew.name = "another"
    read(anew, form=LAX)
    assert len(anew.rows()) == 6


def test_verdicts_that_were_moved_away_do_not_stop_a_source_that_the_table_knows(topics: Topics, copy: Copy) -> None:
    topics.make("t")
    send(topics, 6, odd=(2,))
    read(copy)
    copy.tick()
    copy.queue.folder.store.delete_many([item.key for item in copy.queue.folder.store.list("letters/")])
    send(topics, 6, odd=(8,))
    read(copy)
    check(copy, {0: 12}, {0: {2, 8}})


def test_a_table_with_other_keys_is_no_table_of_letters(topics: Topics, tmp_path: Path) -> None:
    topics.make("t")
    copy = Copy(topics, queue(tmp_path / "rows"), "t", letters=queue(tmp_path / "letters"))

    with pytest.raises(NotPossible, match="is no table of dead letters: its keys are none"):
        copy.run()


def test_at_most_so_many_become_letters_where_that_is_asked_for(topics: Topics, copy: Copy) -> None:
    topics.make("t", 2)
    send(topics, 10, odd=(1, 3, 5))
    send(topics, 5, odd=(), partition=1)

    with pytest.raises(NotPossible, match="t/0: the message at offset 5 is no row"):
        read(copy, most_bad=2)

    check(copy, {0: 5, 1: 5}, {0: {1, 3}})


HOSTILE = [
    b"{",
    b"[]",
    b'{"version": 2, "letters": {}}',
    b'{"version": 1}',
    b'{"version": 1, "letters": []}',
    b'{"version": 1, "letters": {"a": 1}}',
    b'{"version": 1, "letters": {"a": [-1]}}',
    b'{"version": 1, "letters": {"a": [true]}}',
    b'{"version": 1, "letters": {"a": [1e400]}}',
    b'{"version": 1, "letters": {"a": [18446744073709551616]}}',
    b"[" * 100_000,
    b"\xff",
]


@pytest.mark.parametrize("data", HOSTILE, ids=range(len(HOSTILE)))
def test_verdicts_that_are_none_stop_the_source(tmp_path: Path, data: bytes) -> None:
    store = open_store(str(tmp_path))
    store.replace("letters/copy-01.json", data)

    for slot, others in (("copy-01", []), ("copy-00", ["copy-01"])):
        with pytest.raises(NotPossible, match=r"letters/copy-01.json (is not readable|has version 2)"):
            Verdicts(store, slot, others, "run", pause)


def test_verdicts_that_are_too_large_are_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verdicts_module, "MOST_BYTES", 10)
    store = open_store(str(tmp_path))
    store.replace("letters/copy-01.json", b"{" + b" " * 20 + b"}")

    with pytest.raises(NotPossible, match=r"letters/copy-01.json is not readable"):
        Verdicts(store, "copy-01", [], "run", pause)


def test_where_many_wait_for_the_table_the_source_reads_no_further(
    topics: Topics, copy: Copy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(verdicts_module, "MOST", 30)
    monkeypatch.setattr(run, "FIRST_MESSAGES", 10)
    monkeypatch.setattr(run, "MOST_MESSAGES", 10)
    topics.make("t")
    topics.send("t", [b"["] * 100)
    with again_and_again(copy.tick, 0.02), running(copy, form=STRICT):
        until(lambda: len(copy.put_aside()) == 100)

    check(copy, {0: 100})


def test_the_verdicts_of_a_slot_that_has_moved_count(topics: Topics, copy: Copy) -> None:
    topics.make("t")
    send(topics, 6, odd=(2,))
    rightly = Letters.send

    def crash(self: Letters, *given: Any) -> bool:
        if rightly(self, *given):
            raise Crash
        return False

    with mock.patch.object(Letters, "send", crash), pytest.raises(Crash):
        read(copy, slots=1)
    place = Path(copy.folder.removeprefix("file://")) / "letters"
    (place / "copy-00.json").rename(place / "copy-03.json")
    read(copy, slots=1, form=LAX)

    check(copy, {0: 6}, {0: {2}})


def test_an_instance_that_was_forgotten_at_a_rehash_puts_nothing_aside(topics: Topics, copy: Copy) -> None:
    """Its slot has no run of then that would claim the verdicts, and another one has made a row of the message."""
    topics.make("t", 2)
    for partition in (0, 1):
        send(topics, 4, odd=(2,), partition=partition)
    rightly, other, met = Verdicts.add, Copy(topics, copy.queue, "t", letters=copy.letters), list[int]()

    def stand_still(self: Verdicts, *given: Any) -> None:
        if not met and self._key == "letters/copy-01.json":
            met.append(1)
            rehashed(copy, 1)
            with mock.patch("writers.kafka.source.Shared.lease", no_lease):
                other.run(form=LAX, slots=1)
        rightly(self, *given)

    with (
        mock.patch.object(Verdicts, "add", stand_still),
        again_and_again(copy.tick, 0.02),
        suppress(NotPossible),  # it sees that the number of slots has changed
    ):
        copy.run(form=STRICT, slots=2)
    read(copy, form=LAX, slots=1)

    assert met
    check(copy, {0: 4, 1: 4})


def test_verdicts_are_claimed_of_all_slots_of_a_source_and_no_others(tmp_path: Path) -> None:
    folder = Folder(open_store(f"file://{tmp_path}"))
    runs = {slot: Verdicts(folder.store, slot, (), "before", pause) for slot in ("a-00", "a-01", "a-b-00", "ab-00")}
    for item in runs.values():
        item.add({"c": [7]}, {})
    claim_letters(folder, "a", 0, bytes(10))
    for slot, item in runs.items():
        if is_slot("a", slot):
            with pytest.raises(Fenced, match="another run of this slot"):
                item.add({"c": [8]}, {})
        else:
            item.add({"c": [8]}, {})
    after = Verdicts(folder.store, "a-01", (), "after", pause)
    assert after.has("c", 7) and not after.has("c", 8)


def test_verdicts_that_change_meanwhile_are_claimed_as_they_are_then(tmp_path: Path) -> None:
    store = open_store(f"file://{tmp_path}")
    run, added = Verdicts(store, "a-00", (), "before", pause), list[int]()

    def around(name: str, act: Any, *given: Any, **named: Any) -> Any:
        if name == "replace" and not added:
            added.append(1)
            run.add({"c": [7]}, {})
        return act(*given, **named)

    wrapped: Any = WrappedStore(store, around)
    claim_letters(Folder(wrapped), "a", 0, bytes(10))
    assert added and Verdicts(store, "a-00", (), "after", pause).has("c", 7)
    with pytest.raises(Fenced):
        run.add({"c": [8]}, {})


def test_verdicts_that_are_none_are_not_claimed(tmp_path: Path) -> None:
    folder = Folder(open_store(f"file://{tmp_path}"))
    folder.store.replace("letters/a-00.json", b"[]")
    with pytest.raises(NotPossible, match=r"letters/a-00.json is not readable"):
        claim_letters(folder, "a", 0, bytes(10))


def rehashed(copy: Copy, slots: int) -> None:
    """As `bookkeeper rehash` does it, once nothing is pending."""
    lake = copy.queue

    def moves() -> bool:
        with suppress(NotPossible, CommitConflict):
            view, now_ms = lake.view(), epoch_ms(lake.clock.now)
            found = rehash(view.marks, lake.folder, copy.name, slots, lake.settings.max_writers, now_ms, bytes(10))
            assert found.marks is not None
            lake.book().publisher.record(view, found.marks, "rehash")
            return True
        return False

    until(moves)
    claim_letters(lake.folder, copy.name, epoch_ms(lake.clock.now), os.urandom(10))


def test_of_two_runs_that_claim_one_goes_on(copy: Copy) -> None:
    store = open_store(copy.folder)
    first = Verdicts(store, "copy-00", [], "a", pause)
    second = Verdicts(store, "copy-00", [], "b", pause)
    second.add({"c": [7]}, {})

    with pytest.raises(Fenced, match="another run of this slot has claimed"):
        first.add({"c": [8]}, {})
    second.add({"c": [9], "d": [1]}, {"c": 8})
    third = Verdicts(store, "copy-00", [], "c", pause)

    assert [third.has("c", offset) for offset in (7, 8, 9)] == [False, False, True]
    assert third.has("d", 1)


def test_rows_around_letters_that_are_rejected_are_not_published(topics: Topics, copy: Copy) -> None:
    topics.make("t")
    send(topics, 12, odd=(0, 5, 11))
    assert copy.letters is not None
    place, rightly, lost = (
        Path(copy.letters.folder.card().data_path.removeprefix("file://")),
        Writer.publish,
        set[Path](),
    )

    def publish(self: Writer, *given: Any, **more: Any) -> Any:
        before = {*place.rglob("*.parquet")}
        result = rightly(self, *given, **more)
        if self.keys and not lost:
            lost.update({*place.rglob("*.parquet")} - before)
            for file in lost:
                file.unlink()
        return result

    with mock.patch.object(Writer, "publish", publish):
        read(copy)

    assert lost
    check(copy, {0: 12}, {0: {0, 5, 11}})


def test_verdicts_of_a_channel_that_another_slot_had_are_forgotten_for_good(tmp_path: Path) -> None:
    """As by a rehash before the log was cut: the next run put aside what had the offsets then."""
    store = open_store(str(tmp_path))
    before = Verdicts(store, "copy-00", [], "a", pause)
    before.add({"moved": [8], "stays": [9]}, {})
    one = Verdicts(store, "copy-01", ["copy-00"], "b", pause)
    one.forget("moved")
    for known in (one, Verdicts(store, "copy-01", ["copy-00"], "c", pause)):
        assert (known.has("moved", 8), known.has("stays", 9)) == (False, True)
    with pytest.raises(Fenced):
        before.add({"moved": [8]}, {})
    again = Verdicts(store, "copy-00", ["copy-01"], "d", pause)
    assert (again.has("moved", 8), again.has("stays", 9)) == (False, True)


@pytest.mark.parametrize("where", ["6", "latest"])
def test_what_takes_the_offset_of_a_letter_in_a_log_that_was_cut_is_judged_anew(
    topics: Topics, copy: Copy, where: str
) -> None:
    """It was put aside unread, and its letter took the place of the one that was there."""
    topics.make("t")
    send(topics, 10, odd=(8,))
    read(copy)
    topics.cut("t", 0, 6)
    if where == "latest":
        read(copy, go_on=["t=latest"])
    topics.send("t", [{"n": number} for number in range(106, 113)])

    read(copy, go_on=[f"t:0={where}"])

    old, new = [*range(8), 9], range(106, 113)
    assert sorted(n for *_, n in copy.rows()) == [*old, *new]
    assert copy.letters is not None
    (letter,) = live_rows(copy.letters, *KEY)
    assert (letter["offset"], b'"more"' in letter["value"]) == (8, True)
