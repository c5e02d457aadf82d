"""
Snapshot summaries (Iceberg spec, Appendix F "Snapshot summary").

Exact, always: Spark's stream trusts `added-data-files` and silently loses rows when it is too small. Totals of
files and rows come from the manifest list itself, so a wrong total of another committer is not continued. A sum that
no long holds (files may state impossible row counts) is written as the largest long, which every reader takes.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence

from pyiceberg.manifest import ManifestContent, ManifestFile
from pyiceberg.table.snapshots import Operation, Snapshot, Summary

from bookkeeper.core.names import TxlogName
from bookkeeper.format.records import LARGEST, saturate
from bookkeeper.format.skim import EntrySummary
from bookkeeper.ledger.manifests import PartitionKey
from bookkeeper.ledger.view import TXLOGS

REWRITES = "bookkeeper.rewrites"
_TXLOGS_BYTES = 4096


def append_counts(files: Sequence[EntrySummary]) -> dict[str, str]:
    """
    The counts of an append.
    """
    return {
        "added-data-files": str(len(files)),
        "added-records": str(saturate(sum(file.record_count for file in files))),
        "added-files-size": str(saturate(sum(file.size_bytes for file in files))),
    }


def delete_counts(files: Sequence[EntrySummary]) -> dict[str, str]:
    """
    The counts of a whole-file delete.
    """
    return {
        "deleted-data-files": str(len(files)),
        "deleted-records": str(saturate(sum(file.record_count for file in files))),
        "removed-files-size": str(saturate(sum(file.size_bytes for file in files))),
    }


def partition_count(partitions: Collection[PartitionKey]) -> dict[str, str]:
    """
    How many partitions a snapshot touches; the same tuple in two specs is two.
    """
    return {"changed-partition-count": str(len(partitions))}


def merge_counts(
    created: Sequence[ManifestFile], replaced: Collection[str], kept: Sequence[ManifestFile]
) -> dict[str, str]:
    """
    The counts of a merge of manifests.
    """
    entries = sum(item.existing_files_count or 0 for item in created)
    return {
        "manifests-created": str(len(created)),
        "manifests-replaced": str(len(replaced)),
        "manifests-kept": str(len(kept)),
        "entries-processed": str(entries),
        "bookkeeper.reason": "merge",
    }


def summary(
    operation: Operation,
    counts: Mapping[str, str],
    manifests: Iterable[ManifestFile],
    parent: Snapshot | None,
) -> Summary:
    """
    The whole summary of a snapshot that lists `manifests`.
    """
    before = parent.summary.additional_properties if parent and parent.summary else {}
    live = [item for item in manifests if item.content == ManifestContent.DATA]
    totals = {
        "total-data-files": sum((item.added_files_count or 0) + (item.existing_files_count or 0) for item in live),
        "total-records": sum((item.added_rows_count or 0) + (item.existing_rows_count or 0) for item in live),
    }
    known_size = parent is None or "total-files-size" in before
    if known_size:
        change = int(counts.get("added-files-size", 0)) - int(counts.get("removed-files-size", 0))
        size = int(before.get("total-files-size", 0))
        # A saturated total is unknown from then on, whatever is added or taken away.
        totals["total-files-size"] = size if size >= LARGEST else size + change
    deletes = ("total-delete-files", "total-position-deletes", "total-equality-deletes")
    unchanged = {key: before.get(key, "0") for key in deletes}
    return Summary(operation, **counts, **{key: str(saturate(value)) for key, value in totals.items()}, **unchanged)


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


def rewrite_ids(ids: Iterable[str]) -> dict[str, str]:
    """
    Which rewrites a snapshot holds: by that a rewrite that is seen again is recognised. None is left out.
    """
    return {REWRITES: " ".join(ids), "bookkeeper.reason": "rewrite"}


def rewrites_of(snapshot: Snapshot) -> list[str]:
    """
    The ids of the rewrites that a snapshot holds.
    """
    text = snapshot.summary.additional_properties.get(REWRITES, "") if snapshot.summary else ""
    return str(text).split()
