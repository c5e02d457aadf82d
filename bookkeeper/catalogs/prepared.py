"""
A commit in two parts: what can be written beforehand, beside the manifests, and the compare-and-swap itself.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from pyiceberg.table import CommitTableResponse


@dataclass(frozen=True, slots=True)
class PreparedCommit:
    """
    `swap` is sent once, and only after all `writes` are done: what it makes current must be durable.

    A write that fails, or a crash before the swap, leaves files that nothing names; the orphan sweep deletes them.
    """

    writes: Sequence[Callable[[], None]]
    swap: Callable[[], CommitTableResponse]

    def commit(self) -> CommitTableResponse:
        """Both parts, one after the other."""
        for write in self.writes:
            write()
        return self.swap()
