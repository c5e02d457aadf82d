"""Dead letters that are rows now: each becomes one row and leaves, whatever crashes, and whoever replays too."""

from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from bookkeeper.commands.rejected_rows import RejectedRows, Wanted
from bookkeeper.contract import letter_export
from bookkeeper.contract.txlog_folder import Folder
from bookkeeper.errors import Backpressure, Fenced, NotPossible
from bookkeeper.stores.open import open_store
from tests.kafka.scripted import Topics
from tests.kafka.topics import FILLED, Copy, letters_queue, queue
from tests.support.threads import again_and_again
from writers import Writer
from writers.kafka import replay as replay_module
from writers.kafka.messages import MessageReader
from writers.kafka.replay import Replay, Target
from writers.kafka.source import reader_of
from writers.loader.formats import Format
from writers.timing import pause, utc_now

STRICT, LAX = Format("ndjson"), Format("ndjson", ignore_unknown=True)
#: offsets of messages that are no rows for a strict reader and rows for a lax one, and of those that are never any
ODD, NEVER = (1, 2, 4, 5, 8), (3, 7)
COUNT = 10
#: what is left of two times as many
TWICE = (*NEVER, *(COUNT + offset for offset in NEVER))
#: of the letters in their file: chunks of two
EACH = 2


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replay_module, "MOST_LETTERS", EACH)
    monkeypatch.setattr(replay_module, "_PAUSE_SECONDS", 0.02)
    monkeypatch.setattr("writers.publish.pending_monitor.EVERY", timedelta(milliseconds=10))


@pytest.fixture
def copy(tmp_path: Path) -> Copy:
    """A copy whose letters are settled."""
    topics = Topics()
    found = Copy(topics, queue(tmp_path / "rows"), "t", letters=letters_queue(tmp_path / "letters"))
    topics.make("t")
    send(found)
    return found


def send(copy: Copy) -> None:
    """The same again, and all of it is read."""
    first = copy.topics.logs["t"][0].end
    for n in range(COUNT):
        odd: Any = b"{" if n in NEVER else {"n": first + n, "more": 1} if n in ODD else {"n": first + n}
        copy.topics.send("t", [odd])
    with again_and_again(copy.tick, 0.02):
        copy.run(form=STRICT)
    copy.tick()


def rejected(copy: Copy, **wanted: Any) -> RejectedRows:
    assert copy.letters is not None
    copy.letters.tick()
    audit = copy.letters.audit()
    return RejectedRows(audit.ledger, audit.view, Wanted(**wanted))


def export(copy: Copy, path: Path, **wanted: Any) -> str:
    rejected(copy, **wanted).export(str(path))
    return str(path)


def replayed(
    copy: Copy,
    path: str,
    form: Format = LAX,
    source: str = "copy",
    wait: Callable[[float], object] = lambda seconds: pause(min(seconds, 0.02)),
    patience: timedelta = timedelta(seconds=20),
    ticks: bool = True,
) -> Replay:
    """A run to the end of the file, beside the bookkeepers of both tables."""
    assert copy.letters is not None

    def opened(url: str) -> Target:
        folder = Folder(open_store(url))
        return Target(folder, Writer.open(folder, f"{source}-replay", wait=wait))

    def reader(writer: Writer) -> MessageReader:
        return reader_of(writer, form, FILLED)

    found = letter_export.opened(path)
    rows, letters = opened(copy.folder), opened(copy.letters.made.folder)
    try:
        run = Replay(found, source, rows, letters, reader, utc_now, wait, patience)
        if ticks:
            with again_and_again(copy.tick, 0.02):
                run.run()
        else:
            run.run()
    finally:
        rows.writer.close()
        letters.writer.close()
    return run


def check(copy: Copy, left: tuple[int, ...] = NEVER, count: int = COUNT) -> None:
    """Each message is in one of the tables, once; these are letters."""
    rows = [offset for _, _, offset, _ in copy.rows()]
    aside = [offset for _, _, offset in copy.put_aside()]
    assert sorted(rows + aside) == [*range(count)]
    assert tuple(aside) == left


def test_letters_that_are_rows_now_become_rows_once(copy: Copy, tmp_path: Path) -> None:
    check(copy, tuple(sorted((*ODD, *NEVER))))
    path = export(copy, tmp_path / "letters.ndjson")

    run = replayed(copy, path)

    assert (run.replayed, run.bad) == (len(ODD), len(NEVER))
    assert [*run.reasons.values()] == [NEVER[0]]
    check(copy)
    assert replayed(copy, path).replayed == 0
    check(copy)


def test_an_export_behind_a_replay_is_taken_and_one_before_it_is_not(copy: Copy, tmp_path: Path) -> None:
    first, second = export(copy, tmp_path / "first.ndjson"), str(tmp_path / "second.ndjson")
    send(copy)
    export(copy, Path(second))
    replayed(copy, first)

    with pytest.raises(NotPossible, match="is older than a replay: it may have letters that are rows already"):
        replayed(copy, second)
    replayed(copy, export(copy, tmp_path / "again.ndjson"))
    with pytest.raises(NotPossible, match="is older than a replay"):
        replayed(copy, first)

    check(copy, TWICE, 2 * COUNT)


class Crash(Exception):
    """The process ends here."""


@pytest.mark.parametrize("behind", [False, True], ids=["before it", "behind it"])
@pytest.mark.parametrize("number", range(1, 7))
@pytest.mark.parametrize("then", [LAX, STRICT], ids=["the same verdict", "another verdict"])
def test_a_crash_around_each_publish_leaves_each_letter_in_one_table(
    copy: Copy, tmp_path: Path, number: int, behind: bool, then: Format
) -> None:
    path = export(copy, tmp_path / "letters.ndjson")
    crash_at(copy, path, number, behind)

    replayed(copy, path, then)
    if then is STRICT:
        replayed(copy, export(copy, tmp_path / "again.ndjson"))

    check(copy)


def crash_at(copy: Copy, path: str, number: int, behind: bool) -> None:
    """Ends a replay around its publish of this number: of each chunk its rows, then its deletes."""
    rightly, calls = Writer.publish, iter(range(1, 1000))

    def publish(self: Writer, *given: Any, **more: Any) -> Any:
        if (call := next(calls)) == number and not behind:
            raise Crash
        result = rightly(self, *given, **more)
        if call == number:
            raise Crash
        return result

    with mock.patch.object(Writer, "publish", publish), pytest.raises(Crash):
        replayed(copy, path)


@pytest.mark.parametrize("number", [1, 2, 3, 5, 8])
def test_a_stop_at_each_wait_leaves_each_letter_in_one_table(copy: Copy, tmp_path: Path, number: int) -> None:
    path = export(copy, tmp_path / "letters.ndjson")
    calls = iter(range(1, 10_000))

    def wait(seconds: float) -> bool:
        pause(min(seconds, 0.02))
        return next(calls) >= number

    with suppress(Backpressure):
        replayed(copy, path, wait=wait)
    replayed(copy, path)

    check(copy)


@pytest.mark.parametrize("other", ["the same file", "another file"])
@pytest.mark.parametrize("number", range(1, 5))
def test_of_two_replays_at_once_one_is_fenced(copy: Copy, tmp_path: Path, number: int, other: str) -> None:
    path = export(copy, tmp_path / "letters.ndjson")
    send(copy)
    second = path if other == "the same file" else export(copy, tmp_path / "second.ndjson")
    rightly, calls, met = Writer.publish, iter(range(1, 10_000)), list[str]()

    def publish(self: Writer, *given: Any, **more: Any) -> Any:
        if next(calls) == number and not met:
            met.append("stood still")
            try:
                replayed(copy, second, ticks=False)
            except NotPossible as exc:
                met.append(str(exc))
        return rightly(self, *given, **more)

    with mock.patch.object(Writer, "publish", publish):
        try:
            replayed(copy, path)
        except Fenced:
            met.append("fenced")
    for name in ("rest", "last"):  # what the fenced one, or the refused one, has not taken
        with suppress(NotPossible):
            replayed(copy, path)
        with suppress(NotPossible):
            replayed(copy, second)
        replayed(copy, export(copy, tmp_path / f"{name}.ndjson"))

    if other == "the same file" or number == 1:
        assert met[-1] == "fenced"
    else:
        assert "a replay of another file has not ended" in met[1] or "is older than a replay" in met[1]
    check(copy, TWICE, 2 * COUNT)


def test_a_file_is_refused_while_the_replay_of_another_one_has_not_ended(copy: Copy, tmp_path: Path) -> None:
    path = export(copy, tmp_path / "letters.ndjson")
    crash_at(copy, path, 2, behind=False)
    send(copy)
    other = export(copy, tmp_path / "other.ndjson")

    with pytest.raises(NotPossible, match="a replay of another file has not ended: copy-replay has made rows"):
        replayed(copy, other)
    replayed(copy, path)
    replayed(copy, export(copy, tmp_path / "again.ndjson"))

    check(copy, TWICE, 2 * COUNT)


def test_letters_that_the_copy_may_write_again_are_refused(copy: Copy, tmp_path: Path) -> None:
    first = copy.topics.logs["t"][0].end
    copy.topics.send("t", [{"n": first, "more": 1}])
    rightly = Writer.publish

    def publish(self: Writer, *given: Any, **more: Any) -> Any:
        if self.keys or not self.unpublished_rows:
            return rightly(self, *given, **more)
        raise Crash

    copy.topics.send("t", [{"n": first + 1}])
    with mock.patch.object(Writer, "publish", publish), pytest.raises(Crash), again_and_again(copy.tick, 0.02):
        copy.run(form=STRICT)
    path = export(copy, tmp_path / "letters.ndjson")

    with pytest.raises(NotPossible, match=rf"t/0, offset {first} .* is not settled: copy may read and write it again"):
        replayed(copy, path)
    with again_and_again(copy.tick, 0.02):
        copy.run(form=STRICT)
    copy.tick()
    replayed(copy, export(copy, tmp_path / "again.ndjson"))

    check(copy, count=first + 2)


def test_a_keyed_table_is_refused(copy: Copy, tmp_path: Path) -> None:
    path = export(copy, tmp_path / "letters.ndjson")
    keyed = Copy(copy.topics, queue(tmp_path / "keyed", key=("n",)), "t", letters=copy.letters)

    with pytest.raises(NotPossible, match="is keyed: an older message could replace a newer one of its key"):
        replayed(keyed, path)


def test_letters_of_another_source_are_refused(copy: Copy, tmp_path: Path) -> None:
    path = export(copy, tmp_path / "letters.ndjson")

    with pytest.raises(NotPossible, match="is a letter of copy, not of other"):
        replayed(copy, path, source="other")


def test_letters_of_another_table_are_refused(copy: Copy, tmp_path: Path) -> None:
    path = export(copy, tmp_path / "letters.ndjson")
    other = Copy(copy.topics, copy.queue, "t", letters=letters_queue(tmp_path / "others"))

    with pytest.raises(NotPossible, match=r"is of .*, not of .* as it is now"):
        replayed(other, path)


def test_without_a_bookkeeper_it_says_that_nothing_is_committed(copy: Copy, tmp_path: Path) -> None:
    path = export(copy, tmp_path / "letters.ndjson")

    with pytest.raises(Backpressure, match="what copy-replay has published is not committed yet"):
        replayed(copy, path, ticks=False, patience=timedelta(milliseconds=50))
    replayed(copy, path)

    check(copy)


CHANGES: dict[str, Callable[[bytes], bytes]] = {
    "a byte": lambda data: data.replace(b'"offset": 1,', b'"offset": 9,'),
    "a line less": lambda data: b"\n".join([*data.split(b"\n")[:2], *data.split(b"\n")[3:]]),
    "no end": lambda data: data[: data.rindex(b'{"letters"')],
    "an end without a line break": lambda data: data[:-40],
    "nothing": lambda data: b"",
    "more behind it": lambda data: data + b"{}\n",
    "no JSON": lambda data: b"\xff\n" + data,
    "other JSON": lambda data: b'{"n": 1}\n',
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_file_that_was_changed_or_is_no_export_is_refused(copy: Copy, tmp_path: Path, change: str) -> None:
    path = Path(export(copy, tmp_path / "letters.ndjson"))
    path.write_bytes(CHANGES[change](path.read_bytes()))

    with pytest.raises(NotPossible, match="is no export of dead letters"):
        letter_export.opened(str(path))


def test_letters_whose_rows_are_rejected_stay(copy: Copy, tmp_path: Path) -> None:
    path, rightly = export(copy, tmp_path / "letters.ndjson"), Writer.publish
    place = Path(copy.queue.folder.card().data_path.removeprefix("file://"))

    def publish(self: Writer, *given: Any, **more: Any) -> Any:
        before = {*place.rglob("*.parquet")}
        if self.keys:
            return rightly(self, *given, **more)
        result = rightly(self, *given, **more)
        for file in {*place.rglob("*.parquet")} - before:
            file.unlink()
        return result

    def wait(seconds: float) -> None:
        copy.tick()

    with mock.patch.object(Writer, "publish", publish), pytest.raises(Fenced):
        replayed(copy, path, wait=wait, ticks=False)
    check(copy, tuple(sorted((*ODD, *NEVER))))
    replayed(copy, path)

    check(copy)
