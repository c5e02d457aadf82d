"""
The age from which the reaper expires snapshots and takes off branches and tags, and how many snapshots it keeps:
settings, what the table says, and defaults.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING

from bookkeeper.config.settings import Reaper
from bookkeeper.config.units import LONGEST, millis
from bookkeeper.errors import TableUnusable

if TYPE_CHECKING:
    from pyiceberg.table.refs import SnapshotRef

OLDER_THAN = timedelta(minutes=10)
RETAIN_LAST = 100


@dataclass(frozen=True, slots=True)
class Rules:
    """The result of settings, table properties and defaults."""

    older_than: timedelta
    retain_last: int
    gc: bool
    #: of a branch or tag that says no age of its own; None: it stays for ever
    ref_age_ms: int | None = None


def rules(settings: Reaper, properties: Mapping[str, str], main: "SnapshotRef | None" = None) -> Rules:
    """
    Settings, else what `main` says of its snapshots (ALTER TABLE ... WITH SNAPSHOT RETENTION), else the table's
    `history.expire.*`, else the defaults; raises TableUnusable for a bad property.
    """
    age = _number(properties, "history.expire.max-snapshot-age-ms")
    least = _number(properties, "history.expire.min-snapshots-to-keep")
    if main is not None:
        age = age if main.max_snapshot_age_ms is None else main.max_snapshot_age_ms
        least = main.min_snapshots_to_keep or least
    of_table = OLDER_THAN if age is None else timedelta(milliseconds=min(age, millis(LONGEST)))
    return Rules(
        older_than=of_table if settings.older_than is None else settings.older_than,
        retain_last=settings.retain_last or least or RETAIN_LAST,
        gc=properties.get("gc.enabled", "true").strip().lower() != "false",
        ref_age_ms=_number(properties, "history.expire.max-ref-age-ms"),
    )


def _number(properties: Mapping[str, str], key: str) -> int | None:
    text = properties.get(key)
    if text is None:
        return None
    found = text.strip()
    if not (found.isascii() and found.isdigit() and len(found) < 20):  # up to 2**63 - 1
        raise TableUnusable(f"table property {key} is {text[:60]!r}, not a number", hint="Correct or unset it.")
    return int(found)
