"""
Retention: the 100 oldest of so many live files go, five times in a row.

    python -m benchmarks.retention [--peer SCRIPT] [--big]

Entries only: no data file is looked at. The first time nothing is remembered of any manifest, as after a start.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import partial
from pathlib import Path

from benchmarks.support import floor
from benchmarks.support.harness import (
    FLOOR,
    HADOOP,
    JDBC,
    OURS,
    STOCK,
    Chosen,
    Timing,
    alone,
    median,
    now,
    timed,
    times,
)
from benchmarks.support.peers import HADOOP_CATALOG, JDBC_CATALOG, Peer
from benchmarks.support.synthetic import Queue, moment
from bookkeeper.catalogs.open import open_catalog
from bookkeeper.config.settings import Retention
from bookkeeper.retention.apply import apply_retention

MATCH, PER_TXLOG, PER_MANIFEST = 100, 10_000, 1_000


@dataclass(frozen=True, slots=True)
class Size:
    """How many live files; how many rounds; up to how many of them stock pyiceberg and the peer take part."""

    live: tuple[int, ...]
    rounds: int
    stock_most: int
    peer_most: int


SIZES = {
    "toy": Size((500,), 2, 500, 0),
    "short": Size((10_000, 100_000), 5, 100_000, 100_000),
    "big": Size((10_000, 100_000, 1_000_000), 5, 1_000_000, 1_000_000),
}
COLUMNS = ("live files", "time", OURS, FLOOR, HADOOP, JDBC, STOCK, "Hadoop / ours", "Jdbc / ours", "stock / ours")


def full_queue(root: Path, live: int) -> Queue:
    """
    A queue with so many live files, in the manifests that the engine makes of txlogs of 10,000.
    """
    queue = Queue.at(root)
    book = queue.book()
    while queue.files < live:
        queue.publish(1, min(PER_TXLOG, live - queue.files), now())
        turn = book.tick(now())
        assert turn.commit is not None, turn
    return queue


def settings_for(gone: int) -> tuple[Retention, timedelta]:
    """
    Retention that drops data files before number `gone`, and how long that keeps rows.
    """
    keep = now() - moment(gone)
    return Retention(keep=keep, every=timedelta(0), brake=1.0), keep


def ours_and_floor(queue: Queue, rounds: int) -> tuple[list[Timing], list[Timing]]:
    """
    Find and drop, and the same bytes written and fsynced.
    """
    book = queue.book()
    view = book.ledger.load(queue.card.folder)
    ours, least = [], []
    for turn in range(1, rounds + 1):
        before, found = floor.sizes_in(queue.metadata), []
        rule, _ = settings_for(turn * MATCH)
        drop = partial(apply_retention, book.ledger, view, rule, now())
        ours.append(timed(lambda drop=drop, found=found: found.append(drop())))  # type: ignore[misc]
        assert found[0].files == MATCH and found[0].after is not None, found
        view = replace(found[0].after)
        written = floor.written_since(before, queue.metadata)
        least.append(timed(partial(floor.write_all, queue.root / "floor", written)))
    return ours, least


def stock(queue: Queue, rounds: int) -> list[Timing]:
    """
    pyiceberg's delete_by_predicate on the same table.
    """
    from pyiceberg.expressions import LessThan

    table, taken = open_catalog(queue.catalog).load_table("ns.t"), []
    for turn in range(1, rounds + 1):
        rule = LessThan("timestamp", moment(turn * MATCH).isoformat())

        def drop(rule: LessThan = rule) -> None:
            with table.transaction() as change, change.update_snapshot().delete() as gone:
                gone.delete_by_predicate(rule)

        taken.append(timed(drop))
        head = table.current_snapshot()
        assert head is not None and head.summary is not None
        assert head.summary.additional_properties["deleted-data-files"] == str(MATCH)
    return taken


def java(peer: Peer, root: Path, catalog: str, live: int, rounds: int) -> list[Timing]:
    """
    The peer's `newDelete().deleteFromRowFilter`; it says no CPU time.
    """
    said = peer.run("retention", root, catalog, live=live, files_per_manifest=PER_MANIFEST, match=MATCH, rounds=rounds)
    return [Timing(value) for value in said["delete_ms"]]


def measure(chosen: Chosen) -> None:
    """
    Two rows per number of live files: the first time, and the median of the others.
    """
    size, report = SIZES[chosen.size], chosen.report
    note = f"the peer's table has {PER_MANIFEST:,} files in a manifest, ours and stock pyiceberg's what the engine made"
    title = f"Retention of {MATCH} files; wall (CPU), ms"
    report.table("retention", title, COLUMNS, note)
    for live in size.live:
        with chosen.folder() as root:
            us, least = ours_and_floor(full_queue(root, live), size.rounds)
        others: list[list[Timing] | None] = [None, None, None]
        for index, catalog in enumerate((HADOOP_CATALOG, JDBC_CATALOG)):
            if chosen.peer is not None and live <= size.peer_most:
                with chosen.folder() as root:
                    others[index] = java(chosen.peer, root, catalog, live, size.rounds)
        if live <= size.stock_most:
            with chosen.folder() as root:
                others[2] = stock(full_queue(root, live), 2)
        for when, pick in (("first", _first), ("after", _after)):
            shown = [pick(taken) if taken else None for taken in others]
            report.row(f"{live:,}", when, pick(us), pick(least), *shown, *(times(item, pick(us)) for item in shown))


def _first(taken: Sequence[Timing]) -> Timing:
    return taken[0]


def _after(taken: Sequence[Timing]) -> Timing:
    return median(taken[1:])


if __name__ == "__main__":
    alone(measure, __doc__)
