"""
What a run of a writer may do next.

    OPEN -- task() --> TASKS -- take(), discard() --> OPEN
    OPEN -- an error half-way through a write --> BROKEN
    each of them -- close() --> CLOSED
"""

from collections.abc import Iterator
from contextlib import contextmanager
from enum import Enum

from bookkeeper.errors import NotPossible


class State(Enum):
    """A run takes rows and publishes when it is OPEN; in TASKS its next txlog is reserved for files of tasks."""

    OPEN = "is open"
    TASKS = "waits for the results of its tasks"
    BROKEN = "failed half-way through a write"
    CLOSED = "was closed"


class RunState:
    """The state of a run, and how far its source was read: by the rows written last, and whether it has positions."""

    def __init__(self, about: str, hint: str) -> None:
        self._about, self._hint, self._state = about, hint, State.OPEN
        #: of the rows written last, since the last publish
        self.position: bytes | None = None
        self._has_positions = False

    @property
    def goes_on(self) -> bool:
        """Whether the run is neither broken nor closed."""
        return self._state in (State.OPEN, State.TASKS)

    @property
    def has_tasks(self) -> bool:
        """Whether the next txlog is reserved for files of tasks."""
        return self._state is State.TASKS

    def check(self) -> None:
        """Raises NotPossible where the run takes no rows and publishes nothing."""
        self.check_goes_on()
        if self.has_tasks:
            raise NotPossible(
                f"this {self._about} {self._state.value}", hint="take(results) or discard(results) first."
            )

    def check_goes_on(self) -> None:
        """Raises NotPossible where the run is broken or closed."""
        if not self.goes_on:
            raise NotPossible(f"this {self._about} {self._state.value}", hint=self._hint)

    def check_tasks(self) -> None:
        """Raises NotPossible where no tasks are being waited for."""
        self.check_goes_on()
        if not self.has_tasks:
            hint = "The results of a task() are taken once, all together. Of other results discard() deletes the files."
            raise NotPossible(f"this {self._about} waits for no results", hint=hint)

    def reserve(self) -> None:
        """The next txlog is reserved for files of tasks."""
        self._state = State.TASKS

    def free(self) -> None:
        """The tasks are over."""
        self._state = State.OPEN

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
