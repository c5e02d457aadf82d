"""
Everything that an alert is for, each on a table of its own: how it comes about, and how it is mended.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any

from bookkeeper.config.settings import Reaper, Retention, Service
from bookkeeper.contract.marks import PROPERTY, Mark, WriterMarks
from bookkeeper.contract.names import TxlogName, new_incarnation
from bookkeeper.contract.rewrite import key_of
from bookkeeper.errors import CatalogUnavailable, CommitConflict, StorageUnavailable
from bookkeeper.history.registry import Registry, spark
from bookkeeper.serve.loop import TableLoop
from reaper.compactor.compactor import Compacted
from reaper.metrics import Metrics
from reaper.result import Reaped
from reaper.run import reap
from tests.support.checkpoints import Query, offset
from tests.support.compactor import encoded, live, published
from tests.support.faults import Faults
from tests.support.folds import damaged
from tests.support.forge import with_header
from tests.support.keyed import KEYED, Upserts
from tests.support.lake import Lake, Writes
from tests.support.watched import Watched


@dataclass
class Stage:
    """One table, and what a scene may use to break it."""

    watched: Watched
    table: str
    reaper: Metrics
    writer: Any = field(init=False)
    query: Query = field(init=False)
    broken: bool = False
    count: int = 0
    kept: Any = None

    def __post_init__(self) -> None:
        self.writer = Upserts(self.lake) if self.lake.settings.key else Writes(self.lake)
        self.query = Query(self.lake.root / "checkpoint")

    @property
    def lake(self) -> Lake:
        return self.watched.lakes[self.table]

    @property
    def faults(self) -> Faults:
        return self.watched.faults[self.table]

    @property
    def slot(self) -> TableLoop:
        return next(slot for slot in self.watched.slots if slot.table == self.table)

    def publish(self, times: int = 1, **about: Any) -> TxlogName:
        for _ in range(times):
            self.count += 1
            name = self.writer.publish(f"{self.table}-{self.count}", **about)
        return name

    def head(self) -> int:
        view = self.slot.book.view if self.slot.book else None
        metadata = view.metadata if view else self.lake.table().metadata
        assert metadata.current_snapshot_id is not None
        return int(metadata.current_snapshot_id)

    def register(self) -> None:
        Registry(self.lake.folder.store).add(spark("live", self.query.url, self.watched.clock.now, by="command"))
        self.query.begin(offset(self.head(), 99)).done(offset(self.head(), 99))

    def catch_up(self) -> None:
        self.query.done(offset(self.head(), 99))

    def unregister(self) -> None:
        Registry(self.lake.folder.store).remove("live")

    def record(self, writers: Any) -> None:
        """Other marks, in a commit of their own."""
        book = self.slot.book
        assert book is not None and book.view is not None
        book.loaded.view = book.ledger.record(book.view, replace(book.view.marks, writers=writers), "test")

    def reap(self) -> None:
        run = lambda now: reap(self.lake.catalog, self.lake.settings, now, open_store=self.lake.store)  # noqa: E731
        self.reaper.run(self.table, run, self.watched.clock.now, self.watched.clock)


Act = Callable[[Stage], Any]


def nothing(stage: Stage) -> None:
    """As it was."""


@dataclass(frozen=True)
class Scene:
    """A table, what is done to it, and the alerts (with their further labels) that shall fire for it in the end."""

    table: str
    alerts: tuple[tuple[str, dict[str, str]], ...]
    cause: Act = nothing
    cure: Act = nothing
    #: the rest of the cure, some minutes later
    later: Act = nothing
    #: done in each minute while it is broken, before the turn
    lasting: Act = nothing
    #: done in each minute while it is broken, most of a minute before the turn
    early: Act = nothing
    settings: dict[str, Any] = field(default_factory=dict)
    reaped: bool = True
    reads: bool = True
    #: seconds after which the table is loaded again, and minutes by which the cause comes later: to save time
    reload: float = 500
    delay: int = 0
    #: minutes after the cause at which it fires; those that do not last are looked at early
    after: int = 29


def alerts(*names: str, **labels: str) -> tuple[tuple[str, dict[str, str]], ...]:
    """
    These alerts for the scene's table.
    """
    return tuple((name, labels) for name in names)


def _halt(stage: Stage) -> None:
    table = stage.lake.table()
    stage.kept = table.metadata.properties[PROPERTY]
    with table.transaction() as change:
        change.remove_properties(PROPERTY)


def _unhalt(stage: Stage) -> None:
    with stage.lake.table().transaction() as change:
        change.set_properties({PROPERTY: stage.kept})


def _unreadable_txlogs(count: int) -> Act:
    def act(stage: Stage) -> None:
        stage.faults.on("read folder/pending", "before", StorageUnavailable)
        stage.publish(count)

    return act


def _torn(stage: Stage) -> None:
    name, data = stage.writer.encoded([stage.writer.file(["torn"])])
    stage.kept = name
    stage.lake.folder.publish(name, data[: len(data) // 2])


def _newer(stage: Stage) -> None:
    name, data = with_header(stage.writer, "newer", bookkeeper__version=b"99")
    assert isinstance(name, TxlogName)
    stage.kept = name
    stage.lake.folder.publish(name, data)


def _taken_away(stage: Stage) -> None:
    gone = stage.publish()
    stage.publish()
    stage.lake.folder.delete([gone])


def _old_rows(stage: Stage) -> None:
    for _ in range(5):
        stage.publish(at=stage.watched.clock.now - timedelta(days=2))


def _many_writers(stage: Stage) -> None:
    book = stage.slot.book
    assert book is not None and book.view is not None
    stage.kept = book.view.marks.writers
    runs = [new_incarnation(number, number.to_bytes(10, "big")) for number in range(1, 3000)]
    seen = int(stage.watched.clock.now.timestamp() * 1000)
    many = {
        f"deployment-{number}-of-many": WriterMarks(incarnations={run: Mark(1, seen_ms=seen)})
        for number, run in enumerate(runs)
    }
    stage.record({**stage.kept, **many})


def _many_snapshots(stage: Stage) -> None:
    book = stage.slot.book
    assert book is not None and book.view is not None
    for _ in range(60):
        stage.record(book.view.marks.writers)


def _swollen(stage: Stage) -> None:
    with stage.lake.table().transaction() as change:
        change.set_properties({"swollen": "x" * 2**22})


def _shrunk(stage: Stage) -> None:
    with stage.lake.table().transaction() as change:
        change.remove_properties("swollen")


def _newer_rewrite(stage: Stage) -> None:
    rewrite_id, data = encoded(stage.lake, live(stage.lake))
    stage.kept = key_of(rewrite_id)
    stage.lake.put(stage.kept, data.replace(b"bookkeeper.version\x021", b"bookkeeper.version\x022"))


def _rewritten_in_vain(stage: Stage) -> None:
    published(stage.lake, live(stage.lake), record_count=99)


def _more_than_is_rewritten(stage: Stage) -> None:
    stage.publish(2)
    if stage.count % 6 == 1:
        published(stage.lake, live(stage.lake)[-2:])


def _all_rewritten(stage: Stage) -> None:
    """Each partition into one file: a rewrite is of one, and the minutes may go past midnight."""
    files = live(stage.lake)
    for partition in {item.file.partition for item in files}:
        published(stage.lake, [item for item in files if item.file.partition == partition])


def _unfoldable(stage: Stage) -> None:
    stage.kept = damaged(stage.lake)
    stage.publish()


def _compacted(stage: Stage, left: int) -> None:
    stage.reaper.note_compacted(stage.table, Compacted("own", backlog_bytes=left), stage.watched.clock.now)


def _lost_place(stage: Stage) -> None:
    stage.query.done(offset(4711))


_STUCK: dict[str, Any] = {"cause": lambda stage: stage.publish(), "cure": Stage.catch_up, "reads": False}

SCENES = (
    Scene("fine", ()),
    Scene(
        "catalog-down",
        alerts("BookkeeperNoSuccess"),
        lambda stage: stage.faults.on("load_table", "before", CatalogUnavailable),
        lambda stage: stage.faults.clear(),
        lambda stage: stage.publish() if stage.count < 5 else None,
        reload=10,
    ),
    Scene("halted", alerts("BookkeeperTableHalted"), _halt, _unhalt, reload=10),
    Scene("poisoned", alerts("BookkeeperBehind"), _unreadable_txlogs(1), lambda stage: stage.faults.clear()),
    Scene(
        "full",
        alerts("BookkeeperBehind", "BookkeeperWritersWait"),
        _unreadable_txlogs(3),
        lambda stage: stage.faults.clear(),
        settings={"pending_limit": 3},
    ),
    Scene(
        "torn",
        alerts("BookkeeperTxlogRejected"),
        _torn,
        lambda stage: stage.lake.folder.discard_rejected([stage.kept]),
    ),
    Scene(
        "serviced",
        alerts("BookkeeperTxlogRejected", "BookkeeperFilesAtRisk"),
        _torn,
        lambda stage: stage.lake.folder.discard_rejected([stage.kept]),
        settings={
            "maintained_by": "catalog",
            "folder": "memory://serviced",
            "service": Service(orphan_age=timedelta(minutes=30)),
        },
    ),
    Scene(
        "newer",
        alerts("BookkeeperTxlogHeld", "BookkeeperBehind"),
        _newer,
        lambda stage: stage.lake.folder.delete([stage.kept]),
    ),
    Scene("gone", alerts("BookkeeperTxlogGone"), _taken_away, after=5),
    Scene(
        "raced",
        alerts("BookkeeperConflicts"),
        cure=lambda stage: stage.faults.clear(),
        lasting=lambda stage: (
            stage.publish(),
            stage.faults.on("commit_table", "before", CommitConflict, times=4),
        ),
    ),
    Scene("slow", alerts("BookkeeperSlow"), early=lambda stage: stage.publish()),
    Scene(
        "braked",
        alerts("BookkeeperRetentionHeldBack"),
        _old_rows,
        lambda stage: stage.publish(10),
        settings={"retention": Retention(keep=timedelta(days=1))},
    ),
    Scene(
        "rewrite-waits",
        alerts("BookkeeperRewritesWait"),
        _newer_rewrite,
        lambda stage: stage.lake.folder.store.delete_many([stage.kept]),
    ),
    Scene("rewritten-in-vain", alerts("BookkeeperRewritesRejected"), lasting=_rewritten_in_vain),
    Scene(
        "rewriting-behind",
        alerts("BookkeeperRewritesBehind"),
        cure=_all_rewritten,
        lasting=_more_than_is_rewritten,
    ),
    Scene(
        "compaction-behind",
        alerts("BookkeeperRewritesBehind"),
        cure=lambda stage: _compacted(stage, 0),
        lasting=lambda stage: _compacted(stage, 10**9),
    ),
    Scene(
        "compaction-catches-up",
        (),
        cure=lambda stage: _compacted(stage, 0),
        lasting=lambda stage: _compacted(stage, 10**9 - int(stage.watched.monotonic())),
    ),
    Scene("unfolded", alerts("BookkeeperFoldsBehind"), _unfoldable, lambda stage: stage.kept(), settings=KEYED),
    Scene(
        "crowded",
        alerts("BookkeeperMarksLarge"),
        _many_writers,
        lambda stage: stage.record(stage.kept),
        delay=28,
    ),
    Scene(
        "unreaped",
        alerts("ReaperNotRunning", "BookkeeperManySnapshots"),
        _many_snapshots,
        lambda stage: stage.publish(),  # the newest append is kept, and all after it
        later=Stage.reap,
        settings={"reaper": Reaper(older_than=timedelta(minutes=1), retain_last=1)},
        reaped=False,
    ),
    Scene("swollen", alerts("BookkeeperMetadataLarge"), _swollen, _shrunk, reload=10),
    Scene("disk-full", alerts("BookkeeperDiskLow")),
    Scene(
        "unseen",
        alerts("BookkeeperNotLooked"),
        lambda stage: stage.faults.on("list folder/consumers", "before", StorageUnavailable),
        lambda stage: stage.faults.clear(),
    ),
    Scene("behind", alerts("BookkeeperConsumerBehind", consumer="live"), **_STUCK),
    Scene(
        "at-risk",
        alerts("BookkeeperConsumerAtRisk", "BookkeeperConsumerBehind", consumer="live"),
        settings={"reaper": Reaper(max_hold=timedelta(minutes=30))},
        **_STUCK,
    ),
    Scene(
        "cut-off",
        alerts("BookkeeperConsumerCutOff", consumer="live", state="cut off"),
        _lost_place,
        Stage.unregister,
        reads=False,
    ),
)


def reaped(stage: Stage) -> None:
    """
    A run of the reaper that had nothing to do, which is enough for tables whose snapshots do not matter.
    """
    now = stage.watched.clock.now
    stage.reaper.note(stage.table, Reaped(), now)
