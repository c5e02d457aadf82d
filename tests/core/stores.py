"""
The backends that the contract suites of Store and Folder run on.

Another one (an object store) is another function here and its name in BACKENDS; the suites stay as they are.
"""

import uuid
from collections.abc import Callable
from pathlib import Path

from bookkeeper.core.store import Store, open_store

#: opens the same place again: a Store of its own, as another process would have it
Opener = Callable[[], Store]


def local(path: Path) -> Opener:
    """
    A directory that is there; "" is listed empty.
    """
    root = path / "store"
    root.mkdir()
    return lambda: open_store(f"file://{root}")


def memory(path: Path) -> Opener:
    """
    A place in this process's memory that no other test uses.
    """
    url = f"memory://{uuid.uuid4()}"
    return lambda: open_store(url)


BACKENDS: dict[str, Callable[[Path], Opener]] = {"local": local, "memory": memory}


def content(store: Store) -> dict[str, bytes]:
    """
    Every object and its bytes.
    """
    return {item.key: store.read(item.key) for item in store.list("")}
