"""
Asks the bookkeeper for columns that rows have and the table lacks, and waits until the card has them or they are
refused.
"""

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from functools import partial
from typing import NamedTuple, TypeVar

import pyarrow as pa  # type: ignore[import-untyped]
from pyiceberg.types import PrimitiveType

from bookkeeper.contract import column_requests
from bookkeeper.contract.card import Card
from bookkeeper.contract.column_requests import ADD, WIDEN, ColumnRequest, check_name, encode, promotes, type_of
from bookkeeper.contract.txlog_folder import Folder
from bookkeeper.errors import Backpressure, ColumnRefused, SchemaRefused
from writers.publish.card_follower import CardFollower
from writers.retries import backoff, retry
from writers.timing import Clock, Wait, Waited
from writers.values.cast import unknown_columns
from writers.values.unknown_fields import asked_type, wider_columns

T = TypeVar("T")
Act = Callable[[], None]

#: columns that a writer asks for at once, and refusals after which it asks for nothing more: names that are data, and
#: differ from line to line, must not make it wait for ever
MOST_ASKED, MOST_REFUSED = 100, 200
#: as long as the bookkeeper keeps a refusal; twice as long each time, for most reasons stay
ANSWER_STANDS, ANSWER_STANDS_MOST = timedelta(minutes=10), timedelta(days=1)
FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS = 0.25, 2.0


class _Answer(NamedTuple):
    """A refusal, when it came, and how long it stands."""

    why: ColumnRefused
    at: datetime
    stands: timedelta


class ColumnAsker:
    """
    Asks for columns; what was refused is not asked for again while the answer stands: a limit may be over by then.
    """

    def __init__(
        self,
        folder: Folder,
        cards: CardFollower,
        clock: Clock,
        wait: Wait,
        patience: timedelta,
        rows: Callable[[], int],
    ) -> None:
        """`rows` says how many rows are not published."""
        self._folder, self._cards, self._rows = folder, cards, rows
        self._clock, self._wait, self._patience = clock, wait, patience
        self._answers = dict[ColumnRequest, _Answer]()

    @property
    def refused(self) -> dict[ColumnRequest, ColumnRefused]:
        """What is not asked for again now, and why."""
        now = self._clock()
        return {request: it.why for request, it in self._answers.items() if timedelta(0) <= now - it.at < it.stands}

    def fit(self, table: pa.Table, adds: bool, fitted: Callable[[pa.Table], T], roll: Act) -> T:
        """
        What `fitted` makes of the rows, by the newest card and once the table has the columns that it grants them.

        `roll` reads the card anew; `adds` says whether columns may be added for these rows. Raises SchemaRefused, and
        like `ask`.
        """
        spec = self._cards.spec
        if unknown_columns(table.column_names, spec.schema, spec.former):
            roll()  # the columns may have been added to the table meanwhile
            if adds and self._cards.card.takes(ADD):
                table = self._with_columns_of(table, roll)
        try:
            return fitted(table)
        except SchemaRefused as exc:
            if self._cards.newer is not None:
                hint = "The table has changed: publish() what was written so far, then write these rows again."
                raise SchemaRefused(str(exc), hint=hint) from exc
            spec = self._cards.spec
            if not (spec.card.takes(WIDEN) and self.ask(wider_columns(table, spec.schema, spec.arrow), roll)):
                raise
        return fitted(table)

    def _with_columns_of(self, table: pa.Table, roll: Act) -> pa.Table:
        """Asks for the columns that the table lacks; the rows without those that are nothing but null."""
        spec = self._cards.spec
        unknown = set(unknown_columns(table.column_names, spec.schema, spec.former))
        columns = [*enumerate(zip(table.column_names, table.schema.types, strict=True))]
        empty = {index for index, (name, given) in columns if name in unknown and pa.types.is_null(given)}
        types = {name: asked_type(given) for index, (name, given) in columns if name in unknown and index not in empty}
        wanted = [ColumnRequest(ADD, name, given) for name, given in types.items() if given is not None]
        self.ask(wanted, roll)
        refused = self.refused
        for request in wanted:
            if (why := refused.get(request)) is not None:
                raise SchemaRefused(f"the table has no column {request.name!r}, and gets none: {why}", hint=why.hint)
        return table.select([index for index, _ in columns if index not in empty]) if empty else table

    def ask(self, requests: Sequence[ColumnRequest], roll: Act) -> bool:
        """Ask for what is worth asking for, wait for it, and `roll`; whether the writer's card has changed."""
        before = self._cards.card
        if wanted := self._wanted(requests, before):
            self._until_answered(wanted)
            roll()
        return self._cards.card != before

    def _wanted(self, requests: Sequence[ColumnRequest], card: Card) -> list[ColumnRequest]:
        """What is worth asking for: the card allows it, and it was not refused before, nor for its name."""
        wanted, refused = list[ColumnRequest](), self.refused
        for request in dict.fromkeys(requests):
            room = min(MOST_ASKED - len(wanted), MOST_REFUSED - len(self._answers))
            if card.takes(request.change) and request not in refused and room > 0:
                try:
                    check_name(request.name)
                    wanted.append(request)
                except ColumnRefused as why:
                    self._note(request, why)
        return wanted

    def _until_answered(self, wanted: Sequence[ColumnRequest]) -> None:
        """
        Returns once the card has each of these columns, or it is refused, or the table grants none any more.

        Raises Backpressure when no bookkeeper answers within the patience, or when `wait` returns True. The requests
        stay: to ask again finds them, or their answers.
        """
        waited, published, pauses = Waited(self._clock), False, backoff(FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS)
        while waiting := self._unanswered(wanted, self._cards.before_publish(self._rows())):
            if not published:
                for request in waiting:
                    retry(partial(column_requests.publish, self._folder, request), self._wait)
                published = True
            if waited() >= self._patience or self._wait(next(pauses)) is True:
                names = ", ".join(repr(request.name) for request in waiting)
                hint = "Is the bookkeeper running? These rows were not taken: give them again, the request stays."
                raise Backpressure(f"the bookkeeper has not answered a request for {names[:500]}", hint=hint)

    def _unanswered(self, wanted: Sequence[ColumnRequest], card: Card) -> list[ColumnRequest]:
        names = {encode(request)[0]: request for request in wanted if card.takes(request.change)}
        names = {name: request for name, request in names.items() if not _has(card, request)}
        if names:
            # An answer to another writer stands for a while: what was just refused is not asked for again.
            answers = retry(partial(column_requests.refusals, self._folder, list(names)), self._wait)
            for name, why in answers.items():
                self._note(names[name], why)
        refused = self.refused
        return [request for request in names.values() if request not in refused]

    def _note(self, request: ColumnRequest, why: ColumnRefused) -> None:
        before = self._answers.get(request)
        stands = ANSWER_STANDS if before is None else min(2 * before.stands, ANSWER_STANDS_MOST)
        self._answers[request] = _Answer(why, self._clock(), stands)


def _has(card: Card, request: ColumnRequest) -> bool:
    there = next((field.field_type for field in card.schema.fields if field.name == request.name), None)
    if there is None or request.change == ADD:
        return there is not None
    return isinstance(there, PrimitiveType) and promotes(type_of(request.type), there)
