"""A prefix on a disk that what was dropped there has filled: only taking it makes room."""

import errno
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bookkeeper.errors import StorageUnavailable
from bookkeeper.stores.local import LocalStore
from tests.support.wrapped import WrappedStore
from tests.watch.drops import Drops
from writers.watch.plan import Plan, Planned
from writers.watch.prefix import Prefix


def test_what_was_dropped_until_the_disk_was_full_is_taken_and_makes_room(tmp_path: Path) -> None:
    room, store = 2**20, LocalStore(str(tmp_path))

    def bounded(name: str, act: Callable[..., Any], *given: Any, **named: Any) -> Any:
        nonlocal room
        if name in ("replace", "create"):
            if len(given[1]) > room:
                raise StorageUnavailable("no room") from OSError(errno.ENOSPC, "no space left on device")
            room -= len(given[1])
        if name in ("delete_many", "delete_if"):
            keys = given[0] if name == "delete_many" else [given[0]]
            room += sum(item.size for item in store.list("") if item.key in keys)
        return act(*given, **named)

    full: Any = WrappedStore(store, bounded)
    Prefix(full, False).begin("w", "uuid", backfill=True)
    items = [Planned(key, store.replace(key, b"x" * 1000), 1000) for key in ("a", "b")]
    room = 0
    with pytest.raises(StorageUnavailable):
        full.create("c", b"more")
    prefix = Prefix(full, False)
    prefix.begin("w", "uuid", backfill=False)  # another start
    for number, item in enumerate(items, 1):
        plan = Plan(number, "run", [item])
        prefix.write(plan)
        prefix.finish(plan)
    assert ([item.key for item in prefix.objects()], prefix.stuck) == ([], {})
    full.create("c", b"more")


def test_an_object_that_is_no_rows_keeps_no_other_from_making_room() -> None:
    """Its copy below `_rejected/` needs room, and it is the oldest one."""
    drops = Drops()
    drops.store.replace("a", b"no rows\n")
    drops.put("b", "c")

    def full(name: str, act: Callable[..., Any], *given: Any, **named: Any) -> Any:
        if name == "create" and given[0].startswith("_rejected/") and {"b", "c"} & {*drops.dropped()}:
            raise StorageUnavailable("no room") from OSError(errno.ENOSPC, "no space left on device")
        return act(*given, **named)

    store: Any = WrappedStore(drops.store, full)
    drops.run(store=store)
    assert (drops.keys(), drops.dropped()) == (["b", "c"], [])
    assert len([key for key in drops.left() if key.startswith("_rejected/")]) == 2
