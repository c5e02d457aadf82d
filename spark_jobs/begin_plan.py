"""
What is in a checkpoint before its query has planned a batch: the plan of its beginning, and its first offset.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from bookkeeper.errors import Missing, NotPossible, Unfit

if TYPE_CHECKING:
    from bookkeeper.history.checkpoint import Offset
    from spark_jobs.hadoop import HadoopCheckpointStore

PLAN = "bookkeeper-begin.json"
VERSION = 1
_NO_PLAN = "Is it of another program? Without it the first batch is read again: empty the output before you remove it."


@dataclass(frozen=True, slots=True)
class Plan:
    """
    How a query begins: `snapshot` is read in a batch (None: an empty table) where `batch` says so, `offset` is seeded.

    `id` names it, `start` is the word or time it was made for, and `note` is what the output said before it.
    """

    table: str
    start: str
    id: str
    offset: Offset
    batch: bool
    note: int | None = None

    @property
    def snapshot(self) -> int | None:
        """The snapshot behind which the stream begins."""
        return self.offset.snapshot


def has_begun(store: HadoopCheckpointStore) -> bool:
    """
    Whether the query of this checkpoint goes on by itself: it has planned a batch, or its first offset is a plan's.

    Raises NotPossible for a plan that cannot be read, StorageUnavailable.
    """
    from bookkeeper.history import checkpoint as checkpoints

    if checkpoints.has_begun(store):
        return True
    plan = plan_in(store)
    return plan is not None and _first_offset(store) == plan.offset


def plan_in(store: HadoopCheckpointStore) -> Plan | None:
    """
    The plan in the checkpoint, None where there is none; raises NotPossible, StorageUnavailable.
    """
    where = f"{store.url}/{PLAN}"
    try:
        return loads(store.read(PLAN), where)
    except Missing:
        return None
    except Unfit as exc:
        raise NotPossible(f"{where} holds no plan of a first batch: {exc}", hint=_NO_PLAN) from exc


def _first_offset(store: HadoopCheckpointStore) -> Offset | None:
    from bookkeeper.history.checkpoint import CheckpointUnreadable, initial_key, parse_offset

    try:
        return parse_offset(store.read(initial_key(None)).decode(errors="replace"), store.url)
    except (Missing, CheckpointUnreadable):
        return None


def seed_text(offset: Offset) -> str:
    """
    A first offset as Iceberg writes it.
    """
    from bookkeeper.history.checkpoint import BEGINNING as EMPTY

    if offset.snapshot is None:
        return json.dumps(EMPTY, separators=(",", ":"))
    own = {"snapshot_id": offset.snapshot, "position": offset.position, "scan_all_files": offset.whole}
    return json.dumps({**EMPTY, **own}, separators=(",", ":"))


def dumps(plan: Plan) -> bytes:
    """
    The bytes of a plan.
    """
    data = {
        "version": VERSION,
        "table": plan.table,
        "start": plan.start,
        "id": plan.id,
        "offset": json.loads(seed_text(plan.offset)),
        "batch": plan.batch,
        "note": plan.note,
    }
    return json.dumps(data, indent=1).encode() + b"\n"


def loads(data: bytes, where: str) -> Plan:
    """
    The plan in `data`, which `where` holds; raises NotPossible.
    """
    from bookkeeper.format import json_text
    from bookkeeper.history.checkpoint import CheckpointUnreadable, parse_offset

    try:
        raw = json_text.loads(data)
        if raw["version"] != VERSION:
            raise NotPossible(
                f"{where} has version {raw['version']!r:.40}, {VERSION} is known", hint="Upgrade this program."
            )
        texts: list[Any] = [raw[key] for key in ("table", "start", "id")]
        note, batch = raw["note"], raw["batch"]
        is_typed = all(isinstance(text, str) for text in texts) and type(batch) is bool
        if is_typed and (note is None or type(note) is int):
            table, start, name = texts
            return Plan(table, start, name, parse_offset(json.dumps(raw["offset"]), where), batch, note)
    except (ValueError, KeyError, TypeError, RecursionError, CheckpointUnreadable):
        pass
    raise NotPossible(f"{where} holds no plan of a first batch", hint=_NO_PLAN)
