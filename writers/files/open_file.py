"""
A data file in the making: what Parquet and Avro files have in common.
"""

from dataclasses import dataclass
from typing import Any, Protocol

import pyarrow as pa  # type: ignore[import-untyped]

from bookkeeper.format.bounds import Metrics


@dataclass(frozen=True, slots=True)
class Finished:
    """A complete data file in memory."""

    data: Any
    rows: int
    metrics: Metrics


class OpenFile(Protocol):
    """A data file that still takes rows."""

    rows: int

    def room(self) -> int:
        """About how many bytes of Arrow data it takes until it is worth another look."""

    def add(self, rows: pa.Table) -> None:
        """Take rows in the file's Arrow schema."""

    def size(self) -> int:
        """About how many bytes it has by now."""

    def held(self) -> int:
        """About how many bytes of memory it holds."""

    def full(self) -> bool:
        """Whether it has reached its target size."""

    def finish(self) -> Finished:
        """Complete it."""
