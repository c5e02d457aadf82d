"""A directory as the folder's pending/ is, and a discovery that says what a test tells it to."""

import os
from collections.abc import Collection
from pathlib import Path

from bookkeeper.contract.names import TxlogName, new_incarnation
from bookkeeper.discover.discovery import LOOK, Hints

RUN = TxlogName("w", new_incarnation(1, b"0123456789"), 1)


def publish(directory: Path, name: TxlogName | str, data: bytes = b"txlog") -> None:
    """As LocalStore.create does: a temporary file, and a link to it under the name."""
    temporary = directory / f"{name}.0a1b2c.tmp"
    temporary.write_bytes(data)
    os.link(temporary, directory / str(name))
    temporary.unlink()


class Told:
    """A discovery with faults: it says what it was told, in this order, and nothing after that."""

    def __init__(self, *answers: Hints) -> None:
        self.answers = list(answers)
        self.closed = False

    def hints(self) -> Hints:
        return self.answers.pop(0) if self.answers else frozenset()

    def after(self, found: Collection[TxlogName], asked: Collection[TxlogName] = ()) -> Collection[TxlogName]:
        return ()

    def hinted(self) -> bool:
        return bool(self.answers) and (self.answers[0] == LOOK or bool(self.answers[0]))

    def wakes(self) -> Collection[int]:
        return () if self.closed else (0,)

    def close(self) -> None:
        self.closed = True
