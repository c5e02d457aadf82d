"""
`verify`: the table against its files, and its snapshots against their manifests.
"""

from collections.abc import Iterator

from pyiceberg.manifest import ManifestContent
from pyiceberg.table.refs import SnapshotRefType

from bookkeeper.catalogs.commit import asked
from bookkeeper.commands.audit import ERROR, WARNING, Audit, Finding, snapshot_name
from bookkeeper.commands.odd_deletes import odd_footers
from bookkeeper.errors import BookkeeperError, CatalogUnavailable, Missing, PathRefused, Unfit
from bookkeeper.format.entries import EQUALITY_DELETES, POSITION_DELETES, DataFile, Entry
from bookkeeper.format.records import saturate
from bookkeeper.history.main_history import ancestors, staged_as
from bookkeeper.stores.store import Head, Store, key_in
from bookkeeper.tick.check_txlog import impossible_counts, is_format


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
        if stated is not None and stated != str(count):
            yield Finding(WARNING, f"the summary says {key} = {stated}, in truth it is {count}", snapshot_name(head))


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
            what = "its manifest list does not exist: readers of this snapshot fail"
            yield Finding(ERROR, what, snapshot_name(snapshot))
            continue
        manifests = [
            item
            for item in listed
            if item.added_snapshot_id == snapshot.snapshot_id and item.content == ManifestContent.DATA
        ]
        added = sum(item.added_files_count for item in manifests)
        if (stated or "0") != str(added):
            what = f"the summary says {stated or 0} added data files, its manifests hold {added}: streams may lose rows"
            yield Finding(ERROR, what, snapshot_name(snapshot))


def _parents(audit: Audit) -> Iterator[Finding]:
    """Expiry must take a contiguous prefix: a stream stops at a missing snapshot."""
    metadata = audit.view.metadata
    chain = list(ancestors(audit.view.metadata))
    if not chain:
        return
    # The parent of the oldest one tells nothing: pyiceberg forgets it when it expires, Iceberg Java does not.
    named = {ref.snapshot_id for ref in metadata.refs.values()}
    branches = [ref for ref in metadata.refs.values() if ref.snapshot_ref_type == SnapshotRefType.BRANCH]
    named |= {item.snapshot_id for ref in branches for item in ancestors(metadata, ref.snapshot_id)}
    first = chain[-1].sequence_number or 0
    older = (item for item in metadata.snapshots if (item.sequence_number or 0) < first)
    for snapshot in [item for item in older if item.snapshot_id not in named and not staged_as(item)]:
        what = f"it is kept, but a snapshot between it and {chain[-1].snapshot_id} is gone: streams behind it fail"
        yield Finding(WARNING, what, snapshot_name(snapshot))


CHECKS = (_double_paths, _files, _counts, _totals, _added_counts, _parents)
