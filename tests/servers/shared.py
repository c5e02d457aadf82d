"""
One server of a kind for a whole run, started when the first test wants it and ended with the run or the process.
"""

import uuid
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import cache
from multiprocessing.util import Finalize

from tests.servers.needed import needed
from tests.servers.objects import aws, azurite, bucket, gcs, s3
from tests.servers.process import Server, Unavailable

_KINDS = {"azurite": azurite, "s3": s3, "aws": aws, "gcs": gcs}
#: documented as unverified: a run without it is whole
_OPTIONAL = {"gcs"}


_ENDS: dict[str, Finalize] = {}


@cache
def _started(kind: str) -> "Server | Unavailable":
    stack = ExitStack()
    try:
        server = stack.enter_context(_KINDS[kind]())
    except Unavailable as exc:
        return exc
    # Not atexit: a process that multiprocessing started does not run that.
    _ENDS[kind] = Finalize(None, stack.close, exitpriority=1)
    return server


def shared(kind: str) -> Server:
    """
    The running server of this kind; raises Unavailable.
    """
    found = _started(kind)
    if isinstance(found, Unavailable):
        raise found
    return found


@contextmanager
def borrowed(kind: str) -> Iterator[Server]:
    """
    The same, ended afterwards unless it ran before: for a process that ends without a last word. Raises Unavailable.
    """
    before = kind in _ENDS
    try:
        yield shared(kind)
    finally:
        if not before and kind in _ENDS:
            _ENDS.pop(kind)()
            _started.cache_clear()
            _bucket.cache_clear()


def end() -> None:
    """
    Ends all of them now: a process of several that test is killed when it takes long to end.
    """
    while _ENDS:
        _ENDS.popitem()[1]()
    _started.cache_clear()
    _bucket.cache_clear()


def wanted(kind: str) -> Server:
    """
    The same for a test: skips it where the server cannot be had, fails it with CI=true unless it is optional.
    """
    with needed(kind, kind in _OPTIONAL):
        return shared(kind)


@cache
def _bucket(kind: str) -> str:
    return bucket(shared(kind), f"lake-{uuid.uuid4().hex[:8]}")


def place(kind: str) -> str:
    """
    A URL on the shared server below which there is nothing yet; raises Unavailable.
    """
    return f"{_bucket(kind)}/{uuid.uuid4().hex[:12]}"
