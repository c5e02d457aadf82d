"""
What was seen of the columns of a file: which types their values have, and where.
"""

from dataclasses import dataclass, field
from datetime import UTC, datetime

from bookkeeper.format.csv_json_types import TIMES

#: texts that other programs write for null
NULL_TEXTS = frozenset(("NA", "N/A", "n/a", "#N/A", "null", "NULL", "Null", "None", "nil", "\\N", "-", "?", "."))


@dataclass
class Column:
    """What was seen of a column: for each type the first line (from 1) and value, and how many values there were."""

    kinds: dict[str, tuple[int, str]] = field(default_factory=dict)
    #: the texts that are null for other programs, with the first line of each
    null_texts: dict[str, int] = field(default_factory=dict)
    values: int = 0
    example: str = ""
    low: str = ""
    high: str = ""
    fields: dict[str, "Column"] = field(default_factory=dict)
    element: "Column | None" = None

    def see(self, kind: str, line: int, text: str) -> None:
        """Notes one value."""
        if kind not in self.kinds:
            self.kinds[kind] = (line, text[:40])
            self.example = self.example or text[:40]
        if kind in TIMES:
            self.low = min(self.low or text, text)
            self.high = max(self.high, text)

    def days(self) -> int | None:
        """How many days its times span, None of no times."""
        return (_moment(self.high) - _moment(self.low)).days + 1 if self.low else None


def _moment(text: str) -> datetime:
    found = datetime.fromisoformat(text)
    return found if found.tzinfo else found.replace(tzinfo=UTC)


@dataclass
class Sample:
    """The columns of a file by name, from so many lines or rows of it; `whole` where these are all."""

    columns: dict[str, Column]
    lines: int = 0
    whole: bool = True
    notes: list[str] = field(default_factory=list)
