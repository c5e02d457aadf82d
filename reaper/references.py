"""
Everything that anything names: snapshots, txlogs, the journal. Reads the folder first, the table last.
"""

from collections.abc import Iterator

from pyiceberg.table import Table

from reaper.context import ReaperContext
from reaper.expiry import journal as journals
from reaper.files import txlogs
from reaper.files.disk_difference import Sieve
from reaper.files.manifest_reader import Reader, normalize


def name_all(site: ReaperContext, sieve: Sieve) -> Table:
    """
    Names everything in the sieve; returns the table, loaded after the folder was read.

    Raises Retry or NewerVersion when something cannot be read: half a picture would make orphans of the rest.
    """
    # What leaves the folder meanwhile is in the table that is loaded after it.
    sieve.name(txlogs.named(site.folder))
    left = journals.read(site.folder)
    if left:
        sieve.name(left.files.sizes())
    table = site.load()
    sieve.name(of_table(table, site.reader))
    return table


def of_table(table: Table, reader: Reader) -> Iterator[str]:
    """
    Every location that the table's metadata leads to; raises StorageUnavailable.
    """
    metadata = table.metadata
    yield normalize(table.metadata_location)
    yield from (normalize(entry.metadata_file) for entry in metadata.metadata_log)
    yield from (normalize(item.statistics_path) for item in (*metadata.statistics, *metadata.partition_statistics))
    seen: set[str] = set()
    for snapshot in metadata.snapshots:
        yield normalize(snapshot.manifest_list)
        for manifest in reader.manifests(snapshot):
            if manifest.manifest_path not in seen:
                seen.add(manifest.manifest_path)
                yield normalize(manifest.manifest_path)
                # DELETED ones too: an older snapshot that stays may still have them, and they go when it does.
                yield from (entry.path for entry in reader.entries(manifest))
