"""
The backends that the contract suites of Store and Folder run on.

Another one (an object store) is another function here and its name in BACKENDS; the suites stay as they are.
"""

import uuid
from collections.abc import Callable, Mapping
from pathlib import Path

from bookkeeper.stores.beneath import walk
from bookkeeper.stores.local import LocalStore
from bookkeeper.stores.open import open_store
from bookkeeper.stores.store import Store
from tests.servers.shared import place, shared, wanted

#: opens the same place again: a Store of its own, as another process would have it
Opener = Callable[[], Store]


def local(path: Path) -> Opener:
    """
    A directory that is there; "" is listed empty.
    """
    root = path / "store"
    root.mkdir()
    return lambda: open_store(f"file://{root}")


def walked(path: Path) -> Opener:
    """
    A directory whose files are opened folder by folder, as where the kernel has no openat2.
    """
    root = path / "walked"
    root.mkdir()
    return lambda: LocalStore(str(root), walk)


def memory(path: Path) -> Opener:
    """
    A place in this process's memory that no other test uses.
    """
    url = f"memory://{uuid.uuid4()}"
    return lambda: open_store(url)


def _remote(kind: str) -> Opener:
    server = wanted(kind)
    url = place(kind)
    return lambda: open_store(url, server.properties)


def azurite(path: Path) -> Opener:
    """
    A place in Azurite that no other test uses.
    """
    return _remote("azurite")


def s3(path: Path) -> Opener:
    """
    A place on an S3 server that no other test uses.
    """
    return _remote("s3")


def gcs(path: Path) -> Opener:
    """
    A place in a server that speaks Google's JSON API; only with GCS_TEST=1.
    """
    return _remote("gcs")


BACKENDS: dict[str, Callable[[Path], Opener]] = {
    "azurite": azurite,
    "gcs": gcs,
    "local": local,
    "memory": memory,
    "s3": s3,
    "walked": walked,
}


def open_at(url: str) -> Store:
    """
    The store at a URL that one of these openers gave, or below it.
    """
    return open_store(url, options_at(url))


def options_at(url: str) -> Mapping[str, str]:
    """
    How that place is reached.
    """
    kind = {"abfss": "azurite", "gs": "gcs", "s3": "s3"}.get(url.partition(":")[0])
    return shared(kind).properties if kind else {}


def rounds(stores: Opener, many: int, least: int = 5) -> int:
    """
    How often to try a race: fewer where each request goes to a server.
    """
    return many if stores().url.startswith(("file:", "memory:")) else max(least, many // 10)


def content(store: Store) -> dict[str, bytes]:
    """
    Every object and its bytes.
    """
    return {item.key: store.read(item.key) for item in store.list("")}
