"""
Reads key columns of data files: of a large file only its footer and what these columns take, by ranges.

A footer is hostile until read: no byte is asked for that the file does not have by its entry, and few ranges are.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from functools import partial

import pyarrow as pa  # type: ignore[import-untyped]

from bookkeeper.errors import BookkeeperError, CannotRead
from bookkeeper.folds.read import TOGETHER_BYTES, key_of, read_files, why_not
from bookkeeper.format.entries import DataFile
from bookkeeper.format.read_parquet import lacking
from bookkeeper.format.sparse_file import Content, Span, SparseFile, joined
from bookkeeper.stores.store import Range, Store

#: smaller files are read whole, in one request
SMALL_BYTES = 2**20
#: the end of a file, which pyarrow reads first; most footers fit in
END_BYTES = 64 * 2**10
#: of a file with a longer one everything is read
MOST_FOOTER_BYTES = 16 * 2**20
#: files whose ends are read together
ENDS_TOGETHER = 256
#: bytes between two ranges that cost less than another request
GAP_BYTES = 2**20
#: of one file
MOST_RANGES = 64
#: which columns of a file with this schema are read, None: all; raises CannotRead, as what reads them then does
NamesOf = Callable[[DataFile, pa.Schema], Collection[str] | None]
_Wanted = tuple[DataFile, SparseFile, Sequence[Span]]


def read_columns(
    store: Store, files: Iterable[DataFile], names_of: NamesOf
) -> Iterator[tuple[DataFile, Content | CannotRead]]:
    """
    The content of each file, as far as these columns need it, or why there is none. Raises StorageUnavailable.
    """
    small, large = list[DataFile](), list[DataFile]()
    for file in files:
        (small if file.size_bytes < SMALL_BYTES else large).append(file)
    yield from read_files(store, small)
    for begin in range(0, len(large), ENDS_TOGETHER):
        yield from _read_large(store, large[begin : begin + ENDS_TOGETHER], names_of)


def _read_large(
    store: Store, files: Sequence[DataFile], names_of: NamesOf
) -> Iterator[tuple[DataFile, Content | CannotRead]]:
    ends = [
        (file, SparseFile(file.size_bytes), [(max(0, file.size_bytes - END_BYTES), file.size_bytes)]) for file in files
    ]
    part, size = list[_Wanted](), 0
    for file, end in _fetch(store, ends):
        if isinstance(end, CannotRead):
            yield file, end
            continue
        content = end.copy()  # `ends` keeps the other one until the last file is read
        spans = joined(_spans(store, file, content, names_of), GAP_BYTES, MOST_RANGES)
        more = content.held + sum(end - begin for begin, end in spans)
        if part and size + more > TOGETHER_BYTES:
            yield from _complete(store, part)
            part, size = [], 0
        part.append((file, content, spans))
        size += more
    yield from _complete(store, part)


def _complete(store: Store, wanted: Sequence[_Wanted]) -> Iterator[tuple[DataFile, Content | CannotRead]]:
    for file, content in _fetch(store, wanted):
        yield file, content if isinstance(content, CannotRead) else content.content()


def _spans(store: Store, file: DataFile, content: SparseFile, names_of: NamesOf) -> Sequence[Span]:
    """The ranges to read beside the end of the file."""
    names = partial(names_of, file)
    spans = lacking(content, names, GAP_BYTES)
    if not (spans and spans[0][1] == file.size_bytes - 8):
        return spans
    # The footer is longer than the end: then nothing else was asked for.
    (footer, *_) = spans
    if footer[1] - footer[0] > MOST_FOOTER_BYTES:
        return [(0, file.size_bytes)]
    ((_, found),) = _fetch(store, [(file, content, [footer])])
    return lacking(content, names, GAP_BYTES) if isinstance(found, SparseFile) else [(0, file.size_bytes)]


def _fetch(store: Store, wanted: Sequence[_Wanted]) -> Iterator[tuple[DataFile, SparseFile | CannotRead]]:
    """Each file with these ranges of it."""
    keys = [key_of(store, file) for file, _, _ in wanted]
    ranges = [
        [Range(key, *span) for span in spans] if isinstance(key, str) else []
        for key, (_, _, spans) in zip(keys, wanted, strict=True)
    ]
    asked = [item for of_file in ranges for item in of_file]
    found = store.read_ranges(asked) if asked else {}
    for key, of_file, (file, content, _) in zip(keys, ranges, wanted, strict=True):
        error = key if isinstance(key, BookkeeperError) else None
        for item in of_file:
            part = found[item]
            if isinstance(part, BookkeeperError):
                error = part
            elif part.size != file.size_bytes:
                error = CannotRead(f"it has {part.size} bytes, the table says {file.size_bytes}")
            else:
                content.add(item.begin, part.data)
        yield file, content if error is None else why_not(file, error)
