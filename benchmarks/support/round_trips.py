"""
Round trips in a row, from what a proxy recorded: a request begins a new link of the chain if another one had ended.

What is in flight together is one link. So the links of a tick are what latency multiplies.
"""

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from urllib.parse import parse_qs, unquote, urlsplit

from benchmarks.support.counting_proxy import Record

TXLOG, DATA, MARKS, CARD = "txlog", "data file", "marks", "card"
MANIFEST, MANIFESTS, METADATA, TABLE = "manifest", "manifest list", "metadata", "table"
_LISTING, _COMMIT, _DELETES = "LIST pending", f"POST {TABLE}", {f"POST delete {TXLOG}s", f"DELETE {TXLOG}"}
#: first match wins; of a listing the prefix is matched
_PATHS = tuple(
    (re.compile(pattern), name)
    for pattern, name in (
        (r"/pending/.*\.avro", TXLOG),
        (r"/pending\b", "pending"),
        (r"/rejected\b", "rejected"),
        (r"/consumers\b", "consumers"),
        (r"/marks\.json", MARKS),
        (r"/card\.json", CARD),
        (r"/clock\b", "clock"),
        (r"/lease\b", "lease"),
        (r"/version-hint\.text", "version hint"),
        (r"\.metadata\.json", METADATA),
        (r"/snap-[^/]*\.avro", MANIFESTS),
        (r"/metadata/[^/]*\.avro", MANIFEST),
        (r"\.parquet", DATA),
        (r"/_catalog\b", "catalog entry"),
        (r"/tables/", TABLE),
    )
)
#: what a commit waits for, whatever the catalog; with REST and on storage alone the last of these is the commit
_BEFORE = {f"{asked} {what}" for asked in ("GET", "HEAD") for what in (TXLOG, DATA)}
_BEFORE |= {f"PUT {what}" for what in (MANIFEST, MANIFESTS, METADATA)} | {_COMMIT}


def named(record: Record) -> str:
    """
    A request in two words: what is asked, and what it is about.
    """
    where, asked = urlsplit(record.path), record.method
    query, path = parse_qs(where.query, keep_blank_values=True), unquote(where.path)
    if path.endswith("/lease"):
        return f"{asked} lease"
    if asked == "POST" and "delete" in query:
        return f"POST delete {TXLOG}s"  # what, stands in its body: no other objects go in batches
    if "list-type" in query or query.get("comp") == ["list"]:
        asked, path = "LIST", "/" + query.get("prefix", [""])[0]
    return f"{asked} {next((name for pattern, name in _PATHS if pattern.search(path)), path)}"


def separated(records: Iterable[Record], pause: float) -> list[list[Record]]:
    """
    The records of each tick: between two ticks nothing is in flight for `pause` seconds or longer.

    A commit ends with the delete of its txlogs, however long a busy machine lets it wait for that.
    """
    found, end = list[list[Record]](), float("-inf")
    for record in sorted(records):
        if record.start - end > pause and not (found and _goes_on(found[-1])):
            found.append([])
        found[-1].append(record)
        end = max(end, record.end)
    return found


def _goes_on(records: Iterable[Record]) -> bool:
    names = {*map(named, records)}
    return f"GET {TXLOG}" in names and not names & _DELETES


def links(records: Iterable[Record]) -> list[list[Record]]:
    """
    The longest chain: link n holds what began after a request of link n - 1 had ended.
    """
    found, depths = list[list[Record]](), list[tuple[float, int]]()
    for record in sorted(records):
        depth = 1 + max((depth for end, depth in depths if end <= record.start), default=0)
        depths.append((record.end, depth))
        found += [[]] if depth > len(found) else []
        found[depth - 1].append(record)
    return found


@dataclass(frozen=True)
class Tick:
    """One tick: its requests from its listing on, or from the txlogs that it was told of, and none of the lease."""

    records: Sequence[Record]
    #: what it waited for before: the lease's renewal, now and then
    ahead: Sequence[Record] = ()

    @classmethod
    def of(cls, records: Iterable[Record]) -> "Tick | None":
        """None where nothing begins a tick."""
        ordered = sorted(records)
        begins = {_LISTING, f"HEAD {TXLOG}", *(f"GET {what}" for what in (TXLOG, MARKS, CARD))}
        first = next((number for number, record in enumerate(ordered) if named(record) in begins), None)
        if first is None:
            return None
        ahead = [record for record in ordered[:first] if record.end <= ordered[first].start]
        return cls([record for record in ordered[first:] if not named(record).endswith(" lease")], ahead)

    @property
    def names(self) -> Counter[str]:
        """Its requests, by what they are."""
        return Counter(map(named, self.records))

    @property
    def txlogs(self) -> int:
        """How many it read."""
        return self.names[f"GET {TXLOG}"]

    @property
    def committed(self) -> bool:
        """Whether it is whole: a commit, then marks.json."""
        return (
            self.txlogs > 0 and self.names[f"PUT {METADATA}"] + self.names[_COMMIT] > 0 and self.names["PUT marks"] > 0
        )

    @property
    def reloaded(self) -> bool:
        """Whether it asked for what others may have changed."""
        return self.names[f"GET {CARD}"] > 0

    @property
    def before(self) -> list[Record]:
        """The requests until its rows were visible; the UPDATE of an SQL catalog follows the last of them."""
        last = max(record.end for record in self.records if named(record) in _BEFORE)
        return [record for record in self.records if record.end <= last]

    def seconds(self, records: Iterable[Record]) -> float:
        """From its first request to the end of the last of these."""
        return max(record.end for record in records) - self.records[0].start


def shown(link: Iterable[Record]) -> str:
    """
    What is in flight together.
    """
    counted = Counter(map(named, link))
    return ", ".join(f"{count} x {name}" if count > 1 else name for name, count in sorted(counted.items()))
