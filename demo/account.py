"""
The account: every published row against the table and against the stream, by key. Pure.

A txlog is published when its writer's close log has it, which is written after the publish succeeded, or when it was
seen in pending/. A writer that was killed between publish and close log can leave one more, if the bookkeeper commits
it before it is seen: the last of its run, known only from the snapshot that names it. It counts as published; any other
row that arrives without having been published is reported.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from bookkeeper.contract.names import TxlogName
from demo.evidence import Committed, Evidence, Published

NO_WRITER = "(no writer)"
Keys = Counter[str]


@dataclass(frozen=True, slots=True)
class WriterAccount:
    """
    One writer's rows; committed and consumed count every arrival.

    `missing` were published and did not arrive in the table or in the stream, `double` are arrivals too many,
    `unpublished` arrived without having been published; `keys` are those of all three.
    """

    writer: str
    published: int
    committed: int
    consumed: int
    missing: int
    double: int
    unpublished: int = 0
    keys: tuple[str, ...] = field(default=(), compare=False, repr=False)

    @property
    def exact(self) -> bool:
        """Whether every published row arrived exactly once, and nothing else."""
        return not (self.missing or self.double or self.unpublished)


def account(evidence: Evidence) -> list[WriterAccount]:
    """
    One account per writer, and one more for rows that arrived without having been published, if there are any.
    """
    txlogs = by_name(evidence.published)
    published: dict[str, Keys] = {name.writer: Counter() for name in txlogs}
    for name, item in txlogs.items():
        published[name.writer].update(item.keys)
    for writer, keys in list(unseen(txlogs, evidence.committed)):
        published.setdefault(writer, Counter()).update(keys)
    committed = Counter(key for snapshot in evidence.committed for keys in snapshot.files.values() for key in keys)
    consumed = Counter(key for batch in evidence.consumed for key in batch.keys)
    rows = [_row(writer, keys, committed, consumed) for writer, keys in sorted(published.items())]
    unpublished = _unpublished({key for keys in published.values() for key in keys}, committed, consumed)
    return rows + ([unpublished] if not unpublished.exact else [])


def by_name(published: Iterable[Published]) -> dict[TxlogName, Published]:
    """
    Each txlog once; its writer's close log counts before what was seen in pending/.
    """
    found: dict[TxlogName, Published] = {}
    for item in published:
        if item.logged or item.name not in found:
            found[item.name] = item
    return found


def unseen(txlogs: Mapping[TxlogName, Published], committed: Iterable[Committed]) -> Iterator[tuple[str, list[str]]]:
    """
    Writer and keys of txlogs that only a snapshot names: at most one per run, the one after the last known.

    Its data files are known by the run in their names.
    """
    known = {key for item in txlogs.values() for key in item.keys}
    last: Counter[str] = Counter()
    for name in txlogs:
        last[name.incarnation] = max(last[name.incarnation], name.sequence)
    for snapshot in committed:
        for name in snapshot.names:
            if name not in txlogs and name.sequence == last[name.incarnation] + 1:
                files = (keys for path, keys in snapshot.files.items() if name.incarnation in path)
                yield name.writer, [key for keys in files for key in keys if key not in known]


def _row(writer: str, published: Keys, committed: Keys, consumed: Keys) -> WriterAccount:
    missing = [key for key in published if not (committed[key] and consumed[key])]
    extra = {key: max(published[key], committed[key], consumed[key]) - 1 for key in published}
    double = [key for key, count in extra.items() if count]
    return WriterAccount(
        writer,
        published.total(),
        sum(committed[key] for key in published),
        sum(consumed[key] for key in published),
        len(missing),
        sum(extra.values()),
        keys=(*missing, *double),
    )


def _unpublished(published: set[str], committed: Keys, consumed: Keys) -> WriterAccount:
    in_table = {key: count for key, count in committed.items() if key not in published}
    in_stream = {key: count for key, count in consumed.items() if key not in published}
    keys = tuple(in_table | in_stream)
    return WriterAccount(NO_WRITER, 0, sum(in_table.values()), sum(in_stream.values()), 0, 0, len(keys), keys=keys)
