"""
Asks the bookkeeper for columns, and waits until the card has them or they are refused.
"""

from collections.abc import Callable, Sequence
from datetime import timedelta
from functools import partial

from pyiceberg.types import PrimitiveType

from bookkeeper.core import column_requests
from bookkeeper.core.card import Card
from bookkeeper.core.column_requests import ADD, ColumnRequest, check_name, encode, promotes, type_of
from bookkeeper.core.folder import Folder
from bookkeeper.errors import Backpressure, ColumnRefused
from writers.timing import Clock, Wait, retry

#: columns that a writer asks for at once, and refusals after which it asks for nothing more: names that are data, and
#: differ from line to line, must not make it wait for ever
MOST_ASKED, MOST_REFUSED = 100, 200
FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS = 0.25, 2.0


class ColumnAsker:
    """
    Asks for columns; `refused` has what was not granted in this run, which is not asked for again.
    """

    def __init__(self, folder: Folder, clock: Clock, wait: Wait, patience: timedelta) -> None:
        self._folder, self._clock, self._wait, self._patience = folder, clock, wait, patience
        self.refused: dict[ColumnRequest, ColumnRefused] = {}

    def wanted(self, requests: Sequence[ColumnRequest], card: Card) -> list[ColumnRequest]:
        """What is worth asking for: the card allows it, and it was not refused before, nor for its name."""
        wanted = list[ColumnRequest]()
        for request in dict.fromkeys(requests):
            room = min(MOST_ASKED - len(wanted), MOST_REFUSED - len(self.refused))
            if card.takes(request.change) and request not in self.refused and room > 0:
                try:
                    check_name(request.name)
                    wanted.append(request)
                except ColumnRefused as why:
                    self.refused[request] = why
        return wanted

    def ask(self, wanted: Sequence[ColumnRequest], read_card: Callable[[], Card]) -> None:
        """
        Returns once the card has each of these columns, or it is refused, or the table grants none any more.

        Raises Backpressure when no bookkeeper answers within the patience, or when `wait` returns True. The requests
        stay: to ask again finds them, or their answers.
        """
        began, published, seconds = self._clock(), False, FIRST_PAUSE_SECONDS
        while waiting := self._unanswered(wanted, read_card()):
            if not published:
                for request in waiting:
                    retry(partial(column_requests.publish, self._folder, request), self._wait)
                published = True
            if self._clock() - began >= self._patience or self._wait(seconds) is True:
                names = ", ".join(repr(request.name) for request in waiting)
                hint = "Is the bookkeeper running? These rows were not taken: give them again, the request stays."
                raise Backpressure(f"the bookkeeper has not answered a request for {names[:500]}", hint=hint)
            seconds = min(seconds * 2, LONGEST_PAUSE_SECONDS)

    def _unanswered(self, wanted: Sequence[ColumnRequest], card: Card) -> list[ColumnRequest]:
        names = {encode(request)[0]: request for request in wanted if card.takes(request.change)}
        names = {name: request for name, request in names.items() if not _has(card, request)}
        if names:
            # An answer to another writer stands for a while: what was just refused is not asked for again.
            answers = retry(partial(column_requests.refusals, self._folder, list(names)), self._wait)
            self.refused |= {names[name]: why for name, why in answers.items()}
        return [request for request in names.values() if request not in self.refused]


def _has(card: Card, request: ColumnRequest) -> bool:
    there = next((field.field_type for field in card.schema.fields if field.name == request.name), None)
    if there is None or request.change == ADD:
        return there is not None
    return isinstance(there, PrimitiveType) and promotes(type_of(request.type), there)
