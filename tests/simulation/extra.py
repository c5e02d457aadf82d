"""
Columns that writers ask for: every seventh row of a writer has a value in one of them.
"""

NAMES = ("x1", "x2", "x3")
EVERY = 7


def extra_of(row: str) -> tuple[str, str] | None:
    """The column, and the value in it, of a row by its unique name, None where it has none."""
    writer, _, number = row.rpartition("-")
    if not writer.startswith(("plain-", "chain-")) or not number.isdigit() or int(number) % EVERY:
        return None
    name = NAMES[int(number) // EVERY % len(NAMES)]
    return name, f"{name} of {row}"
