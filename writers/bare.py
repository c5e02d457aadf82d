"""
Bare files: Parquet files that another system drops without a txlog become rows, once for each (location, etag).

Events arrive at least once, late and unordered. The first process that takes a file stores a note with the name of
the file's txlog (`bare/` in the folder, one exclusive create); every later one uses the same name, so the bookkeeper's
marks recognise the txlog. A crash before the publish leaves data files that no txlog names, which the orphan sweep
deletes; the event was not acknowledged then and arrives again. Marks and notes are kept for a limited time, so an
object older than `memory` is refused: `memory` must be longer than the source repeats its events, and shorter than the
table's marks-keep.

The Writer reads the file, checks it against the schema and writes its rows to data files of the table: the original is
only read, and may be overwritten, moved or deleted once its event was acknowledged.
"""

import hashlib
import json
import logging
import os
import secrets
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from io import BytesIO
from typing import Any

import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.parquet as pq  # type: ignore[import-untyped]

from bookkeeper.config.units import from_epoch_ms
from bookkeeper.contract.names import TxlogName, new_incarnation
from bookkeeper.contract.txlog_folder import REJECTED, Folder
from bookkeeper.errors import AlreadyExists, CannotRead, Fenced, Missing, NotPossible, SchemaRefused, Unfit
from bookkeeper.format import json_text
from bookkeeper.format.batch_size import batch_rows
from bookkeeper.stores.events import places
from bookkeeper.stores.locations import join
from bookkeeper.stores.open import open_store
from bookkeeper.stores.store import Store
from writers.files.rolling_writer import RollingWriter
from writers.runtime import Runtime
from writers.timing import Clock, Wait, millis, pause, utc_now
from writers.writer import Writer

log = logging.getLogger(__name__)

NOTES = "bare/"
NOTE_BYTES = 2**16
MEMORY = timedelta(hours=20)
PUBLISHED, KNOWN, GONE = "published", "known", "gone"


class TooOld(NotPossible):
    """It is no longer known whether this file was taken already."""

    hint = "If `bookkeeper verify` and a query show that its rows are not in the table, load it with `writer lines`."


@dataclass(frozen=True, slots=True)
class Note:
    """The stored note on one file, which determines the name of its txlog."""

    created_ms: int
    random: bytes

    def name(self, writer: str) -> TxlogName:
        """The only txlog that this file ever gets."""
        return TxlogName(writer, new_incarnation(self.created_ms, self.random), 1)


class Bare:
    """Takes bare files into one table; `folder` is its txlog folder. Several may take the same files at once."""

    def __init__(
        self,
        folder: str | Folder,
        name: str = "bare",
        *,
        stores: Callable[[str], Store] = open_store,
        clock: Clock = utc_now,
        wait: Wait = pause,
        memory: timedelta = MEMORY,
    ) -> None:
        self.folder = folder if isinstance(folder, Folder) else Folder(stores(folder))
        self.name, self.stores, self.clock, self.wait, self.memory = name, stores, clock, wait, memory

    def take(self, root: str, key: str) -> str:
        """
        Publish the object's rows: PUBLISHED, KNOWN (published before) or GONE (no such object).

        When it returns, the event may be acknowledged. When it raises TooOld, SchemaRefused, Backpressure or
        StorageUnavailable, the event has to arrive again.
        """
        source, location = self.stores(root), join(root, key)
        try:
            data, tag = source.read_tagged(key)
            modified = source.modified(key)
        except Missing:
            log.warning("an announced file is gone", extra={"action": "bare", "file": location})
            return GONE
        except Unfit as exc:
            raise SchemaRefused(str(exc)) from exc
        if self.clock() - modified > self.memory:
            raise TooOld(f"{location} was written {modified.isoformat()}, longer than {self.memory} ago")
        note = self._note(location, tag, modified)
        if self._is_known(note):
            return KNOWN
        return self._publish(note, _rows(data, location))

    def _note(self, location: str, tag: str, modified: datetime) -> Note:
        """The note on this version of the object; the first one that was stored counts."""
        key = NOTES + hashlib.sha256(f"{location}\0{tag}".encode()).hexdigest()[:40]
        wanted: dict[str, Any] = {"created-ms": millis(modified), "random": os.urandom(10).hex(), "file": location}
        try:
            self.folder.store.create(key, json.dumps(wanted).encode())
        except AlreadyExists:
            wanted = json_text.loads(self.folder.store.read(key, NOTE_BYTES))
        return Note(wanted["created-ms"], bytes.fromhex(wanted["random"]))

    def _is_known(self, note: Note) -> bool:
        # Only to save work. Pending first, marks second: a txlog that leaves pending/ is in the marks by then.
        name = note.name(self.name)
        if self.folder.exists(name) or self.folder.exists(name, REJECTED):
            return True
        copy = self.folder.marks()
        return copy is not None and copy.marks.is_in(name)

    def _publish(self, note: Note, rows: Iterator[pa.Table]) -> str:
        run = _Run(
            self.folder,
            self.name,
            Runtime(self.stores, lambda: from_epoch_ms(note.created_ms), self.wait, timedelta(0)),
            random=lambda size: note.random[:size],
        )
        try:
            for table in rows:
                run.write(table)
            run.publish()
        except Fenced:
            return KNOWN  # another process took it at the same time
        finally:
            run.close()
        return PUBLISHED

    def sweep(self) -> int:
        """Delete notes that are no longer needed; returns how many."""
        listed = [*self.folder.store.list(NOTES)]
        # By the newest one, too, which the storage dated: by a clock that is ahead each note is old.
        newest = max((item.modified for item in listed), default=self.clock())
        before = min(self.clock(), newest) - 2 * self.memory
        return self.folder.store.delete_many([item.key for item in listed if item.modified < before])


def _rows(data: bytes, location: str) -> Iterator[pa.Table]:
    """The rows of a Parquet file, and its columns; no table is large, whatever a dictionary unpacks to."""
    try:
        with pq.ParquetFile(BytesIO(data)) as file:
            yield file.schema_arrow.empty_table()
            for batch in file.iter_batches(batch_rows(data, file.metadata)):
                yield pa.Table.from_batches([batch])
    except (pa.ArrowException, OSError, CannotRead) as exc:
        raise SchemaRefused(f"{location} is no Parquet file: {str(exc)[:200]}") from exc


class _Run(Writer):
    """
    A run whose incarnation is given and may be used twice: its data files have names of their own.

    Its clock stands still, so the card that it reads beside its uploads counts however long they take.
    """

    def __init__(self, folder: Folder, name: str, runtime: Runtime, **given: Any) -> None:
        super().__init__(folder, name, runtime, **given)
        if self.card.keyed is not None:
            # Its incarnation must be the note's, and on a keyed table it must be later than every other run's.
            raise NotPossible(f"{self.card.table} has keys: bare files only go into append-only tables")
        stem, attempt = f"{name}-{self.incarnation}", f"{secrets.token_hex(6)}-"
        self._files = RollingWriter(stem, self._clock, self._wait, self._at_once, attempt)


def handle(event: Any, bare: Bare, root_of: Callable[[str], str]) -> dict[str, Any]:
    """
    A function for events: of S3, SNS, EventBridge, Event Grid, or an SQS batch of them; `root_of` makes a bucket's or
    container's URL.

    Returns SQS's `batchItemFailures`: the messages that have to arrive again. For an event that is no batch of
    messages, errors are raised.
    """
    records = event.get("Records", ()) if isinstance(event, Mapping) else ()
    if not any("body" in record for record in records):
        _take_all(json.dumps(event), bare, root_of)
        return {"batchItemFailures": []}
    failed = []
    for record in records:
        try:
            _take_all(record["body"], bare, root_of)
        except Exception as exc:  # noqa: BLE001 - a bad message must not fail the others
            log.warning("bare file not taken", extra={"action": "bare", "cause": f"{type(exc).__name__}: {exc}"})
            failed.append({"itemIdentifier": record["messageId"]})
    return {"batchItemFailures": failed}


def _take_all(message: str, bare: Bare, root_of: Callable[[str], str]) -> None:
    for bucket, key in places(message):
        if key.endswith(".parquet"):
            bare.take(root_of(bucket), key)
