"""
The table of results, as text.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce

from tests.chaos.tally import Tally

HEAD = ("fault class", "points", "rounds", "published", "missing", "double", "seconds")


@dataclass(frozen=True, slots=True)
class Result:
    """One class's name, what it found, and how long it took."""

    name: str
    tally: Tally
    seconds: float


def rendered(results: Sequence[Result]) -> list[str]:
    """
    One line a class, the sum, and below them what went wrong.
    """
    cells = [_cells(item) for item in results]
    whole = reduce(Tally.__add__, (item.tally for item in results), Tally())
    total = _cells(Result("all", whole, sum(item.seconds for item in results)))
    widths = [max(map(len, column)) for column in zip(HEAD, *cells, total, strict=True)]
    lines = [_line(row, widths) for row in (HEAD, *cells)]
    lines = [f"{line}  {item}".rstrip() for line, item in zip(lines, ["", *map(_remark, results)], strict=True)]
    wrong = [f"{item.name}: {what}" for item in results for what in item.tally.wrong]
    return [*lines, "-" * len(_line(HEAD, widths)), _line(total, widths), *wrong]


def _cells(item: Result) -> tuple[str, ...]:
    tally = item.tally
    counts = (tally.points, tally.rounds, tally.published, tally.missing, tally.double)
    return (item.name, *(f"{count:,}" for count in counts), f"{item.seconds:.0f}")


def _remark(item: Result) -> str:
    if item.tally.skipped:
        return f"skipped: {item.tally.skipped}"
    return " ".join(part for part in ("RED" if item.tally.red else "", item.tally.note) if part)


def _line(cells: Sequence[str], widths: Sequence[int]) -> str:
    first, *rest = zip(cells, widths, strict=True)
    return "  ".join([first[0].ljust(first[1]), *(cell.rjust(width) for cell, width in rest)])
