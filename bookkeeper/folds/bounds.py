"""
Which data files can hold a deleted key, by the bounds of their columns: readers pass over the others in the same way.
"""

from typing import Any

import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]

from bookkeeper.format.entries import DataFile

_NUMBERS = {"int", "long", "date", "time", "timestamp", "timestamptz"}
#: of more values only the least and the greatest are compared with each file's bounds
MOST_VALUES = 100_000


class Values:
    """The distinct values of one key column that are deleted, as `physical` has them."""

    def __init__(self, field_id: int, kind: str, values: pa.Array) -> None:
        self.field_id, self.kind = field_id, kind
        self.has_null = values.null_count > 0
        values = values.drop_null()
        # Bounds of text are ordered by its bytes in UTF-8.
        self._values = values.cast(pa.large_binary()) if kind == "string" else values
        if len(self._values) > MOST_VALUES:
            ends = pc.min_max(self._values)
            self._least, self._greatest = ends["min"], ends["max"]
        else:
            self._least = self._greatest = None

    def may_be_in(self, file: DataFile) -> bool:
        """Whether the file can hold one of these values."""
        if self.has_null and file.null_value_counts.get(self.field_id) != 0:
            return True
        bounds = [self._bound(found.get(self.field_id)) for found in (file.lower_bounds, file.upper_bounds)]
        if None in bounds:
            return len(self._values) > 0
        lower, upper = bounds
        if self._least is not None:
            return bool(pc.less_equal(self._least, upper).as_py() and pc.greater_equal(self._greatest, lower).as_py())
        inside = pc.and_(pc.greater_equal(self._values, lower), pc.less_equal(self._values, upper))
        return bool(pc.any(inside, min_count=0).as_py())

    def _bound(self, raw: bytes | None) -> Any:
        """A bound as a scalar; None where it has none, or one of a kind that is not compared here."""
        if raw is None:
            return None
        if self.kind in _NUMBERS:  # of 4 bytes where the column was widened since
            return pa.scalar(int.from_bytes(raw, "little", signed=True), pa.int64())
        if self.kind == "string":
            return pa.scalar(raw, pa.large_binary())
        return None
