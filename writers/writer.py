"""
The writer: rows in, data files and one txlog per publish out. Needs a txlog folder, no catalog.

After a publish with an unknown outcome a run publishes nothing more: the next run finds out what became of it.
A writer never deletes a file. Not for use by several threads at once, nor after a fork.
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
from writers.files.unpublished import UnpublishedFiles
from writers.files.write_spec import WriteSpec, check_same_table, may_share_txlog
from writers.metrics import WriterMetrics
from writers.publish.pending_monitor import PendingMonitor
from writers.publish.publisher import Publisher, resume_position
from writers.timing import AtOnce, Clock, Wait, at_once, millis, pause, retry, utc_now
from writers.values.cast import as_table, cast, unknown_columns

log = logging.getLogger(__name__)

#: how old a card may be when a txlog is published: it is read beside the uploads, which can take minutes
CARD_AGE = timedelta(seconds=1)


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
        at_once: AtOnce = at_once,
    ) -> None:
        self.name = check_writer(name)
        self.incarnation = new_incarnation(millis(clock()), random(10))
        self._folder, self._stores = folder, stores
        self._clock, self._wait, self._patience, self._at_once = clock, wait, patience, at_once
        self._process = os.getpid()
        try:
            card = folder.card()
        except Missing as exc:
            hint = "Give the folder that `bookkeeper init` printed. If it was moved away: put it back, make no new one."
            raise NotPossible(f"there is no card.json in {folder.store.url}", hint=hint) from exc
        self._use(card)
        self._files = UnpublishedFiles(f"{name}-{self.incarnation}", clock, wait, at_once)
        #: metrics of this run, for Prometheus
        self.figures = WriterMetrics(name)
        self._monitor = PendingMonitor(folder, clock, wait, at_once, self.figures)
        position = retry(lambda: resume_position(folder, self.card, name), wait)
        self._publisher = Publisher(folder, name, self.incarnation, position, wait)
        self._last_position: bytes | None = None  # of the rows written last
        self._has_positions = self._card_changed = self._broken = self._closed = False

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
        at_once: AtOnce = at_once,
    ) -> "Writer":
        """
        A new run of the writer `name`; `folder` is a URL or path. Every open is a new incarnation.

        `patience` bounds how long `publish` waits for a bookkeeper that is behind. What goes at once calls `clock`,
        `wait` and the stores from several threads. Raises ConfigInvalid, NotPossible (no table there),
        StorageUnavailable.
        """
        if isinstance(folder, str):
            folder = Folder(stores(folder if ":" in folder else os.path.abspath(folder)))
        return cls(
            folder, name, clock=clock, wait=wait, random=random, patience=patience, stores=stores, at_once=at_once
        )

    @property
    def card(self) -> Card:
        """The table's card that this writer writes by."""
        return self._spec.card

    @property
    def position(self) -> bytes | None:
        """The last published position, also of earlier runs of this name: the source continues from here."""
        return self._publisher.position

    @property
    def former_names(self) -> Mapping[str, int]:
        """Names that columns had while this run was going on, with their field ids: rows may still use them."""
        return self._spec.former

    @property
    def unpublished_rows(self) -> int:
        """Rows written since the last publish."""
        return self._files.rows()

    def due(self) -> bool:
        """Whether it is time to publish: by the card's roll-after or target file size, or because the card changed."""
        since = self._files.since
        if since is None:
            return False
        full = self._files.bytes() >= self.card.target_file_size
        return full or self._card_changed or self._to_roll(since)

    def write(self, rows: Any, position: bytes | None = None) -> None:
        """
        Take rows (a pyarrow Table or RecordBatch, or anything with an Arrow C stream); durable after `publish`.

        `position` is what the source has reached with them. Raises SchemaRefused and StorageUnavailable, and
        then has taken none of the rows.
        """
        self._check()
        table = as_table(rows)
        self._store_files()  # files that an outage left in memory must not pile up there
        open_since = self._files.open_since()
        if open_since is not None and self._to_roll(open_since):
            self.roll()
        table = self._cast(table)
        with self._broken_by_errors():
            finished = self._files.take(table, self._spec, self._publisher.sequence)
        self._last_position = position
        self._has_positions = self._has_positions or position is not None
        self.figures.unpublished = self._files.rows()
        if finished:
            self._store_finished()

    def roll(self) -> None:
        """
        Complete the open data files, make them durable, and read the card again; raises StorageUnavailable.
        """
        self._check()
        self._finish_files()
        card, _ = self._at_once([self._newest_card, self._store_files])
        self._adopt(card)

    def publish(self, position: bytes | None = None) -> TxlogName | None:
        """
        Publish everything written since the last publish in one txlog; None when there was nothing (a position
        then stays where it is). When it returns, the rows are durable and will be in the table exactly once.

        Raises Backpressure, StorageUnavailable and WrongFolder (the folder is gone: call it again once it is back),
        Fenced and UnknownOutcome (start a new run).
        """
        self._check()
        if not self._files.rows():
            return None
        position = self._last_position if position is None else position
        card = self._prepare_publish()
        files, facts = self._files.named(), self._facts("publish")
        name = self._publisher.publish(self._spec, files, position, millis(self._clock()))
        self._monitor.published(name, chained=position is not None)
        self._has_positions = self._has_positions or position is not None
        self._last_position = None
        self._files.clear()
        self.figures.published(files, self._clock())
        log.info("txlog published", extra={**facts, "txlog": str(name), "files": len(files)})
        self._adopt(card)
        return name

    def _prepare_publish(self) -> Card:
        """
        All that a txlog waits for: its data files durable and young, room in pending/, and the card of this table.

        The uploads, the listing and the card go at once. A crash here leaves data files that no txlog names.
        """
        if self._monitor.full(self.card.pending_limit):
            # Files that are finished before every wait would be many and small.
            self._monitor.look()
            self._monitor.admit(self.card.pending_limit, self._patience)
        self._finish_files()
        began = self._clock()
        card, _, _ = self._at_once([self._card_before_publish, self._monitor.look, self._store_files])
        self._monitor.admit(self.card.pending_limit, self._patience)
        # After everything that can take long: the orphan age counts to the publish, and the card may have changed.
        half = timedelta(milliseconds=card.orphan_age_ms / 2)
        self._files.renew(self._store, half, self._spec, self._publisher.sequence)
        if not timedelta(0) <= self._clock() - began < CARD_AGE:
            card = self._card_before_publish()
        return card

    def close(self) -> None:
        """End this run without publishing."""
        self._closed = True

    def __enter__(self) -> "Writer":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if kind is None and self._publisher.unknown is None and not (self._broken or self._closed):
                self._publish_rest()
        finally:
            self.close()

    def _publish_rest(self) -> None:
        if self._has_positions and self._last_position is None and self._files.rows():
            # Published without a position, these rows would come a second time from the source.
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
    def _broken_by_errors(self) -> Iterator[None]:
        try:
            yield
        except BaseException:
            self._broken = True  # it is not known which of the rows were taken
            raise

    def _to_roll(self, since: datetime) -> bool:
        return millis(self._clock()) - millis(since) >= self.card.roll_after_ms

    def _finish_files(self) -> None:
        with self._broken_by_errors():
            self._files.finish(self._spec, self._publisher.sequence)

    def _store_files(self) -> None:
        self._files.store(self._store)

    def _cast(self, table: pa.Table) -> pa.Table:
        if unknown_columns(table.column_names, self._spec.schema, self._spec.former):
            self.roll()  # the columns may have been added to the table meanwhile
        try:
            return cast(table, self._spec.schema, self._spec.arrow, self._spec.former)
        except SchemaRefused as exc:
            if not self._card_changed:
                raise
            hint = "The table has changed: publish() what was written so far, then write these rows again."
            raise SchemaRefused(str(exc), hint=hint) from exc

    def _store_finished(self) -> None:
        try:
            card, _ = self._at_once([self._newest_card, self._store_files])
            if card != self.card:
                self.roll()
        except StorageUnavailable as exc:
            # The rows are taken; the next write or publish tries again and raises before it takes more.
            log.warning("data file not stored yet", extra={**self._facts("keep"), "cause": str(exc)})

    def _card_before_publish(self) -> Card:
        """The card for a publish: where there is no card, no bookkeeper would find the txlog."""
        url = self._folder.store.url
        try:
            card = retry(self._folder.card, self._wait)
        except Missing as exc:
            message = f"{url} has no card.json any more; {self.unpublished_rows} rows are not published"
            hint = f"They are kept: put the folder back, then publish again. {NO_CARD}"
            raise WrongFolder(message, hint=hint) from exc
        check_same_table(self.card, card)
        return card

    def _newest_card(self) -> Card:
        try:
            return self._folder.card()
        except (StorageUnavailable, Missing) as exc:
            log.warning("card not readable", extra={**self._facts("card"), "cause": str(exc)})
            return self.card

    def _adopt(self, card: Card) -> None:
        """Write by `card` from now on; after the next publish where unpublished files cannot share a txlog with it."""
        if card == self.card:
            return
        check_same_table(self.card, card)
        self._card_changed = self._files.rows() > 0 and not may_share_txlog(self.card, card)
        if not self._card_changed:
            self._use(card, self._spec)
            log.info("card changed", extra=self._facts("adopt"))

    def _use(self, card: Card, before: WriteSpec | None = None) -> None:
        self._spec = WriteSpec.of(card, before)
        normal(card.data_path)
        self._store = self._stores(card.data_path)

    def _facts(self, action: str) -> dict[str, Any]:
        return {"action": action, "table": self.card.table, "writer": self.name, "rows": self._files.rows()}
