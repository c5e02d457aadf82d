"""
What decoders found in bytes, kept for one world: its processes share one interpreter, and read the same objects again
and again. Only pure functions are here, each by all that its result depends on, so a world takes the same way without.
"""

from collections.abc import Callable, Hashable, Iterator
from contextlib import ExitStack, contextmanager
from functools import wraps
from pkgutil import resolve_name
from typing import Any
from unittest import mock

Key = Callable[..., Hashable]


class Same:
    """An object that equals no other one, and lives as long as this."""

    def __init__(self, it: Any) -> None:
        self.it = it

    def __hash__(self) -> int:
        return id(self.it)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Same) and self.it is other.it


#: the function, by where it is looked up, what its result depends on, and how it is given to more than one
PURE: dict[str, tuple[Key, Callable[[Any], Any]]] = {
    # the footer is in the data
    "bookkeeper.format.read_parquet.batch_rows": (lambda data, footer, names=None: (data, names and (*names,)), int),
    # so is the header
    "bookkeeper.format.manifest.decode": (
        lambda data, most, entries=None, header=None, column=None: (data, most, entries, column),
        lambda found: found,
    ),
    "bookkeeper.format.manifest_list.decode": (lambda data, most, known: (data, most), list),
    "bookkeeper.core.folder._marks_from": (lambda data: data, lambda found: found),
    # pyiceberg's, by which other programs read
    "pyiceberg.avro.file.AvroFileHeader.get_schema": (lambda header: header.meta["avro.schema"], lambda found: found),
    "pyiceberg.avro.file.resolve_reader": (
        lambda written, read, types, enums: (Same(written), Same(read), *types.items(), *enums.items()),
        lambda found: found,
    ),
    "pyiceberg.table.metadata.TableMetadataUtil.parse_raw": (lambda data: data, lambda found: found),
}


@contextmanager
def shortcuts() -> Iterator[None]:
    """Until its end, each of these is called once for the same bytes; what one raises is raised anew."""
    with ExitStack() as stack:
        for where, (key, share) in PURE.items():
            found = _kept(resolve_name(where), key, share)
            stack.enter_context(mock.patch(where, found))
        yield


def _kept(make: Callable[..., Any], key: Key, share: Callable[[Any], Any]) -> Callable[..., Any]:
    known = dict[Hashable, Any]()

    @wraps(make)
    def found(*given: Any, **named: Any) -> Any:
        at = key(*given, **named)
        if at not in known:
            known[at] = make(*given, **named)
        return share(known[at])

    return found
