"""
Which versions of objects a batch holds, and the position that its txlog reaches.

A plan is named by its number and the digest of its bytes, and never changes. Several runs may plan the same number; the
committed position says which plan counts. So what is read back is believed only where its digest is the one that the
table's marks say, and it was written by a run of this writer.
"""

import hashlib
import json
import re
from collections.abc import Sequence
from typing import NamedTuple

from bookkeeper.errors import NotPossible, PathRefused
from bookkeeper.format import json_text
from bookkeeper.stores.store import checked_key

#: of one plan, and the bytes of it, its keys and tags: of a key six for each byte, as JSON
MOST_OBJECTS, MOST_BYTES = 1000, 2**23
MOST_KEY_BYTES, MOST_NAME_BYTES, _MOST_TAG = 900, 200, 512
_VERSION = 1
#: what --go-on calls the position before the first plan
NO_POSITION = "none"
_POSITION = re.compile(r"watch/([1-9][0-9]{0,17})/([0-9a-f]{32})")
_HIDDEN = re.compile(r"(?:^|/)[._]")


class Planned(NamedTuple):
    """One version of an object: its key below the prefix, its tag, and its size in bytes."""

    key: str
    tag: str
    size: int


class WatchPosition(NamedTuple):
    """The position of a writer that watches a prefix: number and digest of the plan that it has published last."""

    number: int
    digest: str

    def __str__(self) -> str:
        return f"watch/{self.number}/{self.digest}"

    def encoded(self) -> bytes:
        """The bytes of the position: less than 64."""
        return str(self).encode()

    @classmethod
    def parse(cls, position: bytes | None, writer: str) -> "WatchPosition | None":
        """None before the first plan; raises NotPossible where the position is of another kind of source."""
        if position is None:
            return None
        found = _POSITION.fullmatch(position.decode("latin-1"))
        if found is None:
            said = position[:80].decode("utf-8", "backslashreplace")
            why = f"the writer {writer} has another source than a prefix: its position is {said}"
            raise NotPossible(why, hint="Give each source a --name of its own.")
        return cls(int(found[1]), found[2])


class Plan(NamedTuple):
    """The objects of one batch, published by `run`, an incarnation of the writer: no two plans are the same."""

    number: int
    run: str
    objects: Sequence[Planned]

    def encoded(self) -> bytes:
        """The bytes of the plan."""
        said = {"version": _VERSION, "plan": self.number, "run": self.run, "objects": [*map(list, self.objects)]}
        return json.dumps(said, separators=(",", ":")).encode()

    @property
    def position(self) -> WatchPosition:
        """What a txlog with its rows reaches."""
        return WatchPosition(self.number, digest_of(self.encoded()))

    @classmethod
    def parse(cls, data: bytes, position: WatchPosition) -> "Plan":
        """Raises NotPossible where it is not the plan of this position."""
        try:
            if digest_of(data) != position.digest:
                raise ValueError("its digest is another one")
            said = json_text.loads(data)
            if said["version"] != _VERSION or said["plan"] != position.number:
                raise ValueError("its version or number is another one")
            return cls(position.number, str(said["run"]), [*map(_planned, said["objects"][: MOST_OBJECTS + 1])])
        except (ValueError, LookupError, TypeError, PathRefused) as exc:
            why = f"the plan of {position} is not the one that was published: {str(exc)[:200]}"
            raise NotPossible(why, hint=other_prefix(position)) from exc


def other_prefix(last: WatchPosition | None) -> str:
    """
    What to do where a prefix is not the one that was read up to there.
    """
    return (
        "Was it restored, copied or emptied, or the table rolled back? Then objects that are in the table may lie here "
        "again, and rows of objects that were deleted may be missing: compare both. "
        f"--go-on={last or NO_POSITION} then takes all that lies here."
    )


def digest_of(data: bytes) -> str:
    """
    The digest of a plan's bytes.
    """
    return hashlib.sha256(data).hexdigest()[:32]


def is_hidden(key: str) -> bool:
    """
    Whether a segment of the key begins with `_` or `.`, as of what Hadoop passes over.
    """
    return _HIDDEN.search(key) is not None


def _planned(said: object) -> Planned:
    if not isinstance(said, list) or [*map(type, said)] != [str, str, int]:
        raise ValueError("no object of a plan")
    key, tag, size = said
    if is_hidden(checked_key(key)) or not 0 < len(tag) <= _MOST_TAG or size < 0:
        raise ValueError(f"no object of a plan: {key[:80]!r}")
    return Planned(key, tag, size)
