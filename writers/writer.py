"""
The writer: rows in, data files and one txlog per publish out. Needs a txlog folder, no catalog.

Refuses to guess: after a publish whose outcome is unknown it publishes nothing more, and the next run finds out.
It never deletes a file. Not for use by several threads at once, nor after a fork.
"""

import logging
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime, timedelta
from types import TracebackType
from typing import Any

import pyarrow as pa  # type: ignore[import-untyped]

from bookkeeper.core.card import Card
from bookkeeper.core.folder import NO_CARD, Folder
from bookkeeper.core.names import TxlogName, check_writer, new_incarnation
from bookkeeper.errors import Missing, NotPossible, SchemaRefused, StorageUnavailable, WrongFolder
from bookkeeper.stores.locations import normal
from bookkeeper.stores.open import open_store
from bookkeeper.stores.store import Store
from writers.defaults import millis, pause, utc_now
from writers.files.unpublished import Files
from writers.files.write_spec import WriteSpec
from writers.metrics import WriterMetrics
from writers.publish.chain import end_of_chain
from writers.publish.pending_monitor import PendingMonitor
from writers.publish.publisher import Publisher
from writers.retry import Wait, retry
from writers.schema_change import check_same_table, mixes
from writers.values.cast import as_table, cast, unknown_columns

log = logging.getLogger(__name__)

Clock = Callable[[], datetime]


class Writer:
    """
    One run of a writer: `with Writer.open(folder, name="ingest-7") as w: w.write(rows); w.publish(position=b"42")`.

    Leaving the `with` block publishes what is left; leaving it by an exception publishes nothing.
    """

    def __init__(
        self,
        folder: Folder,
        name: str,
        *,
        clock: Clock,
        wait: Wait,
        random: Callable[[int], bytes],
        patience: timedelta,
        stores: Callable[[str], Store],
    ) -> None:
        self.name = check_writer(name)
        self.incarnation = new_incarnation(millis(clock()), random(10))
        self._folder, self._stores = folder, stores
        self._clock, self._wait, self._patience = clock, wait, patience
        self._process = os.getpid()
        self._shape = WriteSpec.of(_first_card(folder))
        self._store = stores(_checked(self.card.data_path))
        self._files = Files(f"{name}-{self.incarnation}", clock, wait)
        #: what it did so far, for Prometheus
        self.figures = WriterMetrics(name)
        self._watch = PendingMonitor(folder, clock, wait, self.figures)
        position = retry(lambda: end_of_chain(folder, self.card, name), wait)
        self._publisher = Publisher(folder, name, self.incarnation, position, wait)
        self._reached: bytes | None = None
        self._chained = self._stale = self._broken = self._closed = False

    @classmethod
    def open(
        cls,
        folder: str | Folder,
        name: str,
        *,
        clock: Clock = utc_now,
        wait: Wait = pause,
        random: Callable[[int], bytes] = os.urandom,
        patience: timedelta = timedelta(minutes=5),
        stores: Callable[[str], Store] = open_store,
    ) -> "Writer":
        """
        A new run of the writer `name`; `folder` is a URL or path. Every open is a new incarnation.

        `patience` bounds how long `publish` waits for a bookkeeper that is behind. Raises ConfigInvalid,
        NotPossible (no table there), StorageUnavailable.
        """
        found = folder if isinstance(folder, Folder) else Folder(stores(_absolute(folder)))
        return cls(found, name, clock=clock, wait=wait, random=random, patience=patience, stores=stores)

    @property
    def card(self) -> Card:
        """The table as this writer sees it now."""
        return self._shape.card

    @property
    def position(self) -> bytes | None:
        """The end of what is published with a position, by earlier runs of this name too: continue from here."""
        return self._publisher.position

    @property
    def former_names(self) -> Mapping[str, int]:
        """Names that columns had while this run was going on, with their field ids: rows may still use them."""
        return self._shape.former

    @property
    def unpublished_rows(self) -> int:
        """Rows written since the last publish."""
        return self._files.rows()

    def due(self) -> bool:
        """Whether it is time to publish: by the card's roll-after or target file size, or because the card changed."""
        since = self._files.since
        if since is None:
            return False
        old = millis(self._clock()) - millis(since) >= self.card.roll_after_ms
        return old or self._stale or self._files.bytes() >= self.card.target_file_size

    def write(self, rows: Any, position: bytes | None = None) -> None:
        """
        Take rows (a pyarrow Table or RecordBatch, or anything with an Arrow C stream); durable after `publish`.

        `position` is what the source has reached with them. Raises SchemaRefused and StorageUnavailable, and
        then has taken none of the rows.
        """
        self._check()
        table = as_table(rows)
        self._files.store(self._store)  # what an outage left behind must not pile up in memory
        self._roll_if_old()
        fitted = self._fitted(table)
        with self._taking():
            rolled = self._files.take(fitted, self._shape, self._publisher.sequence)
        self._reached = position
        self._chained = self._chained or position is not None
        self.figures.unpublished = self._files.rows()
        if rolled:
            self._settle()

    def roll(self) -> None:
        """
        Complete the open data files, make them durable, and read the card again; raises StorageUnavailable.
        """
        self._check()
        with self._taking():
            self._files.finish(self._shape, self._publisher.sequence)
        self._files.store(self._store)
        self._adopt(self._card_now())

    def publish(self, position: bytes | None = None) -> TxlogName | None:
        """
        Name everything written since the last publish in one txlog; None when there was nothing (a position
        then stays where it is). When it returns, the rows are durable and will be in the table exactly once.

        Raises Backpressure, StorageUnavailable and WrongFolder (the folder is gone: call it again once it is back),
        Fenced and UnknownOutcome (start a new run).
        """
        self._check()
        if not self._files.rows():
            return None
        position = self._reached if position is None else position
        self._watch.admit(self.card.pending_limit, self._patience)
        with self._taking():
            self._files.finish(self._shape, self._publisher.sequence)
        self._files.store(self._store)
        half = timedelta(milliseconds=self.card.orphan_age_ms / 2)
        self._files.renew(self._store, half, self._shape, self._publisher.sequence)
        return self._send(position)

    def close(self) -> None:
        """Let go of everything without publishing."""
        self._closed = True

    def __enter__(self) -> "Writer":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if kind is None and self._publisher.unsure is None and not (self._broken or self._closed):
                self._publish_rest()
        finally:
            self.close()

    def _publish_rest(self) -> None:
        if self._chained and self._reached is None and self._files.rows():
            # Published without their position, they would come a second time from the source.
            log.warning("rows behind the last position not published", extra=self._facts("leave"))
            return
        self.publish()

    def _check(self) -> None:
        if os.getpid() != self._process:
            hint = "Open a Writer in every process; each is a run of its own."
            raise NotPossible(f"this writer was opened by process {self._process}", hint=hint)
        self._publisher.check()
        if self._closed or self._broken:
            why = "was closed" if self._closed else "failed half-way through a write"
            raise NotPossible(f"this run of {self.name} {why}", hint="Open a new Writer.")

    @contextmanager
    def _taking(self) -> Iterator[None]:
        try:
            yield
        except BaseException:
            self._broken = True  # nobody can say which rows were taken
            raise

    def _roll_if_old(self) -> None:
        since = self._files.open_since()
        if since is not None and millis(self._clock()) - millis(since) >= self.card.roll_after_ms:
            self.roll()

    def _fitted(self, table: pa.Table) -> pa.Table:
        if unknown_columns(table.column_names, self._shape.schema, self._shape.former):
            self.roll()  # somebody may have added them
        try:
            return cast(table, self._shape.schema, self._shape.arrow, self._shape.former)
        except SchemaRefused as exc:
            if not self._stale:
                raise
            hint = "The table has changed: publish() what was written so far, then write these rows again."
            raise SchemaRefused(str(exc), hint=hint) from exc

    def _settle(self) -> None:
        try:
            self._files.store(self._store)
            if self._card_now() != self.card:
                self.roll()
        except StorageUnavailable as exc:
            # The rows are taken; the next write or publish tries again and raises before it takes more.
            log.warning("data file not stored yet", extra={**self._facts("keep"), "cause": str(exc)})

    def _card_there(self) -> Card:
        """The card, right before a publish: without it there is no folder, and nobody would find the txlog."""
        try:
            card = retry(self._folder.card, self._wait)
        except Missing as exc:
            said = f"{self._folder.store.url} has no card.json any more; {self.unpublished_rows} rows are not published"
            hint = f"They are kept: put the folder back, then publish again. {NO_CARD}"
            raise WrongFolder(said, hint=hint) from exc
        check_same_table(self.card, card)
        return card

    def _card_now(self) -> Card:
        try:
            return self._folder.card()
        except (StorageUnavailable, Missing) as exc:
            log.warning("card not readable", extra={**self._facts("card"), "cause": str(exc)})
            return self.card

    def _adopt(self, card: Card) -> None:
        if card == self.card:
            return
        check_same_table(self.card, card)
        self._stale = self._files.rows() > 0 and not mixes(self.card, card)
        if not self._stale:
            self._shape = WriteSpec.of(card, self._shape.names())
            self._store = self._stores(_checked(card.data_path))
            log.info("card changed", extra=self._facts("adopt"))

    def _send(self, position: bytes | None) -> TxlogName:
        card, files, facts = self._card_there(), self._files.named(), self._facts("publish")
        name = self._publisher.send(self._shape, files, position, millis(self._clock()))
        self._watch.published(name, chained=position is not None)
        self._chained = self._chained or position is not None
        self._reached = None
        self._files.forget()
        self.figures.published(files, self._clock())
        log.info("txlog published", extra={**facts, "txlog": str(name), "files": len(files)})
        self._adopt(card)
        return name

    def _facts(self, action: str) -> dict[str, Any]:
        return {"action": action, "table": self.card.table, "writer": self.name, "rows": self._files.rows()}


def _checked(location: str) -> str:
    normal(location)
    return location


def _first_card(folder: Folder) -> Card:
    try:
        return folder.card()
    except Missing as exc:
        hint = "Give the folder that `bookkeeper init` printed. If it was moved away: put it back, do not make another."
        raise NotPossible(f"there is no card.json in {folder.store.url}", hint=hint) from exc


def _absolute(folder: str) -> str:
    """A path on this machine's disk may be relative; a URL says it all."""
    return folder if ":" in folder else os.path.abspath(folder)
