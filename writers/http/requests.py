"""
What the front hands to the thread of a writer, and the answer that comes back.
"""

import asyncio
import json
import re
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa  # type: ignore[import-untyped]

#: a line of a body and its number, from 1
Line = tuple[int, bytes]
PRODUCER = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:-]{0,99}")
MOST_SEQUENCE = 10**18 - 1
#: bad rows that an answer names, within so many bytes and signs each: another instance passes on 64 KiB at most
MOST_NAMED, _NAMED_BYTES, _ERROR_SIGNS = 100, 2**15, 200
NOTHING_TAKEN = "Nothing of this request was taken: mend the rows, and send all of it again."


@dataclass(frozen=True)
class Answer:
    """The status, the JSON object and the headers of an answer."""

    status: int
    body: Mapping[str, Any]
    headers: Mapping[str, str] = field(default_factory=dict)
    #: the address of the instance that can answer in its place
    owner: str = ""


def refused(status: int, error: str, hint: str = "", after: int | None = None, **more: Any) -> Answer:
    """
    An answer that says what happened and what to do; `after`: seconds until the request is worth another try.
    """
    body = {"error": error, **({"hint": hint} if hint else {}), **more}
    return Answer(status, body, headers_of(status, after))


def headers_of(status: int, after: int | None = None) -> dict[str, str]:
    """
    Headers that an answer of this status has; `after` as in `refused`.
    """
    asked = {"WWW-Authenticate": "Bearer"} if status == 401 else {}
    return asked if after is None else {**asked, "Retry-After": str(after)}


class Refused(Exception):
    """A request that is answered with `answer`, and of which nothing is taken."""

    def __init__(self, answer: Answer) -> None:
        super().__init__(answer.body["error"])
        self.answer = answer


class Bad:
    """Rows of a request that are none: all are counted, and the first ones named."""

    def __init__(self) -> None:
        self.count, self._named, self._size = 0, list[dict[str, object]](), 0

    def add(self, row: int, error: str) -> None:
        """A row by its number, from 1, and what is wrong with it."""
        self.count += 1
        item: dict[str, object] = {"row": row, "error": printable(error)}
        self._size += len(json.dumps(item))
        if len(self._named) < MOST_NAMED and self._size <= _NAMED_BYTES:
            self._named.append(item)

    def body(self) -> dict[str, object]:
        """What an answer says of them."""
        return {"bad": self.count, "bad_rows": self._named}

    def refused(self, status: int, hint: str) -> Answer:
        """The answer that nothing is taken, because of the first of them."""
        row, error = self._named[0]["row"], self._named[0]["error"]
        found = refused(status, f"row {row}: {error}", hint)
        return replace(found, body={**found.body, "row": row, **self.body()})


def printable(error: str) -> str:
    """
    A text of others for an answer: not long, and UTF-8.
    """
    cut = error if len(error) <= _ERROR_SIGNS else f"{error[:_ERROR_SIGNS]}..."
    return cut.encode("utf-8", "backslashreplace").decode()


class Partial(list[Line]):
    """
    Lines of which the good ones are taken: the reader of rows says in `bad` which are none.
    """

    def __init__(self, lines: Iterable[Line]) -> None:
        super().__init__(lines)
        self.bad = Bad()


class ArrowRows(list[Line]):
    """
    Rows that came as an Arrow stream, whose bytes are `body`. As lines they are one that is never read as a row.
    """

    def __init__(self, table: pa.Table, body: bytes) -> None:
        super().__init__([(1, b"\0")])
        self.table, self.body = table, body


class Mailbox:
    """Answers that threads give and the loop takes: it is woken once for all that are given meanwhile."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._given = deque[tuple[asyncio.Future[Answer], Answer]]()
        self._is_woken = False

    def future(self) -> "asyncio.Future[Answer]":
        """A new one of the loop."""
        return self._loop.create_future()

    def put(self, future: "asyncio.Future[Answer]", answer: Answer) -> None:
        """An answer; to be called by any thread."""
        self._given.append((future, answer))
        if not self._is_woken:
            self._is_woken = True
            with suppress(RuntimeError):  # the loop has ended
                self._loop.call_soon_threadsafe(self._take)

    def _take(self) -> None:
        self._is_woken = False  # before it looks: what is put from now on wakes the loop again
        while self._given:
            settle(*self._given.popleft())


def settle(future: "asyncio.Future[Answer]", answer: Answer) -> None:
    """
    Gives the answer, where there is none yet; to be called by the loop.
    """
    if not future.done():
        future.set_result(answer)


class Pending:
    """
    A request that waits for its answer, which the thread of a writer gives and the front's loop takes.
    """

    #: of its body, in bytes
    size = 0

    def __init__(self, mailbox: Mailbox) -> None:
        #: whether the thread of the writer has answered it; the future is set by the loop
        self.given = False
        self._mailbox, self.future = mailbox, mailbox.future()

    @property
    def answered(self) -> bool:
        """Whether it has an answer, or waits no longer."""
        return self.given or self.future.done()

    def answer(self, answer: Answer) -> None:
        """Answers it; later answers count for nothing. To be called by the thread of the writer."""
        self.given = True
        self._mailbox.put(self.future, answer)


class Ask(Pending):
    """How far a producer is published and committed."""

    def __init__(self, mailbox: Mailbox, producer: str) -> None:
        super().__init__(mailbox)
        self.producer = producer


class Post(Pending):
    """
    Rows of one request; `lines` are its lines but blank ones, or ArrowRows. A named producer's has a sequence, else 0.
    """

    def __init__(
        self,
        mailbox: Mailbox,
        lines: Sequence[Line],
        size: int,
        producer: str = "",
        sequence: int = 0,
        until_published: bool = False,
    ) -> None:
        super().__init__(mailbox)
        self.lines, self.size = lines, size
        self.producer, self.sequence, self.until_published = producer, sequence, until_published
        #: whether its sequence was reached before it came
        self.is_duplicate = False

    @property
    def bad(self) -> Bad:
        """Its rows that are not taken, while others are."""
        return self.lines.bad if isinstance(self.lines, Partial) else Bad()

    @property
    def rows(self) -> int:
        """How many rows are taken with it."""
        count = self.lines.table.num_rows if isinstance(self.lines, ArrowRows) else len(self.lines)
        return int(count) - self.bad.count

    def answer(self, answer: Answer) -> None:
        """See Pending; an answer that rows are taken says which are not."""
        bad = self.bad
        if answer.status in (200, 202) and bad.count:
            if self.rows:
                answer = replace(answer, body={**answer.body, **bad.body()})
            elif self.producer:
                found = bad.refused(422, "Its sequence is taken: go on with the next one.")
                answer = replace(found, body={**found.body, **answer.body})
            else:
                answer = bad.refused(422, NOTHING_TAKEN)
        super().answer(answer)
