"""
One commit of 10,000 files x 50 columns, named by one txlog; and what proving and checking one entry costs.

    python -m benchmarks.commit [--peer SCRIPT]
"""

from dataclasses import dataclass

from benchmarks import drain
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
    number,
    timed,
    times,
)
from benchmarks.support.peers import HADOOP_CATALOG, JDBC_CATALOG
from benchmarks.support.synthetic import Queue
from bookkeeper.contract import txlog
from bookkeeper.tick.check_txlog import check, rules_of


@dataclass(frozen=True, slots=True)
class Size:
    """How many files, of how many columns, in how many rounds."""

    files: int
    rounds: int
    stock_rounds: int
    peer_rounds: int
    columns: tuple[int, ...] = (3, 50)


SIZES = {"toy": Size(20, 2, 1, 2, (3,)), "short": Size(10_000, 6, 1, 12), "big": Size(10_000, 12, 3, 20)}
COLUMNS = ("columns", OURS, FLOOR, HADOOP, JDBC, STOCK, "Hadoop / ours", "Jdbc / ours", "stock / ours")


def measure(chosen: Chosen) -> None:
    """
    The commit, then the check on its own.
    """
    size, report = SIZES[chosen.size], chosen.report
    as_drain = drain.Size(1, size.rounds, size.stock_rounds, size.peer_rounds)
    report.table("commit", f"One commit of {size.files:,} files in one txlog, steady; wall (CPU), ms", COLUMNS)
    for columns in size.columns:
        warm: list[Timing | None] = [None, None]
        if chosen.peer:
            with chosen.folder() as root:
                said = drain.java(chosen.peer, root, size.files, columns, as_drain)
            warm = [said[catalog][0] for catalog in (HADOOP_CATALOG, JDBC_CATALOG)]
        with chosen.folder() as root:
            us, least = drain.ours_and_floor(root, size.files, columns, as_drain, size.rounds)
        with chosen.folder() as root:
            other = drain.stock(root, size.files, columns, as_drain)
        report.row(columns, us, least, *warm, other, *(times(item, us) for item in (*warm, other)))
    _entries(chosen, size)


def _entries(chosen: Chosen, size: Size) -> None:
    """What one entry costs: decoding with the proof of every byte, and the rules of the table."""
    title = "The check of one entry, CPU time in µs (txlogs of the same files)"
    chosen.report.table("check", title, ("columns", "decode and prove", "check", "both", "entries"))
    for columns in size.columns:
        with chosen.folder() as root:
            proven, judged = per_entry(root, columns, size)
        chosen.report.row(columns, proven, judged, number(proven + judged), size.files)


def per_entry(root: object, columns: int, size: Size) -> tuple[float, float]:
    """
    CPU in µs of decoding an entry, and of checking it.
    """
    queue = Queue.at(root, columns)  # type: ignore[arg-type]
    book = queue.book()
    rules = rules_of(book.ledger.load(queue.card.folder))
    proven, judged = [], []
    for name, data in queue.txlogs(size.rounds, size.files, now()):
        made: list[txlog.Txlog] = []
        proven.append(timed(lambda name=name, data=data, made=made: made.append(txlog.decode(name, data, 2**30))))  # type: ignore[misc]
        judged.append(timed(lambda made=made: check(made[0], rules, 2**50)))  # type: ignore[misc]
    return tuple((median(item[1:]).cpu or 0) * 1000 / size.files for item in (proven, judged))  # type: ignore[return-value]


if __name__ == "__main__":
    alone(measure, __doc__)
