"""
The closing table: every row accounted for, and how long things took.

`python -m demo.closing .demo` draws it again from the evidence of a former run.
"""

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from bookkeeper.config.units import format_duration
from bookkeeper.console.output import table
from demo import latency
from demo.account import WriterAccount, account
from demo.evidence import Evidence, load
from demo.latency import Percentiles

MISSED = 1
_EXAMPLES = 5


@dataclass(frozen=True, slots=True)
class Closing:
    """What is printed, the verdict in words, and whether every published row arrived exactly once."""

    lines: tuple[str, ...]
    verdict: str
    exact: bool


def closing(evidence: Evidence) -> Closing:
    """
    The account of a run. A run in which nothing was published proves nothing, and is not exact.
    """
    rows = account(evidence)
    exact = all(row.exact for row in rows) and any(row.published for row in rows)
    return Closing((*_rows(rows), "", *_latencies(evidence)), _verdict(rows, exact), exact)


def _rows(rows: Sequence[WriterAccount]) -> Iterator[str]:
    shown = [
        {
            "writer": row.writer,
            "published": row.published,
            "committed": row.committed,
            "consumed": row.consumed,
            "missing": row.missing,
            "double": row.double,
            "unpublished": row.unpublished,
        }
        for row in [*rows, total(rows)]
    ]
    lines = table(shown)
    yield "rows, by key: published = a txlog names it, committed = a snapshot holds it, consumed = Spark saw it"
    yield ""
    yield from lines[:-1]
    yield "-" * len(lines[0])
    yield lines[-1]


def total(rows: Sequence[WriterAccount]) -> WriterAccount:
    """
    The sum of all writers.
    """
    names = ("published", "committed", "consumed", "missing", "double", "unpublished")
    return WriterAccount("all", *(sum(getattr(row, name) for row in rows) for name in names))


def _latencies(evidence: Evidence) -> Iterator[str]:
    named = (txlog for snapshot in evidence.committed for txlog in snapshot.txlogs)
    txlogs = {*(item.txlog for item in evidence.published), *named}
    batches = sum(bool(batch.keys) for batch in evidence.consumed)
    yield f"{len(txlogs)} txlogs in {len(evidence.committed)} commits, read in {batches} micro-batches"
    yield _percentiles("visible   data file closed -> seen by Spark", latency.visible(evidence))
    yield _percentiles("commit    txlog published -> in the table  ", latency.committed(evidence))


def _percentiles(what: str, found: Percentiles | None) -> str:
    return f"{what}  " + (
        "-" if found is None else f"p50 {format_duration(found.p50)}   p99 {format_duration(found.p99)}"
    )


def _verdict(rows: Sequence[WriterAccount], exact: bool) -> str:
    found = total(rows)
    if exact:
        return f"Each of {found.published:,} published rows arrived exactly once (compared by key)."
    if not found.published:
        return "NOTHING was published."
    wrong = f"{found.missing} missing, {found.double} double, {found.unpublished} never published"
    examples = [key for row in rows for key in row.keys][:_EXAMPLES]
    return "\n".join([f"NOT exactly once: {wrong} (compared by key), for example:", *(f"  {key}" for key in examples)])


def main(folder: str = ".demo") -> int:
    """
    Print the account of the run in `folder`.
    """
    done = closing(load(Path(folder) / "evidence"))
    print(*done.lines, "", done.verdict, sep="\n")
    return 0 if done.exact else MISSED


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:2]))
