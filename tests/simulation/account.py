"""
The account of a world, once all has come to rest: every confirmed row is in, or is refused for a reason that lies in
rejected/; nothing is left pending; every needed file is there.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence

from tests.simulation import folder_files
from tests.simulation.decoder import Wrong
from tests.simulation.folder_files import PENDING, REASON, REJECTED, TXLOG
from tests.simulation.oracle import Oracle
from tests.simulation.table_state import MARKS

#: why a txlog of a keyed table lies in rejected/ though its writer did nothing wrong: it came too late
LATE = ("IncarnationPruned", "OutOfOrder")


def look(oracle: Oracle, confirmed: Mapping[str, Sequence[str]], txlogs: Iterable[str], sources: Iterable[str]) -> None:
    """
    Raises Wrong. `confirmed`: rows by the run of a writer that published them; `txlogs` that were confirmed; `sources`:
    writers of rows 1, 2, 3 and so on, which their positions count.
    """
    pending = [at for at, _ in oracle.disk.under(f"{oracle.folder}/{PENDING}")]
    if pending:
        raise Wrong(f"still pending after all is well: {pending[:3]}")
    late = _refused_names(oracle)
    here, refused = oracle.rows.keys() | oracle.dropped, _refused(oracle, late) | oracle.given_up
    if missing := [name for name in txlogs if name in oracle.waiting and name not in late]:
        raise Wrong(f"confirmed txlogs are missing: {missing[:3]}")
    for rows in confirmed.values():
        if missing := [key for key in rows if key not in here and key not in refused]:
            raise Wrong(f"confirmed rows are missing: {missing[:5]}")
    marks = folder_files.marks(oracle.table.properties[MARKS])
    positions = marks.positions
    for name in sources:
        reached = int(positions.get(name, b"0"))
        if lost := [number for number in range(1, reached + 1) if f"{name}-{number}" not in here]:
            raise Wrong(f"{name} has position {reached}, and rows are missing: {lost[:5]}")
    _look_at_channels(marks, here)
    if oracle.keyed:
        oracle.check_keys()
    gone = [location for location in oracle.needed() if not oracle.disk.has(location)]
    if gone:
        raise Wrong(f"needed files are gone: {gone[:3]}")
    oracle.counts["rows"] += len(oracle.rows)


def _look_at_channels(marks: folder_files.Marks, here: Collection[str]) -> None:
    for slot, offsets in marks.offsets.items():
        for channel, offset in offsets.items():
            wanted = [f"{slot}.{channel}-{number}" for number in range(1, int(offset) + 1) if has_row(number)]
            if missing := [row for row in wanted if row not in here]:
                raise Wrong(f"channel {channel} of {slot} has offset {offset}, and rows are missing: {missing[:5]}")


def has_row(number: int) -> bool:
    """Whether an offset of a slot's channel has a row; of others the source has none (aborted, skipped)."""
    return number % 6 in (1, 2, 3)


def reasons(oracle: Oracle) -> dict[str, str]:
    """Why each txlog lies in rejected/."""
    there = dict(oracle.disk.under(f"{oracle.folder}/{REJECTED}"))
    names = [at for at in there if at.endswith(TXLOG)]
    kept = {at: there.get(f"{at}{REASON}") for at in names}
    return {at.rpartition("/")[2]: folder_files.reason(item.data) if item else "" for at, item in kept.items()}


def _refused_names(oracle: Oracle) -> set[str]:
    """Txlogs of a keyed table that came too late."""
    return {name for name, why in reasons(oracle).items() if why in LATE} if oracle.keyed else set()


def _refused(oracle: Oracle, names: Iterable[str]) -> set[str]:
    """Their rows: kept in rejected/, and newer versions may be in. Files of a paused writer may be swept."""
    files = [path for name in names if name in oracle.waiting for path in oracle.waiting[name].files]
    rows = {row for path in files if oracle.disk.has(path) for row in oracle.rows_of(path)}
    oracle.counts["rows refused for good"] += len(rows)
    return rows
