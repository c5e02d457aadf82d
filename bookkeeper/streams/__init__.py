"""
Consumers: those in Python, Spark's checkpoints, and the registry that says which snapshots each still needs.

`Consumer` and the places are loaded when they are asked for: they take pyarrow, which the registry does not need.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from bookkeeper.streams.consumer import Batch, Consumer
    from bookkeeper.streams.group import ConsumerGroup
    from bookkeeper.streams.keepers import DuckDBPlace, ParquetPlace, PostgresPlace, SqlitePlace
    from bookkeeper.streams.registration import FolderPlace

__all__ = [
    "Batch",
    "Consumer",
    "ConsumerGroup",
    "DuckDBPlace",
    "FolderPlace",
    "ParquetPlace",
    "PostgresPlace",
    "SqlitePlace",
]


def __getattr__(name: str) -> Any:
    if name in ("Batch", "Consumer"):
        from bookkeeper.streams import consumer as module
    elif name == "ConsumerGroup":
        from bookkeeper.streams import group as module  # type: ignore[no-redef]
    elif name == "FolderPlace":
        from bookkeeper.streams import registration as module  # type: ignore[no-redef]
    elif name in __all__:
        from bookkeeper.streams import keepers as module  # type: ignore[no-redef]
    else:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(module, name)
