"""
`verify`: an audit of table against folder. Reads only; what it would mend is said first.

Every finding names what is wrong, where, and how bad: `error` means rows are or may be wrong, `warning` means
somebody should look, `info` mends itself.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from pyiceberg.manifest import ManifestContent
from pyiceberg.table.snapshots import Snapshot

from bookkeeper.check import impossible_counts, is_format
from bookkeeper.core import txlog as txlog_format
from bookkeeper.core.errors import BookkeeperError, Missing
from bookkeeper.core.folder import Folder, Found
from bookkeeper.core.locations import normal
from bookkeeper.core.names import TxlogName
from bookkeeper.core.settings import Table
from bookkeeper.core.store import Store, key_in
from bookkeeper.format.entries import DataFile
from bookkeeper.format.records import saturated
from bookkeeper.ledger.ledger import Ledger
from bookkeeper.ledger.view import View, txlogs_of

ERROR, WARNING, INFO = "error", "warning", "info"


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
    live: dict[str, DataFile] = field(default_factory=dict)
    times: Counter[str] = field(default_factory=Counter)

    def read(self) -> None:
        """Reads every manifest of the head."""
        for file in self.ledger.live_files(self.view):
            path = normal(file.path)
            self.live[path] = file
            self.times[path] += 1


def verify(audit: Audit) -> list[Finding]:
    """
    All findings, worst first. Raises Retry when table or folder cannot be read.
    """
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
        _marks_copy,
        _rejected,
    )
    found = [finding for check in checks for finding in check(audit)]
    return sorted(found, key=lambda finding: (ERROR, WARNING, INFO).index(finding.severity))


def _double_paths(audit: Audit) -> Iterator[Finding]:
    for path, times in audit.times.items():
        if times > 1:
            yield Finding(ERROR, f"the file is in the table {times} times: its rows are double", path)


def _files(audit: Audit) -> Iterator[Finding]:
    root = audit.view.data_root
    store = (audit.open_store or audit.ledger.open_store)(root)
    keys = {key_in(store, path): path for path in audit.live}
    for key, head in store.heads(list(keys)).items():
        path, file = keys[key], audit.live[keys[key]]
        if isinstance(head, Missing):
            yield Finding(ERROR, "the table names the file, but it does not exist: its rows are lost", path)
        elif isinstance(head, BookkeeperError):
            yield Finding(WARNING, f"the file cannot be looked up: {head}", path)
        elif head.size != file.size_bytes:
            yield Finding(ERROR, f"the file has {head.size} bytes, the table says {file.size_bytes}", path)
        elif not is_format(file.file_format, head.start):
            what = f"the file begins with {head.start!r}, the table says it is {file.file_format}: readers fail"
            yield Finding(ERROR, what, path)


def _counts(audit: Audit) -> Iterator[Finding]:
    """What versions without bounds let in: the table goes on with it, and counts wrongly."""
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
    truth = {
        "total-data-files": len(files),
        "total-records": saturated(sum(file.record_count for file in files)),
        "total-files-size": saturated(sum(file.size_bytes for file in files)),
    }
    for key, count in truth.items():
        said = head.summary.additional_properties.get(key)
        if said is not None and int(said) != count:
            yield Finding(WARNING, f"the summary says {key} = {said}, in truth it is {count}", _snapshot(head))


def _added_counts(audit: Audit) -> Iterator[Finding]:
    """Spark's stream trusts `added-data-files` and loses rows when it is too small."""
    for snapshot in audit.view.metadata.snapshots:
        said = snapshot.summary.additional_properties.get("added-data-files") if snapshot.summary else None
        manifests = [
            item
            for item in snapshot.manifests(audit.view.table.io)
            if item.added_snapshot_id == snapshot.snapshot_id and item.content == ManifestContent.DATA
        ]
        added = sum(item.added_files_count or 0 for item in manifests)
        if int(said or 0) != added:
            what = f"the summary says {said or 0} added data files, its manifests hold {added}: streams may lose rows"
            yield Finding(ERROR, what, _snapshot(snapshot))


def _parents(audit: Audit) -> Iterator[Finding]:
    """Expiry must take a contiguous prefix: a hole kills the streams behind it."""
    metadata = audit.view.metadata
    chain = list(audit.view.ancestors())
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
    for snapshot in audit.view.ancestors():
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
        files = txlog_format.decode(item.name, data, most).files
    except BookkeeperError:
        return False
    return not any(normal(file.path) in audit.live for file in files)


def _marks_copy(audit: Audit) -> Iterator[Finding]:
    copy, view = audit.folder.marks(), audit.view
    wanted = view.marks_copy
    if view.marks.snapshot is not None and copy != wanted:
        yield Finding(WARNING, "marks.json is not what the table says", audit.folder.store.url, "write it again")


def _rejected(audit: Audit) -> Iterator[Finding]:
    for item in audit.folder.rejected():
        why = audit.folder.reason(item.name).get("reason", "for an unknown reason")
        yield Finding(WARNING, f"rejected and not looked after: {why}", str(item.name))


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
        audit.folder.publish_marks(audit.view.marks_copy)
    audit.folder.delete(leftovers)
    return len(mendable)
