"""
One round over one table: take the lease, plan, rewrite group after group. The bookkeeper commits what is published.

A crash at any point leaves new files that nothing names, which the orphan sweep deletes by age, or a published rewrite,
which the bookkeeper commits or rejects. A round that begins knows nothing of the one before but what would be wasted:
which files failed, and what was published. Two compactors at once are safe by the bookkeeper's checks (of two rewrites
that replace one file the first wins); the lease only saves the work of the second.
"""

import logging
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any

from pyiceberg.catalog import Catalog
from pyiceberg.table import Table

from bookkeeper.config.compaction import OWN, engine_of
from bookkeeper.config.settings import Table as TableSettings
from bookkeeper.contract.table_log import TableLog
from bookkeeper.errors import BookkeeperError, Retry
from bookkeeper.leases.lease import Lease, lease_on
from reaper.compactor.choose_files import Candidate
from reaper.compactor.group import CannotRewrite
from reaper.compactor.rewrite_plan import MOST_PENDING, Look, Plan, Planner
from reaper.context import ReaperContext
from reaper.files.manifest_reader import ManifestReader
from reaper.files.storage import OpenStore, Pace, data_path

LEASE, RENEW = timedelta(seconds=60), timedelta(seconds=20)
#: a table that is not compacted here is looked at this often: its property may change
REST = timedelta(minutes=1)
#: files that pending rewrites replace: what the bookkeeper takes in one tick
MOST_PENDING_FILES = 20_000
#: after this a round ends and the next one plans anew: meanwhile tables change, and other tables wait
BUDGET = timedelta(seconds=30)
#: so many failures of storage or catalog, one after the other, end a round
MOST_RETRIES = 3


@dataclass(frozen=True, slots=True)
class Compacted:
    """
    What a round did: rewrites published, files they replace, new files, bytes read and written, groups that failed.

    And what it saw: rewrites pending; small files left alone, by reason; bytes that are to be rewritten and were not.
    `engine` says what rewrites the table's files; `busy`: another compactor is at work.
    """

    engine: str
    busy: bool = False
    rewrites: int = 0
    replaced_files: int = 0
    new_files: int = 0
    read_bytes: int = 0
    written_bytes: int = 0
    failed: int = 0
    pending: int = 0
    backlog_bytes: int = 0
    left_alone: Mapping[str, int] = field(default_factory=dict)

    @property
    def saw_table(self) -> bool:
        """Whether the round has planned the table."""
        return self.engine == OWN and not self.busy


@dataclass
class Compactor:
    """Compacts one table, round after round. `rewrite` is the worker's; `clock` gives the time, UTC."""

    settings: TableSettings
    rewrite: Callable[..., Any]
    clock: Callable[[], datetime]
    holder: str = "compactor"
    pace: Pace = field(default_factory=Pace)
    open_store: OpenStore | None = None
    planner: Planner = field(default_factory=Planner)
    #: and the place of the table that it was opened for
    _context: tuple[ReaperContext, object] | None = None
    _held: "_Held | None" = None
    #: until when a table that does not want it is not looked at again
    _rests: tuple[datetime, Compacted] | None = None

    @property
    def log(self) -> TableLog:
        """The logger of this table's compaction."""
        return TableLog(logging.getLogger(__name__), self.settings.name or self.settings.identifier, "compact")

    def round(self, catalog: Catalog, now: datetime, stopped: Callable[[], bool] = lambda: False) -> Compacted:
        """
        Rewrites what the policy wants rewritten, for about BUDGET; ends between two groups once `stopped`.

        Keeps the lease for the next round: `close` gives it back. Raises Retry and Halt; what was published until
        then is pending.
        """
        if self._rests is not None and now < self._rests[0]:
            return self._rests[1]
        context, look = self._look(catalog, now)
        engine = engine_of(self.settings.compaction, look.table.metadata.properties)
        if engine != OWN:
            self._rests = now + REST, Compacted(engine)
            return self._rests[1]
        if self._held is None:
            self._held = _Held(lease_on(context.folder, "reaper/compactor", self.holder, LEASE), self.clock)
        self._held.stopped = stopped
        if not self._held.hold(now):
            return Compacted(engine, busy=True)
        return self._run(context, self.planner.plan(context, look, now), now, self._held)

    def plan(self, catalog: Catalog, now: datetime) -> tuple[str, Plan]:
        """
        What a round would rewrite now, without doing it, and the engine that would; raises what `round` raises.
        """
        context, look = self._look(catalog, now)
        engine = engine_of(self.settings.compaction, look.table.metadata.properties)
        return engine, self.planner.plan(context, look, now)

    def close(self) -> None:
        """Gives the lease back; while storage is down it ends by itself."""
        if self._held is not None:
            with suppress(Retry):
                self._held.lease.release()
            self._held = None

    def _look(self, catalog: Catalog, now: datetime) -> tuple[ReaperContext, Look]:
        """The table's surroundings, opened once and anew after an error or when the table has moved, and a look."""
        opened, self._context = self._context, None
        look = self.planner.look(opened[0]) if opened else None
        if opened is None or look is None or _place(look.table) != opened[1]:
            context = ReaperContext.of(self.settings, catalog, self.open_store, now, pace=self.pace)
            look = self.planner.look(context)
            opened = context, _place(look.table)
        self._context, context = opened, opened[0]
        # A reader remembers every manifest list that it read.
        return replace(context, reader=ManifestReader(look.table.io, context.storage.read_together)), look

    def _run(self, context: ReaperContext, plan: Plan, now: datetime, held: "_Held") -> Compacted:
        done, files, left, retries = _seen(plan), plan.pending_files, plan.bytes, 0
        began = self.clock()
        for candidate in plan.candidates:
            room = done.pending < MOST_PENDING and files + len(candidate.files) <= MOST_PENDING_FILES
            if not room or held.is_over() or self.clock() - began > BUDGET:
                break
            try:
                done = self._rewrite(context, plan, candidate, held, done)
            except Retry as error:
                if held.is_over():
                    break
                retries += 1
                done = self._failed(candidate, error, done)
                if retries == MOST_RETRIES:
                    raise
                continue
            except Exception as error:  # noqa: BLE001 - one group's failure costs itself only
                done = self._failed(candidate, error, done)
                left -= candidate.bytes
                continue
            files, left, retries = files + len(candidate.files), left - candidate.bytes, 0
        done = replace(done, backlog_bytes=left)
        if done.rewrites:
            about = {name: getattr(done, name) for name in ("rewrites", "replaced_files", "new_files")}
            size = {"read_bytes": done.read_bytes, "written_bytes": done.written_bytes}
            self.log.info("rewrites published", **about, **size, pending=done.pending)
        return done

    def _rewrite(
        self, context: ReaperContext, plan: Plan, candidate: Candidate, held: "_Held", done: Compacted
    ) -> Compacted:
        found = self.rewrite(
            context,
            plan.table,
            plan.base,
            candidate.group(),
            now=self.clock(),
            bytes_per_second=self.settings.compaction.bytes_per_second,
            stopped=held.is_over,
        )
        self.planner.published[found.id] = [file.path for file in candidate.files]
        return replace(
            done,
            rewrites=done.rewrites + 1,
            pending=done.pending + 1,
            replaced_files=done.replaced_files + len(candidate.files),
            new_files=done.new_files + found.new_files,
            read_bytes=done.read_bytes + found.read_bytes,
            written_bytes=done.written_bytes + found.new_bytes,
        )

    def _failed(self, candidate: Candidate, error: Exception, done: Compacted) -> Compacted:
        cause = f"{type(error).__name__}: {error}"
        culprit = error.path if isinstance(error, CannotRewrite) else None
        self.planner.set_aside.add([file.path for file in candidate.files], cause, self.clock(), culprit)
        about = {"files": len(candidate.files), "first": candidate.files[0].path, "cause": cause}
        if isinstance(error, BookkeeperError):
            self.log.warning("files are left alone for a while", **about)
        else:
            self.log.error("a defect of the compactor", error, **about)
        return replace(done, failed=done.failed + 1)


def _seen(plan: Plan) -> Compacted:
    return Compacted(OWN, pending=len(plan.pending), left_alone=plan.left_alone)


def _place(table: Table) -> tuple[object, ...]:
    return table.metadata.table_uuid, table.metadata.location, data_path(table.metadata)


@dataclass
class _Held:
    """Renews the lease while a group is rewritten, which may take minutes."""

    lease: Lease
    clock: Callable[[], datetime]
    stopped: Callable[[], bool] = lambda: False
    renewed: datetime | None = None

    def hold(self, now: datetime) -> bool:
        """Whether this compactor has the lease; asks for it when it was asked for RENEW ago."""
        if self.renewed is None or not timedelta(0) <= now - self.renewed < RENEW:
            self.renewed = now if self.lease.hold(now) else None
        return self.renewed is not None

    def is_over(self) -> bool:
        """Whether the round is to end: a stop was requested, or another compactor has the lease."""
        return self.stopped() or not self.hold(self.clock())
