"""The embedded compactor on a lake of tests: a group of its live files, the rewrite, and the ticks that commit it."""

from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa

from bookkeeper.contract.pending_rewrites import pending_rewrites, rejected_rewrites
from bookkeeper.contract.rewrite import ReplacedFile
from reaper.compactor.group import Group
from reaper.compactor.worker import Rewritten, rewrite
from reaper.context import ReaperContext
from reaper.files.storage import Pace
from tests.support.compactor import base_of, live
from tests.support.lake import Lake


def rewritten(
    lake: Lake,
    files: Sequence[ReplacedFile] | None = None,
    *,
    spec_id: int = 0,
    last: bool = False,
    base: Any = None,
    open_store: Any = None,
    pace: Pace | None = None,
    bytes_per_second: int | None = None,
    stopped: Callable[[], bool] = lambda: False,
    **how: Any,
) -> Rewritten:
    """
    Publishes the rewrite of these live files, of all by default.
    """
    files = tuple(live(lake) if files is None else files)
    context = ReaperContext.of(
        lake.settings, lake.catalog, open_store or lake.store, lake.clock.now, pace=pace or Pace()
    )
    return rewrite(
        context,
        context.load(),
        base or base_of(lake),
        Group(spec_id, files[0].file.partition, files, "a test", last),
        now=lake.clock.now,
        bytes_per_second=bytes_per_second,
        stopped=stopped,
        **how,
    )


def committed(lake: Lake) -> None:
    """
    The bookkeeper takes up what is published, and rejects nothing.
    """
    book = lake.book()
    for _ in range(3):
        lake.tick(book, seconds=6)
    assert pending_rewrites(lake.folder) == []
    reasons = [lake.folder.reason(item.name) for item in rejected_rewrites(lake.folder)]
    assert reasons == []


def scanned(lake: Lake) -> list[dict[str, Any]]:
    """
    The rows as pyiceberg reads them, in an order of their own.
    """
    found: pa.Table = lake.table().scan().to_arrow()
    return sorted(found.to_pylist(), key=repr)
