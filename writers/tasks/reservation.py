"""
The next txlog of a run, reserved for files of tasks: the task that is given out, and what may be taken of its results.
"""

from collections.abc import Callable, Collection, Iterable
from functools import partial
from typing import Any, TypeVar

from bookkeeper.contract.card import Card, dumps
from bookkeeper.contract.names import TxlogName
from bookkeeper.errors import BookkeeperError, NotPossible
from bookkeeper.stores.locations import join
from writers.files.rolling_writer import StoredFiles
from writers.files.write_spec import WriteSpec
from writers.tasks.handover import Handover
from writers.tasks.results import check_together, decode, locations
from writers.tasks.task import Task
from writers.timing import Clock

T = TypeVar("T")
_REFUSED = "Nothing was taken or deleted. Leave this result out: write its rows again, the sweep deletes its files."


class Reservation:
    """The reservations of a run, one after the other; each has a number, so that no result of an earlier one fits."""

    def __init__(self, clock: Clock, handed: Handover | None) -> None:
        """The first one is that of the run that was `handed` over."""
        self._clock, self._count = clock, 0
        if handed is not None:
            self._count, self.current, self.since = handed.task.reservation, handed.task, handed.since

    def begin(self, card: Card, name: TxlogName, keep: str, orders: int) -> None:
        """A new reservation of the txlog `name`."""
        self._count += 1
        #: its files are as old as this, at most
        self.since = self._clock()
        self.current = Task(dumps(card), *name, self._count, keep, orders)

    def checked(self, results: Iterable[Any], spec: WriteSpec) -> list[StoredFiles]:
        """The files of these results, those without files left out; raises NotPossible."""
        task = self.current
        found = _each(results, partial(decode, task.txlog, spec, task.reservation))
        _named("the results together", partial(check_together, task.txlog, found))
        return [item for item in found if item.operations]

    def to_delete(self, results: Iterable[Any], name: TxlogName, spec: WriteSpec, taken: Collection[str]) -> list[str]:
        """The keys, below the data path, of the files of results for the txlog `name`; raises NotPossible."""
        keys = [key for found in _each(results, partial(locations, name, spec)) for key in found]
        if named := [key for key in keys if join(spec.card.data_path, key) in taken]:
            hint = "publish(), or close the run: then the sweep deletes them."
            raise NotPossible(
                f"{named[0]} and {len(named) - 1} other files were taken: they are not deleted", hint=hint
            )
        return keys


def _each(results: Iterable[Any], act: Callable[[Any], T]) -> list[T]:
    return [_named(f"result {number}", partial(act, result)) for number, result in enumerate(results)]


def _named(what: str, act: Callable[[], T]) -> T:
    try:
        return act()
    except BookkeeperError as exc:
        raise NotPossible(f"{what}: {exc}", hint=_REFUSED) from exc
