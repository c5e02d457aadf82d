"""
Reaper: expires snapshots, then deletes the files that nothing references any more.

`reap`, `outlook` and `Reaped` load pyiceberg only when asked for, so that `reaper --help` stays instant.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from reaper.result import Reaped as Reaped
    from reaper.run import outlook as outlook
    from reaper.run import reap as reap

__all__ = ["Reaped", "outlook", "reap"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'reaper' has no attribute {name!r}")
    from reaper import run

    return getattr(run, name)
