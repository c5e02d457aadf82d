"""
`verify`: checks the table against its folder and its files. Reads only; `repair` does what its findings name.

Commits may go on meanwhile. So the folder is always listed before the table is loaded, as in a tick, and whatever is
found wrong is checked again against a later load of the table.

Every finding names what is wrong, where, and how bad: `error` means rows are or may be wrong, `warning` means
a person should look, `info` means that the next tick repairs it.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cached_property

from pyiceberg.manifest import ManifestContent
from pyiceberg.table.snapshots import Snapshot

from bookkeeper.catalogs.open import asked
from bookkeeper.commands.odd_deletes import odd_footers
from bookkeeper.commands.rewrites import IN_TABLE, read_pending, verdict
from bookkeeper.commands.waiting import waiting
from bookkeeper.config.settings import Table
from bookkeeper.contract import txlog as txlog_format
from bookkeeper.contract.marks import Marks
from bookkeeper.contract.names import TxlogName, started_ms
from bookkeeper.contract.rewrite import Rewrite, file_key
from bookkeeper.contract.txlog_folder import REJECTED, Folder, Found
from bookkeeper.errors import BookkeeperError, CatalogUnavailable, Missing, PathRefused, RewriteRejected, Unfit
from bookkeeper.format.entries import EQUALITY_DELETES, POSITION_DELETES, DataFile, Entry
from bookkeeper.format.records import saturate
from bookkeeper.history.main_history import ancestors
from bookkeeper.ledger.ledger import Ledger
from bookkeeper.ledger.load import is_older
from bookkeeper.ledger.marks_publisher import MarksPublisher
from bookkeeper.ledger.removed_files import removed_files
from bookkeeper.ledger.view import View, txlogs_of
from bookkeeper.stores.store import Head, Store, key_in
from bookkeeper.tick.check_txlog import impossible_counts, is_format
from bookkeeper.tick.plan_batch import gaps

ERROR, WARNING, INFO = "error", "warning", "info"
#: of a head whose files were deleted while they were read
MOST_RELOADS = 5


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is not as it should be; `repair` says what --repair would do, if it can do anything."""

    severity: str
    what: str
    where: str
    repair: str = ""


@dataclass
class Audit:
    """What the audit looks at, read once."""

    view: View
    folder: Folder
    ledger: Ledger
    settings: Table
    open_store: Callable[[str], Store] | None = None
    #: live data files, by path
    live: dict[str, DataFile] = field(default_factory=dict)
    #: live delete files, by path
    deletes: dict[str, Entry] = field(default_factory=dict)
    #: how often each live file is listed
    times: Counter[str] = field(default_factory=Counter)

    @cached_property
    def removed(self) -> dict[str, int]:
        """The files that kept snapshots took out."""
        return removed_files(self.ledger, self.view, expiring=True)

    def later(self) -> "Audit":
        """A new audit, of the table as it is now."""
        view = self.ledger.load(self.view.marks.folder, accept_rollback=True)
        return Audit(view, self.folder, self.ledger, self.settings, self.open_store)

    def read(self) -> None:
        """Reads every manifest of the head."""
        self.live.clear()
        self.deletes.clear()
        self.times.clear()
        for file in self.ledger.live_files(self.view):
            path = file_key(file.path)
            self.live[path] = file
            self.times[path] += 1
        for entry in self.ledger.live_entries(self.view, ManifestContent.DELETES):
            path = file_key(entry.data_file.path)
            self.deletes[path] = entry
            self.times[path] += 1

    @property
    def files(self) -> dict[str, DataFile]:
        """Live data files and delete files, by path."""
        return self.live | {path: entry.data_file for path, entry in self.deletes.items()}


def verify(audit: Audit) -> list[Finding]:
    """
    All findings, worst first. Raises Retry when table or folder cannot be read.
    """
    found = _checked_now(audit)
    wrong = [finding for finding in found if finding.severity != INFO]
    later = audit.later() if wrong else audit
    if later.view.table.metadata_location != audit.view.table.metadata_location:
        # Files may have been dropped and snapshots expired meanwhile: only what is still wrong counts.
        still = {(finding.what, finding.where) for finding in _checked_now(later)}
        found = [finding for finding in found if finding not in wrong or (finding.what, finding.where) in still]
    return sorted(found, key=lambda finding: (ERROR, WARNING, INFO).index(finding.severity))


def _checked_now(audit: Audit) -> list[Finding]:
    """What is found in a head whose files are there: those of an older one may be expired and deleted meanwhile."""
    for _ in range(MOST_RELOADS):
        try:
            return _checked(audit)
        except BookkeeperError as error:
            now = audit.later().view
            gone = isinstance(error if isinstance(error, Missing) else error.__cause__, Missing)
            if not gone or now.metadata.current_snapshot_id == audit.view.metadata.current_snapshot_id:
                raise
            audit.view = now
            audit.__dict__.pop("removed", None)
    return _checked(audit)


def _checked(audit: Audit) -> list[Finding]:
    audit.read()
    checks = (
        _double_paths,
        _files,
        _counts,
        _totals,
        _added_counts,
        _parents,
        _marks_behind,
        _leftovers,
        _missing,
        _marks_copy,
        _rejected,
        _rewrites,
    )
    at_risk = waiting(audit.settings, audit.folder, audit.view.marks, audit.ledger.clock())
    return [finding for check in checks for finding in check(audit)] + [
        Finding(WARNING if soon else INFO, what, where) for soon, what, where in at_risk
    ]


def _double_paths(audit: Audit) -> Iterator[Finding]:
    for path, times in audit.times.items():
        if times > 1:
            double = "its rows are double" if path in audit.live else "readers apply its deletes again"
            yield Finding(ERROR, f"the file is in the table {times} times: {double}", path)


def _files(audit: Audit) -> Iterator[Finding]:
    store = audit.view.data_store(audit.open_store or audit.ledger.open_store)
    files = audit.files
    keys, sound = dict[str, str](), dict[str, Entry]()
    for path in files:
        try:
            keys[_key(store, path)] = path
        except PathRefused as error:
            yield Finding(WARNING, f"the file cannot be looked up: {error}", path)
    for key, head in store.heads(list(keys)).items():
        path = keys[key]
        if (found := _wrong_with(audit, path, files[path], head)) is not None:
            yield found
        elif path in audit.deletes and isinstance(head, Head) and head.start is not None:
            sound[key] = audit.deletes[path]
    for key, why in odd_footers(audit.view, store, sound.items()).items():
        what = f"no fold can read this delete file, and readers may fail or show rows that it deletes: {why}"
        yield Finding(ERROR, f"{what}. `bookkeeper drop-delete-file` takes it out", keys[key])


def _wrong_with(audit: Audit, path: str, file: DataFile, head: Head | BookkeeperError) -> Finding | None:
    """What is wrong with a live file as the storage has it."""
    if isinstance(head, Missing):
        lost = "its rows are lost" if path in audit.live else "readers fail, or show rows that it deleted"
        return Finding(ERROR, f"the table names the file, but it does not exist: {lost}", path)
    if isinstance(head, Unfit):
        return Finding(ERROR, f"{head}: {_NO_FILE}", path)
    if isinstance(head, BookkeeperError):
        return Finding(WARNING, f"the file cannot be looked up: {head}", path)
    if head.size != file.size_bytes:
        return Finding(ERROR, f"the file has {head.size} bytes, the table says {file.size_bytes}", path)
    if not is_format(file.file_format, head.start):
        what = f"the file begins with {head.start!r}, the table says it is {file.file_format}: readers fail"
        return Finding(ERROR, what, path)
    return None


_NO_FILE = (
    "other engines show whatever it leads to. If that is this table's own file, put it there in the place of the link; "
    "else its rows are not this table's: delete them (such as by Spark's DELETE), or leave it to retention"
)


def _key(store: Store, path: str) -> str:
    """
    Its key in the store; raises PathRefused. Spark writes percent signs into the paths of partitions, as they are.
    """
    return path[-len(key_in(store, path.replace("%", "_"))) :]


def _counts(audit: Audit) -> Iterator[Finding]:
    """Counts that no file can have: versions that did not check them let them in."""
    for path, file in audit.live.items():
        wrong = impossible_counts(file.record_count, file.size_bytes)
        if wrong:
            what = f"the table says {wrong}: totals and count(*) are wrong until the file is deleted from the table"
            yield Finding(ERROR, what, path)


def _totals(audit: Audit) -> Iterator[Finding]:
    head = audit.view.head
    if head is None or head.summary is None:
        return
    files = [file for path, file in audit.live.items() for _ in range(audit.times[path])]
    deletes = [entry for path, entry in audit.deletes.items() for _ in range(audit.times[path])]
    sizes = [file.size_bytes for file in files] + [entry.data_file.size_bytes for entry in deletes]
    truth = {
        "total-data-files": len(files),
        "total-records": saturate(sum(file.record_count for file in files)),
        "total-files-size": saturate(sum(sizes)),
        "total-delete-files": len(deletes),
    }
    for content, kind in ((POSITION_DELETES, "position"), (EQUALITY_DELETES, "equality")):
        rows = [entry.data_file.record_count for entry in deletes if entry.content == content]
        truth[f"total-{kind}-deletes"] = saturate(sum(rows))
    for key, count in truth.items():
        stated = head.summary.additional_properties.get(key)
        if stated is not None and int(stated) != count:
            yield Finding(WARNING, f"the summary says {key} = {stated}, in truth it is {count}", _snapshot(head))


def _added_counts(audit: Audit) -> Iterator[Finding]:
    """Spark's stream trusts `added-data-files` and loses rows when it is too small."""
    reader = audit.ledger.reader(audit.view)
    for snapshot in audit.view.metadata.snapshots:
        stated = snapshot.summary.additional_properties.get("added-data-files") if snapshot.summary else None
        try:
            with asked(f"read the manifest list of snapshot {snapshot.snapshot_id}"):
                (listed,) = reader.lists([snapshot])
        except CatalogUnavailable as error:
            if not isinstance(error.__cause__, Missing):
                raise
            # If the snapshot was expired meanwhile, a later load of the table does not have it.
            yield Finding(ERROR, "its manifest list does not exist: readers of this snapshot fail", _snapshot(snapshot))
            continue
        manifests = [
            item
            for item in listed
            if item.added_snapshot_id == snapshot.snapshot_id and item.content == ManifestContent.DATA
        ]
        added = sum(item.added_files_count for item in manifests)
        if int(stated or 0) != added:
            what = f"the summary says {stated or 0} added data files, its manifests hold {added}: streams may lose rows"
            yield Finding(ERROR, what, _snapshot(snapshot))


def _parents(audit: Audit) -> Iterator[Finding]:
    """Expiry must take a contiguous prefix: a stream stops at a missing snapshot."""
    metadata = audit.view.metadata
    chain = list(ancestors(audit.view.metadata))
    if not chain:
        return
    # The parent of the oldest one tells nothing: pyiceberg forgets it when it expires, Iceberg Java does not.
    named = {ref.snapshot_id for ref in metadata.refs.values()} | {item.snapshot_id for item in chain}
    first = chain[-1].sequence_number or 0
    older = [
        item for item in metadata.snapshots if (item.sequence_number or 0) < first and item.snapshot_id not in named
    ]
    for snapshot in older:
        what = f"it is kept, but a snapshot between it and {chain[-1].snapshot_id} is gone: streams behind it fail"
        yield Finding(WARNING, what, _snapshot(snapshot))


def _marks_behind(audit: Audit) -> Iterator[Finding]:
    marks = audit.view.marks
    for snapshot in ancestors(audit.view.metadata):
        for first, last in txlogs_of(snapshot):
            known = marks.mark(last)
            if known is None:
                continue  # pruned or forgotten
            if not marks.is_in(last) or not marks.is_in(first):
                what = f"the snapshot holds {first} to {last.sequence}, the marks do not say so"
                yield Finding(ERROR, what, _snapshot(snapshot))


def _leftovers(audit: Audit) -> Iterator[Finding]:
    for item in audit.folder.pending():
        if not audit.view.marks.is_in(item.name):
            continue
        if _is_ahead(audit, item):
            what = "the marks say it is in, but the table has none of its files (retention may have dropped them)"
            yield Finding(WARNING, what, str(item.name))
        else:
            yield Finding(INFO, "it is in the table and still pending", str(item.name), "delete it")


def _is_ahead(audit: Audit, item: Found) -> bool:
    most = audit.settings.max_txlog_bytes
    data = audit.folder.read([item.name], {item.name: most})[item.name]
    if not isinstance(data, bytes):
        return False
    try:
        paths = txlog_format.decode(item.name, data, most).every_path
    except BookkeeperError:
        return False
    # A rewrite puts rows into other files, a fold replaces delete files: one that was taken out was in.
    # One without files has offsets alone, of which the table does not say where they came from.
    return bool(paths) and {*paths}.isdisjoint({*audit.times, *audit.removed})


def _missing(audit: Audit) -> Iterator[Finding]:
    """Missing txlogs: n was durable before n + 1 was written, so they were deleted by another program."""
    listed = [item.name for item in audit.folder.pending()]
    marks = audit.later().view.marks
    waiting = [name for name in listed if not marks.is_in(name) and not _may_be_pruned(marks, name)]
    holes = [
        TxlogName(writer, incarnation, hole)
        for writer, known in marks.writers.items()
        for incarnation, mark in known.incarnations.items()
        for hole in mark.holes
    ]
    for name in sorted({*gaps(waiting, marks), *holes}.difference(listed)):
        if not (audit.folder.exists(name) or audit.folder.exists(name, REJECTED)):
            what = (
                "it was published, and is neither in the table nor pending nor rejected: it was deleted, its rows "
                "are lost unless its writer wrote them again"
            )
            yield Finding(WARNING, what, str(name))


def _may_be_pruned(marks: Marks, name: TxlogName) -> bool:
    """Whether its mark was pruned, so that it is unknown how far its incarnation was."""
    return marks.mark(name) is None and started_ms(name.incarnation) < marks.pruned_before_ms


def _marks_copy(audit: Audit) -> Iterator[Finding]:
    view, copy = audit.view, audit.folder.marks()
    if view.marks.snapshot is None or (copy is not None and copy.marks == view.marks):
        return
    # A commit may have been made since the table was loaded, and its copy is written right after it.
    now = audit.later().view
    if copy is not None and copy.table_uuid == view.uuid and copy.sequence_number > view.metadata.last_sequence_number:
        agrees = not is_older(now, copy)
    else:
        again = audit.folder.marks()
        agrees = again is not None and (again.marks == now.marks or again != copy)
    if not agrees:
        yield Finding(WARNING, "marks.json is not what the table says", audit.folder.store.url, "write it again")


def _rejected(audit: Audit) -> Iterator[Finding]:
    for item in audit.folder.rejected():
        why = audit.folder.reason(item.name).get("reason", "for an unknown reason")
        yield Finding(WARNING, f"rejected and not looked after: {why}", str(item.name))


def _rewrites(audit: Audit) -> Iterator[Finding]:
    """Pending rewrites that will not be committed; no row is lost by that."""
    now: Audit | None = None
    for item, read in read_pending(audit.folder, audit.settings.max_txlog_bytes):
        now = now or audit.later()  # after the listing: a rewrite may know newer snapshots than an older view
        found = _verdict(now, read) if isinstance(read, Rewrite) else read
        if isinstance(found, RewriteRejected):
            what = f"the rewrite will be rejected, and planned anew ({type(found).__name__}): {found}"
            yield Finding(INFO, what, item.name)
        elif isinstance(found, BookkeeperError):
            yield Finding(WARNING, f"the rewrite waits: {found}", item.name)
        elif found == IN_TABLE:
            yield Finding(INFO, "the rewrite is in the table and still pending", item.name)


def _verdict(audit: Audit, rewrite: Rewrite) -> BookkeeperError | str:
    store = audit.view.data_store(audit.open_store or audit.ledger.open_store)
    written_after = audit.ledger.clock() - audit.settings.orphan_age / 2
    return verdict(audit.ledger, audit.view, store, rewrite, written_after)


def _snapshot(snapshot: Snapshot) -> str:
    return f"snapshot {snapshot.snapshot_id}"


def repair(audit: Audit, findings: list[Finding]) -> int:
    """
    Does what is safe, and nothing else: deletes txlogs that are in, writes marks.json again. Returns how much.
    """
    mendable = [finding for finding in findings if finding.repair]
    leftovers = [TxlogName.parse(finding.where) for finding in mendable if finding.severity == INFO]
    # marks.json first: a starting writer must find a txlog in pending/ or in the marks.
    if any(finding.severity == WARNING for finding in mendable) or leftovers:
        MarksPublisher(audit.ledger, audit.folder).publish(audit.view)
    audit.folder.delete(leftovers)
    return len(mendable)
