"""The name of `bookkeeper.consumers` in 0.1.0."""

from typing import Any

from bookkeeper import consumers


def __getattr__(name: str) -> Any:
    return getattr(consumers, name)
