"""
Replay of dead letters: those of an export that are rows now are written to the table, and leave the other one.

Letters are taken in chunks, in the order of the file. For each chunk: (1) its rows are published under the name
SOURCE-replay, with a position that says which file and letters they are and which of these are rows; (2) it waits until
the table has them; (3) the deletes of these letters are published under the same name and with the same position;
(4) it waits until they are committed. What is still bad stays.

A letter gives at most one row:

* A crash before (1): nothing has happened. Behind (1): the next run with the same file waits for the commit, reads in
  the position which letters are rows, whatever it would say of them itself, and goes on with (3). Behind (3): it waits
  for (4) and goes on with the next chunk.
* Two replays at once, of one file or of two: the txlogs of a name are a chain of positions. Of two that continue at one
  place, one is committed, and the other run is fenced, whenever it wakes up.
* The same file again: the position says how far it was replayed.
* Another file: it begins only where all deletes of the replays before it are committed, and where it was exported
  behind them: an export says the position that SOURCE-replay had in its snapshot. So it has no letter that an earlier
  replay has made a row. An older export is refused.
* The source does not write a letter again that was replayed: only letters below the committed offset of their channel
  are replayed, and of these the letters were committed before the rows around them, whichever run wrote them.
"""

import base64
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from itertools import islice

import pyarrow as pa  # type: ignore[import-untyped]

from bookkeeper.config.dead_letters import check_keys
from bookkeeper.contract.letter_export import Export, Letter, replay_name
from bookkeeper.contract.offsets import is_slot
from bookkeeper.contract.txlog_folder import Folder
from bookkeeper.errors import Backpressure, Fenced, NotPossible
from writers.kafka.messages import Converted, MessageReader, converted
from writers.kafka.partitions import end_of
from writers.publish.publisher import resume
from writers.retries import retry
from writers.timing import Clock, Wait, Waited, millis
from writers.writer import Writer

#: letters of a chunk: a position has at most 1 KiB, and a bit for each of them
MOST_LETTERS = 4000
#: of their keys and values
MOST_BYTES = 2**25
_PAUSE_SECONDS = 0.2
_DIGEST_CHARS = 32
_POSITION = re.compile(rb"([0-9a-f]{32})\.([0-9]{1,10})\.([0-9]{1,10})\.([A-Za-z0-9_-]{1,700}={0,2})")
_KEYS = pa.schema([("source", pa.string()), ("channel", pa.string()), ("offset", pa.int64())])


@dataclass(frozen=True)
class Chunk:
    """Which letters of a file were taken: those from `first` up to, without it, `end`; `rows` are the ones that are."""

    digest: str
    first: int
    end: int
    rows: frozenset[int]

    @property
    def position(self) -> bytes:
        """As the position of a txlog."""
        bits = sum(1 << (number - self.first) for number in self.rows)
        data = bits.to_bytes((self.end - self.first + 7) // 8, "little")
        return f"{self.digest}.{self.first}.{self.end}.{base64.urlsafe_b64encode(data).decode()}".encode()


def chunk_of(position: bytes | None, writer: str) -> Chunk | None:
    """
    What a position says; None where nothing was replayed. Raises NotPossible for one of another kind.
    """
    if position is None:
        return None
    found = _POSITION.fullmatch(position)
    if found is not None:
        first, end = int(found[2]), int(found[3])
        bits = int.from_bytes(base64.urlsafe_b64decode(found[4]), "little")
        if 0 <= end - first <= MOST_LETTERS and bits >> (end - first) == 0:
            rows = frozenset(first + bit for bit in range(end - first) if bits >> bit & 1)
            return Chunk(found[1].decode(), first, end, rows)
    hint = "Another program has used this name. Give the copy, and its replay, a --name of their own."
    raise NotPossible(f"the position of {writer} is not that of a replay", hint=hint)


@dataclass
class Target:
    """A table that is written to, and its writer."""

    folder: Folder
    writer: Writer

    @property
    def committed(self) -> bytes | None:
        """The position that is in the table, as far as marks.json says."""
        copy = self.folder.marks()
        same = copy is not None and copy.table_uuid == self.writer.card.table_uuid
        return copy.marks.writer(self.writer.name).position if copy is not None and same else None


@dataclass
class Replay:
    """
    One run; to be used by one thread. `run` raises NotPossible, Fenced, and what a writer raises.
    """

    export: Export
    source: str
    rows: Target
    letters: Target
    reader: Callable[[Writer], MessageReader]
    clock: Clock
    wait: Wait
    patience: timedelta
    on_progress: Callable[["Replay"], None] = lambda replay: None
    #: letters that this run has made rows and deleted, and that are still bad
    replayed: int = 0
    bad: int = 0
    #: by reason: the offset of the first of these
    reasons: dict[str, int] = field(default_factory=dict)

    @property
    def _digest(self) -> str:
        return self.export.digest[:_DIGEST_CHARS]

    def run(self) -> bool:
        """Replays what is left of the file; False where a stop was requested before its end."""
        self._check()
        if not (self._settled(self.letters) and self._settled(self.rows)):
            return False
        if (at := self._begin()) is None:
            return False
        self._check_letters(at)
        for first, chunk in _chunks(self.export.letters(at), at):
            if self.wait(0) is True or not self._take(first, chunk):
                return False
            self.on_progress(self)
        return True

    def _check(self) -> None:
        rows, letters = self.rows.writer, self.letters.writer
        if rows.keys:
            what = f"{rows.card.table} is keyed: an older message could replace a newer one of its key"
            raise NotPossible(what, hint="Put the letters right by hand, or send the messages again to the topic.")
        check_keys(letters.card.table, letters.keys)
        if self.export.table_uuid != letters.card.table_uuid:
            what = f"{self.export.path} is of {self.export.table}, not of {letters.card.table} as it is now"
            raise NotPossible(what, hint="Give the table whose letters were exported, or export again.")

    def _settled(self, target: Target) -> bool:
        """
        Waits until all that was published under this name is in the table; False where a stop was requested.
        """
        writer, waited = target.writer, Waited(self.clock)
        while True:
            writer.look()
            now = retry(lambda: resume(target.folder, writer.card, writer.name, millis(self.clock())), self.wait)
            if now.position != writer.position:
                raise Fenced(f"another run of {writer.name} has published, or a txlog of it was rejected")
            if retry(lambda: target.committed, self.wait) == writer.position:
                return True
            if waited() > self.patience:
                raise Backpressure(f"what {writer.name} has published is not committed yet: {writer.card.table}")
            if self.wait(_PAUSE_SECONDS) is True:
                return False

    def _begin(self) -> int | None:
        """The number of the next letter; None where a stop was requested. Deletes that are left are made up for."""
        name = replay_name(self.source)
        rows, letters = self.rows.writer.position, self.letters.writer.position
        done = chunk_of(rows, name)
        if done is not None and done.digest == self._digest:
            if rows != letters and not self._delete(done):
                return None
            return done.end
        if rows != letters:
            what = f"a replay of another file has not ended: {name} has made rows of letters that are not deleted"
            if done is None:
                what = f"the table does not have the rows of {name} whose letters are deleted"
            hint = (
                "Replay that file first, to its end. Where it is lost, or a table was rolled back: look which rows are "
                f"there, delete their letters, `bookkeeper forget {name}` on both tables, and export again."
            )
            raise NotPossible(what, hint=hint)
        if self.export.replayed.get(name) != (None if letters is None else letters.decode("ascii")):
            what = f"{self.export.path} is older than a replay: it may have letters that are rows already"
            raise NotPossible(what, hint="Export again: `bookkeeper rejected-rows --export FILE`.")
        return 0

    def _check_letters(self, first: int) -> None:
        """Raises NotPossible where one is of another source, named twice, or not settled."""
        copy = retry(self.rows.folder.marks, self.wait)
        marks = {} if copy is None or copy.table_uuid != self.rows.writer.card.table_uuid else copy.marks.writers
        passed = dict[str, int]()
        for slot, own in marks.items():
            for channel, text in own.offsets.items() if is_slot(self.source, slot) else ():
                passed[channel] = max(passed.get(channel, 0), end_of(text))
        seen = dict[str, set[int]]()
        for letter in self.export.letters():
            where = f"{letter.of}/{letter.number}, offset {letter.at} (channel {letter.channel})"
            if letter.source != self.source:
                hint = (
                    f"Export those of this one alone: `bookkeeper rejected-rows --source {self.source} --export FILE`."
                )
                raise NotPossible(f"{where} is a letter of {letter.source}, not of {self.source}", hint=hint)
            known = seen.setdefault(letter.channel, set())
            if letter.at in known:
                raise NotPossible(
                    f"{where} is twice in {self.export.path}", hint="`bookkeeper verify --deep` says why."
                )
            known.add(letter.at)
            if letter.at >= passed.get(letter.channel, 0):
                what = f"{where} is not settled: {self.source} may read and write it again"
                hint = "Let the copy go on until its rows behind it are committed, or leave the topic out: --topic."
                raise NotPossible(what, hint=hint)

    def _take(self, first: int, letters: Sequence[Letter]) -> bool:
        """A chunk; False where a stop was requested."""
        writer = self.rows.writer
        writer.roll()  # the table may have grown
        result = converted(self.reader(writer), letters, len(letters), is_newest=True)
        good = _rows_among(letters, result)
        self.bad += len(letters) - len(good)
        for bad in result.bad:
            self.reasons.setdefault(bad.reason, bad.offset)
        if not good:
            return True
        table = pa.concat_tables(result.tables)
        if table.num_rows != len(good):
            raise RuntimeError(f"{len(good)} letters gave {table.num_rows} rows")
        chunk = Chunk(self._digest, first, first + len(letters), frozenset(first + number for number in good))
        writer.write(table, position=chunk.position)
        writer.publish(position=chunk.position)
        return self._settled(self.rows) and self._delete(chunk, [letters[number] for number in good])

    def _delete(self, chunk: Chunk, letters: Sequence[Letter] | None = None) -> bool:
        """
        Deletes the letters whose rows are in the table; False where a stop was requested.
        """
        if letters is None:
            part = islice(self.export.letters(chunk.first), chunk.end - chunk.first)
            letters = [letter for number, letter in enumerate(part, chunk.first) if number in chunk.rows]
        writer = self.letters.writer
        keys = [(letter.source, letter.channel, letter.at) for letter in letters]
        columns = [*zip(*keys, strict=True)]
        table = pa.table([pa.array(values, kind) for values, kind in zip(columns, _KEYS.types, strict=True)], _KEYS)
        writer.delete(table, position=chunk.position)
        writer.publish(position=chunk.position)
        if not self._settled(self.letters):
            return False
        self.replayed += len(letters)
        return True


def _rows_among(letters: Sequence[Letter], result: Converted) -> list[int]:
    """The numbers of those of a chunk that are rows: what is behind a partition's stop was not looked at."""
    bad, stopped = {id(item.message): item.skipped for item in result.bad}, set[tuple[str, int]]()
    good = list[int]()
    for number, letter in enumerate(letters):
        if not bad.get(id(letter), True):
            stopped.add((letter.of, letter.number))
        if id(letter) not in bad and (letter.of, letter.number) not in stopped:
            good.append(number)
    return good


def _chunks(letters: Iterable[Letter], first: int) -> Iterator[tuple[int, list[Letter]]]:
    """The letters in chunks, each with the number of its first one."""
    chunk, size = list[Letter](), 0
    for letter in letters:
        if len(chunk) >= MOST_LETTERS or (chunk and size + len(letter) > MOST_BYTES):
            yield first, chunk
            first, chunk, size = first + len(chunk), [], 0
        chunk.append(letter)
        size += len(letter)
    if chunk:
        yield first, chunk
