"""
Old metadata.json files that no reader, no commit in flight and no recovery needs any more.
"""

import re
import zlib
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from itertools import pairwise

from pyiceberg.table import Table

from bookkeeper.stores.store import Listed
from reaper.files.manifest_reader import normalize
from reaper.files.storage import Storage

#: So many before the current one are never deleted, however old. A reader asks the catalog and opens the file a moment
#: later, when it may have been replaced; the reaper finds in them what its commit replaced; a person goes back to them
#: by hand. Nothing else opens them: time travel needs only the log in the current one.
PREVIOUS = 10
SUFFIXES = (".metadata.json", ".metadata.json.gz")
#: what is unpacked of one to find its table: the uuid is among the first keys
MOST_UNPACKED = 2**25


def old_metadata(table: Table, storage: Storage, now: datetime, keep: timedelta) -> dict[str, int]:
    """
    Location and size of every metadata.json that may go; raises StorageUnavailable.
    """
    current, before = normalize(table.metadata_location), now - keep
    folder = current.rpartition("/")[0]
    listed = {location: item for location, item in storage.list(folder) if location.endswith(SUFFIXES)}
    if current not in listed:
        return {}
    previous, replaced = _previous(table), _replaced_at(table, listed)
    logged: dict[str, int] = {}
    unlogged: dict[str, int] = {}
    for location, item in listed.items():
        if item.modified > before or location == current or _name(location) in previous:
            continue
        if location in replaced:
            logged |= {location: item.size} if replaced[location] <= before else {}
        elif item.modified < listed[current].modified:
            # A commit in flight started from the current file, so its own is younger than that.
            unlogged[location] = item.size
    own = _of_this_table(unlogged, storage, str(table.metadata.table_uuid))
    return dict(sorted((logged | own).items()))


def still_old(table: Table, planned: Iterable[str]) -> list[str]:
    """
    Those that may still go, now that the table has moved on.
    """
    kept = {_name(table.metadata_location), *_previous(table)}
    return [location for location in planned if _name(location) not in kept]


def _previous(table: Table) -> set[str]:
    """The names of those that are never deleted: the log may know them by another way, from before the table moved."""
    return set(map(_name, _log(table)[-PREVIOUS:]))


def _name(location: str) -> str:
    return location.rpartition("/")[2]


def _log(table: Table) -> list[str]:
    return [normalize(entry.metadata_file) for entry in table.metadata.metadata_log]


def _replaced_at(table: Table, listed: Mapping[str, Listed]) -> dict[str, datetime]:
    # Age counts from the moment a file was replaced: a quiet table's last file may be old and in use until just now.
    # The listing's time of the next file counts too, because not every writer moves last-updated-ms.
    entries = [(normalize(entry.metadata_file), entry.timestamp_ms) for entry in table.metadata.metadata_log]
    entries.append((normalize(table.metadata_location), table.metadata.last_updated_ms))
    result = {}
    for (location, _), (successor, ms) in pairwise(entries):
        logged = datetime.fromtimestamp(ms / 1000, UTC)
        result[location] = max(logged, listed[successor].modified) if successor in listed else logged
    return result


def _of_this_table(unlogged: Mapping[str, int], storage: Storage, uuid: str) -> dict[str, int]:
    # A dropped table that lay here before may be wanted back: its files have another uuid.
    own = re.compile(rb'"table-uuid"\s*:\s*"%s"' % uuid.encode())
    read = storage.read(unlogged)
    return {location: unlogged[location] for location, data in read if data and own.search(_unzipped(data))}


def _unzipped(data: bytes) -> bytes:
    """The beginning of it: a few kilobytes of zeros unpack to gigabytes."""
    if not data.startswith(b"\x1f\x8b"):
        return data
    try:
        return zlib.decompressobj(wbits=31).decompress(data, MOST_UNPACKED)
    except zlib.error:
        return b""
