"""
Orphans: old files in the table's data and metadata folders that nothing names, twice, an hour apart.

The disk is listed first, the folder read second, the table loaded last. So a file that is on its way from a writer
through a txlog into the table is named in one of them, whenever we look; and a writer publishes no file older than
half the orphan age.
"""

import json
import logging
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata

from bookkeeper.config.units import format_duration
from bookkeeper.core.folder import Folder
from bookkeeper.errors import Halt, Missing, NotPossible, PathRefused, Unfit
from bookkeeper.stores.locations import join, normal
from reaper.context import ReaperContext
from reaper.files.disk_difference import Sieve
from reaper.files.old_metadata import SUFFIXES
from reaper.files.storage import data_path
from reaper.plan import rules
from reaper.references import name_all

log = logging.getLogger(__name__)

KEY = "reaper/orphans.json"
LEAST_AGE = timedelta(hours=1)
APART = timedelta(hours=1)
#: an attempt to commit is built anew after ten minutes, and clocks differ by five at most
MARGIN = timedelta(minutes=15)
MOST = 100_000
#: so many names, however long
MOST_BYTES = 2**28
FEW = 100


class ManyOrphans(Halt):
    """So many files are named by nothing that a person should look first."""

    hint = "Look at `reaper orphans`: is the location spelled in two ways? If it is right: --release-brake."


@dataclass(frozen=True, slots=True)
class Orphan:
    """A file that nothing names: bytes, when it was written, since when it is known to be unnamed."""

    location: str
    bytes: int
    modified: datetime
    since: datetime

    def due(self, now: datetime) -> bool:
        """Whether it was found unnamed by an earlier sweep long enough ago."""
        return self.since <= now - APART

    def why(self, now: datetime) -> str:
        """In words."""
        age = f"no snapshot, txlog or journal names it, {format_duration(now - self.modified)} old"
        return age if self.due(now) else f"{age}; goes if that is so an hour after {self.since:%H:%M}"


@dataclass(frozen=True, slots=True)
class Sweep:
    """What one look found: orphans (due or not), the table as it was then, how many locations are named."""

    table_uuid: str
    orphans: tuple[Orphan, ...]
    named: int

    def due(self, now: datetime) -> dict[str, int]:
        """Location and size of those that may go now."""
        return {orphan.location: orphan.bytes for orphan in self.orphans if orphan.due(now)}


def age_of(site: ReaperContext, older_than: timedelta | None = None) -> timedelta:
    """
    The age from which a file may be an orphan: what running writers were told, at least; raises NotPossible.
    """
    if older_than is not None and older_than < LEAST_AGE:
        raise NotPossible(
            f"an orphan age of {format_duration(older_than)} is refused: "
            f"at least {format_duration(LEAST_AGE)} is needed",
            hint="A writer may still publish younger files.",
        )
    try:
        told = timedelta(milliseconds=Folder(site.folder).card().orphan_age_ms)
    except Missing:
        told = timedelta(0)
    return max(older_than or site.settings.orphan_age, told, LEAST_AGE)


def is_due(site: ReaperContext, now: datetime) -> bool:
    """
    Whether the last sweep is long enough ago.
    """
    at = _load(site)[1]
    return at is None or not timedelta(0) <= now - at < site.settings.reaper.orphans_every


def look(site: ReaperContext, now: datetime, older_than: timedelta | None = None) -> Sweep:
    """
    Every orphan there is, without touching one; raises Retry or NewerVersion when something cannot be read.
    """
    before, metadata = now - age_of(site, older_than), site.load().metadata
    if not rules(site.settings.reaper, metadata.properties).gc:
        return Sweep(str(metadata.table_uuid), (), 0)
    with Sieve() as sieve:
        for location, size, modified in _old_files(site, metadata, before):
            sieve.put(location, [size, modified.isoformat()])
        table = name_all(site, sieve)
        if table.metadata.table_uuid != metadata.table_uuid:
            return Sweep(str(table.metadata.table_uuid), (), 0)
        uuid = str(metadata.table_uuid)
        return Sweep(uuid, tuple(_orphans(site, sieve, table, now)), sieve.named)


def sweep(
    site: ReaperContext, now: datetime, older_than: timedelta | None = None, release_brake: bool = False
) -> dict[str, int]:
    """
    Deletes the orphans that an earlier sweep found too, and remembers the others; location and size of what went.

    Raises ManyOrphans when that would be more than half of what is named.
    """
    found = look(site, now, older_than)
    going = found.due(now)
    if len(going) > FEW and len(going) * 2 > found.named and not release_brake:
        raise ManyOrphans(f"{site.name}: {len(going)} files would go as orphans, {found.named} are named")
    site.storage.delete(going)
    # After the files: a crash in between leaves names of files that are not there, which no listing shows again.
    _save(site, found, going, now)
    return going


def _old_files(site: ReaperContext, metadata: TableMetadata, before: datetime) -> Iterator[tuple[str, int, datetime]]:
    folder = metadata.properties.get("write.metadata.path") or join(metadata.location, "metadata")
    roots = dict.fromkeys(normal(root) for root in (folder, data_path(metadata)))
    for root in roots:
        limit = min(before, _before_attempts(metadata)) if root == normal(folder) else before
        for location, item in site.storage.list(root):
            if item.modified < limit and _may_be_swept(location, root):
                yield location, item.size, item.modified


def _before_attempts(metadata: TableMetadata) -> datetime:
    """
    Before this, no manifest belongs to an attempt that can still succeed: main has moved since.
    """
    head = metadata.current_snapshot()
    moved = datetime.fromtimestamp((head.timestamp_ms if head else 0) / 1000, UTC)
    return moved - MARGIN if head else moved


def _may_be_swept(location: str, root: str) -> bool:
    if location.endswith((*SUFFIXES, "/version-hint.text")):
        return False  # those go by their own rules
    try:
        below = normal(location).removeprefix(root.rstrip("/") + "/")
    except PathRefused:
        return False
    # As Iceberg does: what begins with _ or . is somebody's own.
    return not any(part.startswith(("_", ".")) for part in below.split("/"))


def _orphans(site: ReaperContext, sieve: Sieve, table: Table, now: datetime) -> Iterator[Orphan]:
    uuid, _, known = _load(site)
    seen = known if uuid == str(table.metadata.table_uuid) else {}
    for count, (location, (size, modified)) in enumerate(sieve.unnamed()):
        if count == MOST:
            log.warning("more orphans than one sweep takes", extra={"action": "orphans", "table": site.name})
            return
        since = min(seen.get(location, now), now)
        yield Orphan(location, size, datetime.fromisoformat(modified), since)


def _load(site: ReaperContext) -> tuple[str, datetime | None, dict[str, datetime]]:
    try:
        raw = json.loads(site.folder.read(KEY, MOST_BYTES))
        seen = {location: datetime.fromisoformat(text) for location, text in raw["seen"].items()}
        return raw["table-uuid"], datetime.fromisoformat(raw["at"]), seen
    except Missing:
        return "", None, {}
    except (Unfit, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        # As if there had been no sweep: what it found must be found twice again.
        return "", None, {}


def _save(site: ReaperContext, found: Sweep, gone: Mapping[str, int], now: datetime) -> None:
    seen = {item.location: item.since.isoformat() for item in found.orphans if item.location not in gone}
    data = {"version": 1, "table-uuid": found.table_uuid, "at": now.isoformat(), "seen": seen}
    site.folder.replace(KEY, json.dumps(data).encode() + b"\n")
