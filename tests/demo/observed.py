"""
Evidence of a small run, made up: two writers, two txlogs each, two snapshots, two micro-batches.
"""

from demo.evidence import Committed, Consumed, Evidence, Published

RUNS = {
    "writer-1": "019a0000-0000-7000-8000-000000000001",
    "writer-2": "019a0000-0000-7000-8000-000000000002",
}


def txlog(writer: str, sequence: int) -> str:
    """The name of a txlog."""
    return f"{writer}.{RUNS[writer]}.{sequence:010d}.txlog.avro"


def path(writer: str, sequence: int) -> str:
    """The path of its only data file."""
    return f"/w/data/{writer}-{RUNS[writer]}-{sequence:010d}-00001.parquet"


def keys(writer: str, sequence: int) -> list[str]:
    """The keys of its rows."""
    return [f"{writer}/{sequence}/{number}" for number in range(3)]


def files(*named: tuple[str, int]) -> dict[str, list[str]]:
    """Data files with their keys."""
    return {path(writer, sequence): keys(writer, sequence) for writer, sequence in named}


def published(writer: str, sequence: int, logged: bool = False) -> Published:
    """A txlog that was seen in pending/, or stands in its writer's close log."""
    at = 1_000 * sequence
    return Published(txlog(writer, sequence), keys(writer, sequence), at, at + 100, logged=logged)


def committed(snapshot: int, *named: tuple[str, int]) -> Committed:
    """A snapshot that holds these txlogs."""
    return Committed(snapshot, 1_000 * snapshot + 500, [txlog(*name) for name in named], files(*named))


def consumed(batch: int, *named: tuple[str, int]) -> Consumed:
    """A micro-batch that holds the rows of these txlogs."""
    return Consumed(batch, 1_000 * batch + 2_000, [key for name in named for key in keys(*name)])


def run() -> Evidence:
    """Everything arrived exactly once."""
    first, second = [("writer-1", 1), ("writer-2", 1)], [("writer-1", 2), ("writer-2", 2)]
    return Evidence(
        [published(*name) for name in [*first, *second]],
        [committed(1, *first), committed(2, *second)],
        [consumed(0, *first), consumed(1, *second)],
    )
