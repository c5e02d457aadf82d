"""
Fuzz: mutated txlogs through decode and check. Each is taken as valid, and then says the same to another reader, or it
is refused with a reason; never a crash, a hang, a huge allocation, or a path outside of the table.

In the table `points` are inputs, `published` the entries of those that were taken, `missing` and `double` what our
reader and the other one do not agree on.
"""

import resource
import signal
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from random import Random
from typing import Any

from bookkeeper.contract.txlog import Txlog, decode
from bookkeeper.errors import Hold, Reject
from bookkeeper.format.entries import DATA_FILE, ENTRY, Entry
from bookkeeper.tick.check_txlog import check
from tests.chaos.fuzzing import reader
from tests.chaos.fuzzing.corpus import MOST, NOW_MS, Seed, seeds
from tests.chaos.fuzzing.mutations import MUTATIONS
from tests.chaos.tally import Budget, FaultClass, Tally

INPUTS = 100_000
MOST_SECONDS = 5.0
MOST_MEMORY = 2**28
_LARGE = 20_000


class Hang(BaseException):
    """It took too long."""


@dataclass
class Verdicts:
    """What became of the inputs."""

    taken: int = 0
    entries: int = 0
    missing: int = 0
    double: int = 0
    refused: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)

    def judge(self, seed: Seed, data: bytes, about: str) -> None:
        """One input, whatever it is."""
        try:
            with _in_time():
                txlog = decode(seed.name, data, MOST)
                check(txlog, seed.rules, NOW_MS)
        except (Reject, Hold) as refusal:
            self.refused[type(refusal).__name__] += 1
            self._worded(refusal, about)
        except (Exception, Hang) as error:  # noqa: BLE001 - this is what is looked for
            self.wrong.append(f"{about}: {error!r:.300}")
        else:
            self._take(txlog, data, seed, about)

    def _worded(self, refusal: Reject | Hold, about: str) -> None:
        if not str(refusal) or len(str(refusal)) > 2000:
            self.wrong.append(f"{about}: refused with {len(str(refusal))} characters: {str(refusal)[:80]!r}")

    def _take(self, txlog: Txlog, data: bytes, seed: Seed, about: str) -> None:
        self.taken += 1
        try:
            theirs = Counter(repr(_theirs(item)) for item in [*reader.entries(data), *reader.deletes(data)])
        except Exception as error:  # noqa: BLE001 - taken, and unreadable for others
            self.wrong.append(f"{about}: taken, but fastavro says {error!r:.200}")
            return
        removing = txlog.deletes.entries if txlog.deletes is not None else ()
        ours = Counter(repr(_ours(entry)) for entry in (*txlog.entries, *removing))
        self.entries += ours.total()
        self.missing += (theirs - ours).total()
        self.double += (ours - theirs).total()
        if ours != theirs:
            self.wrong.append(f"{about}: we read {list(ours - theirs)[:1]}, fastavro {list(theirs - ours)[:1]}"[:600])
        outside = [row.path for row in txlog.every_row if not _is_inside(row.path, seed.rules.data_path)]
        self.wrong += [f"{about}: the path {path[:200]!r} is outside of the table" for path in outside[:1]]


def _is_inside(path: str, root: str) -> bool:
    plain = path.replace("s3a://", "s3://").replace("s3n://", "s3://")
    return plain.startswith(root + "/") and not set(plain.split("/")[3:]) & {"", ".", ".."} and "%" not in plain


def _theirs(record: dict[int, Any]) -> list[Any]:
    """By field id: the entry, and the data file without what is null or empty."""
    file = record[2]
    partition = tuple(file[102].values())
    plain = {number: value for number, value in file.items() if number != 102 and value not in (None, {}, ())}
    return [{key: record.get(key) for key in ENTRY if key != 2}, partition, dict(sorted(plain.items()))]


def _ours(entry: Entry) -> list[Any]:
    file = entry.data_file
    names = {"file_path": file.path, "file_size_in_bytes": file.size_bytes, "content": entry.content}
    names |= {"equality_ids": entry.equality_ids, "referenced_data_file": entry.referenced_data_file}
    plain = {}
    for number, (name, _, _) in DATA_FILE.items():
        value = names[name] if name in names else getattr(file, name)
        if number != 102 and value not in (None, {}, ()):
            plain[number] = value
    head = (entry.status, entry.snapshot_id, entry.sequence_number, entry.file_sequence_number)
    return [dict(zip((0, 1, 3, 4), head, strict=True)), file.partition, dict(sorted(plain.items()))]


@contextmanager
def _in_time() -> Iterator[None]:
    # CPU time: a machine that is busy makes nothing hang.
    signal.setitimer(signal.ITIMER_PROF, MOST_SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)


def _hang(number: int, frame: object) -> None:
    raise Hang(f"more than {MOST_SECONDS:.0f} s")


def fuzz(inputs: int, seed: int, budget: Budget) -> Tally:
    """
    So many inputs (a part of them in a part's budget). Only in a process of its own: it bounds its memory.
    """
    rng, found = Random(seed), Verdicts()
    corpus = seeds()
    small = [item for item in corpus if len(item.data) < _LARGE]
    signal.signal(signal.SIGPROF, _hang)
    for item in corpus:
        found.judge(item, item.data, f"{item.key} as it is")
    if found.taken != len(corpus):
        return Tally(wrong=["a golden txlog is not taken", *found.wrong])
    _bound_memory()
    ways, weights = zip(*MUTATIONS, strict=True)
    count = max(1, round(inputs * budget.part))
    for number in range(count):
        chosen = rng.choice(corpus if number % 100 == 0 else small)
        way = rng.choices(ways, weights)[0]
        data = way(rng, chosen, rng.choice(small))
        found.judge(chosen, data, f"input {number} ({way.__name__} of {chosen.key})")
    note = f"{found.taken:,} taken, {found.refused.total():,} refused"
    return Tally(count, 1, found.entries, found.missing, found.double, found.wrong[:20], note)


def _bound_memory() -> None:
    with suppress(OSError, ValueError):  # not every system can
        with open("/proc/self/statm", encoding="ascii") as file:
            now = int(file.read().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (now + MOST_MEMORY, resource.RLIM_INFINITY))


CLASSES = (FaultClass("fuzz: mutated txlogs (inputs, entries)", partial(fuzz, INPUTS)),)
