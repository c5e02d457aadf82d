"""
Snapshot summaries (Iceberg spec, Appendix F "Snapshot summary").

Exact, always: Spark's stream trusts `added-data-files` and silently loses rows when it is too small. Totals of
files and rows come from the manifest list itself, so a wrong total of another committer is not continued. A sum that
no long holds (files may state impossible row counts) is written as the largest long, which every reader takes.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence

from pyiceberg.manifest import ManifestContent
from pyiceberg.table.snapshots import Operation, Snapshot, Summary

from bookkeeper.contract.names import TxlogName
from bookkeeper.format.entries import EQUALITY_DELETES, POSITION_DELETES, Entry
from bookkeeper.format.manifest_list import ListedManifest
from bookkeeper.format.records import LARGEST, saturate
from bookkeeper.format.skim import EntrySummary
from bookkeeper.history.main_history import NUMBERS, counted, stated
from bookkeeper.ledger.view import TXLOGS
from bookkeeper.manifests.header import PartitionKey

REWRITES = "bookkeeper.rewrites"
APPEND = "bookkeeper.append"
REASON = "bookkeeper.reason"
_TXLOGS_BYTES = 4096
#: kinds of delete files, as summaries name them
_DELETES = {POSITION_DELETES: "position", EQUALITY_DELETES: "equality"}


def append_counts(files: Sequence[EntrySummary]) -> dict[str, str]:
    """
    The counts of an append.
    """
    return {
        "added-data-files": str(len(files)),
        "added-records": str(saturate(sum(file.record_count for file in files))),
        "added-files-size": str(saturate(sum(file.size_bytes for file in files))),
    }


def removed_counts(files: Sequence[EntrySummary]) -> dict[str, str]:
    """
    The counts of a whole-file delete of data files.
    """
    return {
        "deleted-data-files": str(len(files)),
        "deleted-records": str(saturate(sum(file.record_count for file in files))),
        "removed-files-size": str(saturate(sum(file.size_bytes for file in files))),
    }


def added_delete_counts(files: Sequence[EntrySummary]) -> dict[str, str]:
    """
    The counts of delete files that are added; each record is decoded in full.
    """
    return _delete_counts("added", files)


def removed_delete_counts(files: Sequence[EntrySummary]) -> dict[str, str]:
    """
    The counts of delete files that are removed; each record is decoded in full.
    """
    return _delete_counts("removed", files)


def added_position_deletes(entries: Sequence[Entry]) -> dict[str, str]:
    """
    The counts of new position delete files.
    """
    counts = {
        "added-delete-files": len(entries),
        "added-position-delete-files": len(entries),
        "added-position-deletes": sum(entry.data_file.record_count for entry in entries),
        "added-files-size": sum(entry.data_file.size_bytes for entry in entries),
    }
    return {key: str(saturate(count)) for key, count in counts.items()} if entries else {}


def _delete_counts(what: str, files: Sequence[EntrySummary]) -> dict[str, str]:
    counts = {"delete-files": len(files)}
    for content, kind in _DELETES.items():
        rows = [file.record_count for file in files if file.entry is not None and file.entry.content == content]
        counts |= {f"{kind}-delete-files": len(rows), f"{kind}-deletes": sum(rows)} if rows else {}
    counts["files-size"] = sum(file.size_bytes for file in files)
    return {f"{what}-{key}": str(saturate(count)) for key, count in counts.items()} if files else {}


def total(*parts: Mapping[str, str]) -> dict[str, str]:
    """
    The counts of one snapshot, of those of its parts: what two of them count is added up.
    """
    keys = {key: None for part in parts for key in part}
    return {key: str(saturate(sum(int(part.get(key, 0)) for part in parts))) for key in keys}


def partition_count(partitions: Collection[PartitionKey]) -> dict[str, str]:
    """
    How many partitions a snapshot touches; the same tuple in two specs is two.
    """
    return {"changed-partition-count": str(len(partitions))}


def reason(why: str) -> dict[str, str]:
    """
    Why there is a snapshot, in a word.
    """
    return {REASON: why}


def merge_counts(
    created: Sequence[ListedManifest], replaced: Collection[str], kept: Sequence[ListedManifest]
) -> dict[str, str]:
    """
    The counts of a merge of manifests.
    """
    entries = sum(item.existing_files_count for item in created)
    return {
        "manifests-created": str(len(created)),
        "manifests-replaced": str(len(replaced)),
        "manifests-kept": str(len(kept)),
        "entries-processed": str(entries),
        **reason("merge"),
    }


def summary(
    operation: Operation,
    counts: Mapping[str, str],
    manifests: Iterable[ListedManifest],
    parent: Snapshot | None,
) -> Summary:
    """
    The whole summary of a snapshot that lists `manifests`.
    """
    listed = list(manifests)
    live = [item for item in listed if item.content == ManifestContent.DATA]
    totals = {
        "total-data-files": sum(item.live_files for item in live),
        "total-records": sum(item.added_rows_count + item.existing_rows_count for item in live),
    }
    size = 0 if parent is None else stated(parent, "total-files-size")
    if size is not None:
        change = int(counts.get("added-files-size", 0)) - int(counts.get("removed-files-size", 0))
        # A saturated total is unknown from then on, whatever is added or taken away.
        totals["total-files-size"] = size if size >= LARGEST else size + change
    totals |= _delete_totals(counts, listed, parent)
    return Summary(operation, **counts, **{key: str(saturate(value)) for key, value in totals.items()})


def _delete_totals(
    counts: Mapping[str, str], manifests: Iterable[ListedManifest], parent: Snapshot | None
) -> dict[str, int]:
    """How many delete files there are, as the list says, and how many deletes of each kind, which it does not say."""
    files = sum(item.live_files for item in manifests if item.content == ManifestContent.DELETES)
    totals = {"total-delete-files": files}
    for kind in _DELETES.values():
        change = int(counts.get(f"added-{kind}-deletes", 0)) - int(counts.get(f"removed-{kind}-deletes", 0))
        totals[f"total-{kind}-deletes"] = counted(parent, f"total-{kind}-deletes") + change if files else 0
    return totals


def txlog_names(names: Iterable[TxlogName]) -> dict[str, str]:
    """
    Which txlogs a snapshot holds, `incarnation:from-to` per incarnation, cut at 4 KiB.
    """
    spans: dict[tuple[str, str], list[int]] = {}
    for name in names:
        spans.setdefault((name.writer, name.incarnation), []).append(name.sequence)
    text = " ".join(f"{key[0]}.{key[1]}:{min(span)}-{max(span)}" for key, span in sorted(spans.items()))
    if len(text) > _TXLOGS_BYTES:
        text = text[:_TXLOGS_BYTES].rsplit(" ", 1)[0] + " ..."
    return {TXLOGS: text, "bookkeeper.txlog-count": str(sum(len(span) for span in spans.values()))}


def half_of(append: int) -> dict[str, str]:
    """
    What the `delete` snapshot of a commit says, which belongs with the `append` snapshot of this id.
    """
    return {APPEND: str(append)} | reason("upserts")


def numbers_taken(numbers: int) -> dict[str, str]:
    """
    How many sequence numbers a commit with delete files takes up to the one of its `delete` snapshot.
    """
    return {NUMBERS: str(numbers)}


def append_of(snapshot: Snapshot) -> int | None:
    """
    The id of the `append` snapshot that a `delete` snapshot belongs with; None for any other.
    """
    return stated(snapshot, APPEND)


def rewrite_ids(ids: Iterable[str]) -> dict[str, str]:
    """
    Which rewrites a snapshot holds: by that a rewrite that is seen again is recognised. None is left out.
    """
    return {REWRITES: " ".join(ids)} | reason("rewrite")


def rewrites_of(snapshot: Snapshot) -> list[str]:
    """
    The ids of the rewrites that a snapshot holds.
    """
    text = snapshot.summary.additional_properties.get(REWRITES, "") if snapshot.summary else ""
    return str(text).split()
