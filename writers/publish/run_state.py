"""
What a run of a writer may do next.

    OPEN -- an error half-way through a write --> BROKEN        OPEN, BROKEN -- close() --> CLOSED
"""

from collections.abc import Iterator
from contextlib import contextmanager
from enum import Enum

from bookkeeper.errors import NotPossible


class State(Enum):
    """A run in one of these states takes rows and publishes only when it is OPEN."""

    OPEN = "is open"
    BROKEN = "failed half-way through a write"
    CLOSED = "was closed"


class RunState:
    """The state of a run, and how far its source was read: by the rows written last, and whether it has positions."""

    def __init__(self, writer: str) -> None:
        self._writer, self._state = writer, State.OPEN
        #: of the rows written last, since the last publish
        self.position: bytes | None = None
        self._has_positions = False

    @property
    def is_open(self) -> bool:
        """Whether the run goes on."""
        return self._state is State.OPEN

    def check(self) -> None:
        """Raises NotPossible where the run does not go on."""
        if not self.is_open:
            raise NotPossible(f"this run of {self._writer} {self._state.value}", hint="Open a new Writer.")

    def close(self) -> None:
        """The run has ended."""
        self._state = State.CLOSED

    @contextmanager
    def broken_by_errors(self) -> Iterator[None]:
        """An error in here ends the run: it is not known which of the rows were taken."""
        try:
            yield
        except BaseException:
            self._state = State.BROKEN
            raise

    def took(self, position: bytes | None) -> None:
        """Rows were written with this position."""
        self.position = position
        self._has_positions = self._has_positions or position is not None

    def published(self, position: bytes | None) -> None:
        """A txlog was published with this position."""
        self.took(position)
        self.position = None

    @property
    def comes_again(self) -> bool:
        """Whether the source still has the rows written last: they lack a position in a run that has positions."""
        return self._has_positions and self.position is None
