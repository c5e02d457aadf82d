"""
What the front hands to the thread of a writer, and the answer that comes back.
"""

import asyncio
import re
from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

#: a line of a body and its number, from 1
Line = tuple[int, bytes]
PRODUCER = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:-]{0,99}")
MOST_SEQUENCE = 10**18 - 1
_NUMBER = re.compile(r"[0-9]{1,18}")


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
    return Answer(status, body, {} if after is None else {"Retry-After": str(after)})


class Refused(Exception):
    """A request that is answered with `answer`, and of which nothing is taken."""

    def __init__(self, answer: Answer) -> None:
        super().__init__(answer.body["error"])
        self.answer = answer


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
        #: set by the thread of the writer; the future is set by the loop
        self._given = False
        self._mailbox, self.future = mailbox, mailbox.future()

    @property
    def answered(self) -> bool:
        """Whether it has an answer, or waits no longer."""
        return self._given or self.future.done()

    def answer(self, answer: Answer) -> None:
        """Answers it; later answers count for nothing. To be called by the thread of the writer."""
        self._given = True
        self._mailbox.put(self.future, answer)


class Ask(Pending):
    """How far a producer is published and committed."""

    def __init__(self, mailbox: Mailbox, producer: str) -> None:
        super().__init__(mailbox)
        self.producer = producer


class Post(Pending):
    """
    Rows of one request; `lines` are its lines but blank ones. A named producer's has a sequence, else 0.
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
        self.lines, self.size, self.rows = lines, size, len(lines)
        self.producer, self.sequence, self.until_published = producer, sequence, until_published
        #: whether its sequence was reached before it came
        self.is_duplicate = False


def number_of(offset: str | None) -> int | None:
    """
    The sequence that an offset says: 0 of a producer without one; None where it is no sequence.
    """
    if offset is None:
        return 0
    return int(offset) if _NUMBER.fullmatch(offset) else None
