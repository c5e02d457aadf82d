"""
`rejected-rows`: the live dead letters of a table of them. Reads one data file after the other.
"""

import heapq
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]

from bookkeeper.commands.live_rows import live_rows
from bookkeeper.config.dead_letters import KEY, SCHEMA
from bookkeeper.contract import letter_export
from bookkeeper.contract.keyed import keyed_of
from bookkeeper.errors import NotPossible
from bookkeeper.format.python_rows import python_rows
from bookkeeper.ledger.ledger import Ledger
from bookkeeper.ledger.view import View

#: bytes of a value that are shown, and letters that are made objects of Python together
START_BYTES, _TOGETHER = 200, 500
#: pairs of topic and reason that are counted one by one
MOST_REASONS = 1000
OTHERS = "(other reasons)"
_NAMES = [str(column["name"]) for column in SCHEMA]


@dataclass(frozen=True)
class Wanted:
    """Which letters; None: any."""

    source: str | None = None
    topic: str | None = None
    since: datetime | None = None

    def of(self, rows: pa.Table) -> pa.Table:
        """Those among these rows."""
        for name, value in (("source", self.source), ("topic", self.topic)):
            if value is not None:
                rows = rows.filter(pc.equal(rows[name], value))
        if self.since is not None:
            since = pa.scalar(self.since, rows["rejected_at"].type)
            rows = rows.filter(pc.greater_equal(rows["rejected_at"], since))
        return rows


class RejectedRows:
    """
    The dead letters of the table at one snapshot. Raises NotPossible for a table of other columns or keys; its methods
    raise Retry and CannotRead.
    """

    def __init__(self, ledger: Ledger, view: View, wanted: Wanted) -> None:
        self._ledger, self._view, self._wanted = ledger, view, wanted
        keyed, schema = keyed_of(view.metadata), view.metadata.schema()
        fields = {field.name: field.field_id for field in schema.fields}
        missing = [name for name in _NAMES if name not in fields]
        if keyed is None or missing or {*keyed.key_ids} != {fields[name] for name in KEY}:
            why = f"it has no column {missing[0]!r}" if missing else f"its keys are not {', '.join(KEY)}"
            hint = "`dead-letters = true` in [tables.NAME] and `bookkeeper init` make one."
            raise NotPossible(f"{ledger.identifier} is no table of dead letters: {why}", hint=hint)
        self._keyed, self._ids = keyed, [fields[name] for name in _NAMES]

    def _files(self) -> Iterator[pa.Table]:
        for rows in live_rows(self._ledger, self._view, self._keyed, self._ids):
            yield self._wanted.of(rows.select(_NAMES))

    def by_reason(self) -> tuple[int, list[dict[str, Any]]]:
        """How many letters there are, and how many of each source, topic and reason, the most first."""
        counts = Counter[tuple[str, str | None, str | None]]()
        names = ["source", "topic", "reason"]
        for rows in self._files():
            found = rows.select(names).group_by(names).aggregate([([], "count_all")])
            for row in found.to_pylist():
                pair = row["source"], row["topic"], row["reason"]
                if pair not in counts and len(counts) >= MOST_REASONS:
                    pair = row["source"], row["topic"], OTHERS
                counts[pair] += row["count_all"]
        listed = sorted(counts.items(), key=lambda item: (-item[1], str(item[0])))
        return counts.total(), [{**dict(zip(names, pair, strict=True)), "rows": count} for pair, count in listed]

    def newest(self, limit: int) -> tuple[int, list[dict[str, Any]]]:
        """How many letters there are, and the newest of them, with the start of the value as text."""
        total, found = 0, list[dict[str, Any]]()
        for rows in self._files():
            total += rows.num_rows
            order = [("rejected_at", "descending"), ("channel", "ascending"), ("offset", "ascending")]
            first = rows.sort_by(order).slice(0, limit)
            start = pc.binary_slice(first["value"].cast(pa.binary()), 0, START_BYTES)
            shown = first.drop_columns(["key", "value", "headers"]).append_column("value", start)
            found = heapq.nlargest(limit, found + python_rows(shown), key=_age)
        return total, found

    def export(self, path: str) -> int:
        """Writes whole letters to a file, in one go; returns how many. Raises NotPossible."""
        view = self._view
        head: Mapping[str, Any] = {
            "table": self._ledger.identifier,
            "table_uuid": str(view.metadata.table_uuid),
            "snapshot": str(view.metadata.current_snapshot_id),
            "replayed": {
                name: marks.position.decode("ascii", "backslashreplace")
                for name, marks in view.marks.writers.items()
                if letter_export.is_replay(name) and marks.position is not None
            },
        }
        return letter_export.write(path, head, self._rows())

    def _rows(self) -> Iterator[dict[str, Any]]:
        for rows in self._files():
            # As a number: Python holds no time after the year 9999, and producers of Kafka may give any.
            times = rows["timestamp"].cast(pa.timestamp("ms", "UTC"), safe=False).cast(pa.int64())
            numbered = rows.set_column(rows.column_names.index("timestamp"), "timestamp", times)
            for part in numbered.to_batches(_TOGETHER):
                yield from part.to_pylist()


def _age(row: Mapping[str, Any]) -> float:
    at: datetime | None = row["rejected_at"]
    return float("-inf") if at is None else at.timestamp()
