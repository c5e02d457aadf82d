"""
Which micro-batch of which query a txlog holds, and whether a checkpoint is the one that a writer's chain of txlogs
was written by.

Spark plans batch N by writing `offsets/N`, once, before it runs the batch, and gives the batch again until `commits/N`
is there. So the query's id, the number and the digest of `offsets/N` name what the batch holds.
"""

from __future__ import annotations

import hashlib
import json
import re
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

from bookkeeper.errors import Missing, NotPossible

if TYPE_CHECKING:
    from bookkeeper.history.checkpoint_store import CheckpointReading

_POSITION = re.compile(r"spark/([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})/(0|[1-9][0-9]{0,18})/([0-9a-f]{32})")
_QUERY = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_NOT_THIS = (
    "checkpoint= must be the query's checkpointLocation. Continuous and asynchronous progress are not supported."
)
_OTHER_NAME = "Give each query a name= of its own."
_TAKE_OVER = (
    "Or end what writes under this name, see to what is rejected of it (`bookkeeper rejected`), and start the query "
    "once with take_over={!r}: it goes on behind that."
)
_NEWEST = (
    "Start the query with the checkpoint that it used last, or, where that is lost, with a new one and a new name=: "
    "a new checkpoint reads its source from where the source's options say, so set them to where the table ends."
)


class BatchPosition(NamedTuple):
    """The position of a writer that publishes a query's micro-batches: the one that it has published last."""

    query: str
    batch: int
    digest: str

    def __str__(self) -> str:
        return f"spark/{self.query}/{self.batch}/{self.digest}"

    def encoded(self) -> bytes:
        """The bytes of the position: less than 128."""
        return str(self).encode()

    def is_of(self, position: bytes) -> bool:
        """Whether a writer's position is of the same query."""
        return position.startswith(f"spark/{self.query}/".encode())

    @classmethod
    def parse(cls, position: bytes, writer: str) -> BatchPosition:
        """Raises NotPossible where the position is not of a query."""
        found = _POSITION.fullmatch(position.decode("latin-1"))
        if found is None:
            why = f"the writer {writer} has another source than a Spark query"
            raise NotPossible(why, hint=f"{_OTHER_NAME} {_TAKE_OVER.format(position.decode('utf-8', 'replace'))}")
        return cls(found[1], int(found[2]), found[3])


class QueryCheckpoint:
    """What a query's checkpoint says of its batches."""

    def __init__(self, store: CheckpointReading) -> None:
        self._store = store

    def position(self, batch: int, query: str | None) -> BatchPosition:
        """
        The position that a writer reaches with this batch of the query (None: of any); raises NotPossible where this is
        another query's checkpoint, or has not planned the batch.
        """
        found, digest = self.query(), self._digest(batch)
        if query not in (None, found):
            raise NotPossible(
                f"{self._store.url} is not the checkpoint of this query: {found} in place of {query}", hint=_NOT_THIS
            )
        if digest is None:
            raise NotPossible(f"{self._store.url}/offsets/{batch} is not there", hint=_NOT_THIS)
        return BatchPosition(found, batch, digest)

    def query(self) -> str:
        """The id that the query has for as long as the checkpoint lives; raises NotPossible."""
        try:
            said = json.loads(self._store.read("metadata"))
        except (Missing, ValueError, RecursionError) as exc:
            raise NotPossible(f"{self._store.url}/metadata is not there or not readable", hint=_NOT_THIS) from exc
        found = said.get("id") if isinstance(said, dict) else None
        if not isinstance(found, str) or not _QUERY.fullmatch(found):
            raise NotPossible(f"{self._store.url}/metadata has no id of a query", hint=_NOT_THIS)
        return found

    def has_published(self, last: bytes | None, given: BatchPosition, writer: str) -> bool:
        """
        Whether the batch `given` is the one that the writer's chain ends with, at `last`.

        Raises NotPossible where the chain is another query's, or ahead of the checkpoint: rows would be left out.
        """
        if last is None:
            return False
        published = BatchPosition.parse(last, writer)
        if published == given:
            return True
        if published.query != given.query:
            why = f"the writer {writer} continues the query {published.query}; {self._store.url} is of {given.query}"
            raise NotPossible(why, hint=f"{_OTHER_NAME} {_NEWEST} {_TAKE_OVER.format(str(published))}")
        if given.batch <= published.batch:
            self._refuse(f"Spark gave batch {given.batch}", published, writer)
        return False

    def check_planned(self, last: bytes, writer: str) -> None:
        """
        Raises NotPossible where this checkpoint did not plan the batch at `last`: a copy of it has gone on by itself.

        Of batches long ago Spark removes the plans, the oldest first.
        """
        published = BatchPosition.parse(last, writer)
        digest = self._digest(published.batch)
        if digest == published.digest or (digest is None and published.batch < self._oldest()):
            return
        self._refuse(f"its batch {published.batch} is not the one that was published", published, writer)

    def _refuse(self, what: str, published: BatchPosition, writer: str) -> None:
        raise NotPossible(
            f"the checkpoint {self._store.url} is an old or a second one of its query: {what}, and the writer {writer} "
            f"has published up to batch {published.batch}",
            hint=_NEWEST,
        )

    def _digest(self, batch: int) -> str | None:
        with suppress(Missing):
            return hashlib.sha256(self._store.read(f"offsets/{batch}")).hexdigest()[:32]
        return None

    def _oldest(self) -> int:
        names = (item.key.removeprefix("offsets/") for item in self._store.list("offsets/"))
        return min((int(name) for name in names if name.isascii() and name.isdecimal()), default=0)
