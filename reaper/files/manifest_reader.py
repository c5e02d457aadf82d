"""
Reads manifest lists and manifests of a table, several at once; one that cannot be read now ends the run.
"""

from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from hashlib import sha256
from itertools import chain
from typing import NamedTuple

from pyiceberg.io import FileIO
from pyiceberg.manifest import ManifestEntry, ManifestFile, read_manifest_list
from pyiceberg.table.snapshots import Snapshot

from bookkeeper.errors import BookkeeperError, PathRefused, StorageUnavailable
from bookkeeper.format import avro, manifest_list
from bookkeeper.format import manifest as manifest_format
from bookkeeper.format.avro import Block
from bookkeeper.format.manifest import Manifest
from bookkeeper.format.manifest_list import KnownLines, Line
from bookkeeper.format.records import ADDED, read_prefix
from bookkeeper.stores.locations import normal

_MOST_BYTES = 2**31
#: a manifest list of more bytes is read alone: 64 of them at once are no more than 64 MiB
LIST_BYTES = 2**20
#: reads several files at once, each up to the number of bytes given; None for one that has to be read alone
ReadMany = Callable[[Mapping[str, int]], Iterator[tuple[str, bytes | None]]]


class Entry(NamedTuple):
    """What the reaper asks of a manifest entry; `path` is normalized."""

    status: int
    snapshot_id: int
    path: str
    bytes: int


def normalize(location: str) -> str:
    """
    One spelling per file, so that locations can be compared; one that cannot be interpreted stays as it is.
    """
    try:
        return normal(location)
    except PathRefused:
        return location


@contextmanager
def reading(location: str) -> Iterator[None]:
    """
    Turns every error of a file system or a decoder into StorageUnavailable.
    """
    try:
        yield
    except Exception as exc:
        # Files that an unread manifest references would look unreferenced, so every failure ends the run.
        raise StorageUnavailable(
            f"{location} could not be read: {type(exc).__name__}: {exc}",
            hint="Nothing is deleted until every manifest in question can be read.",
        ) from exc


class ManifestReader:
    """
    Reads manifest lists and manifests. A list never changes: each is read once in a run.

    What `read_many` leaves out, because it is too large or lies elsewhere, is read alone through the table's FileIO.
    """

    def __init__(self, io: FileIO, read_many: ReadMany) -> None:
        self._io, self._read_many = io, read_many
        #: manifests and manifest lists that were read alone
        self.reads = 0
        #: bytes of the manifest lists read so far, by location
        self.list_bytes: dict[str, int] = {}
        self._lists: dict[str, tuple[Line, ...]] = {}
        self._known: KnownLines = {}
        self._hashes: dict[str, array[int]] = {}
        #: of blocks that have no entry of a status: digest of the block's bytes and schema, and that status
        self._without: set[tuple[bytes, int]] = set()

    def by_path(self, snapshots: Iterable[Snapshot]) -> dict[str, Line]:
        """Every manifest of these snapshots, by its normalized location; raises StorageUnavailable."""
        lines = {line.path: line for line in chain.from_iterable(self.lists(snapshots))}
        return {normalize(path): line for path, line in lines.items()}

    def lists(self, snapshots: Iterable[Snapshot]) -> list[tuple[Line, ...]]:
        """The manifests of each snapshot; raises StorageUnavailable."""
        locations = [snapshot.manifest_list for snapshot in snapshots]
        missing = {location: LIST_BYTES for location in locations if location not in self._lists}
        for location, data in self._read(missing):
            self.list_bytes[location] = len(data)
            # Lists share nearly all their lines; kept once each, memory does not grow with their product.
            self._lists[location] = tuple(self._decoded_list(location, data))
        return [self._lists[location] for location in locations]

    def entries(self, manifests: Iterable[Line], status: int | None = None) -> Iterator[tuple[Line, Iterator[Entry]]]:
        """
        Each manifest, and its entries (deleted ones too, or only those of this status) with what they inherit.

        Raises StorageUnavailable.
        """
        lines = {line.path: line for line in manifests}
        for path, data in self._read({path: max(0, line.length) for path, line in lines.items()}):
            with reading(path):
                found = self._decoded(data, lines[path], status)
            yield lines[path], found

    def added(self, snapshots: Iterable[Snapshot]) -> Iterator[tuple[int, Sequence[int]]]:
        """
        (snapshot, hash() of the normalized location of each file that it added), for each manifest with such files.

        Kept for a run, in 8 bytes a file: each step of a run looks at everything that was added since.
        """
        listed = [(item.snapshot_id, item) for item in snapshots]
        lists = self.lists(item for _, item in listed)
        own = [line for (number, _), lines in zip(listed, lists, strict=True) for line in lines if _adds(line, number)]
        new = [line for line in own if line.path not in self._hashes]
        for line, entries in self.entries(new, ADDED):
            paths = (entry.path for entry in entries if entry.snapshot_id == line.snapshot_id)
            self._hashes[line.path] = array("q", map(hash, paths))
        for line in own:
            yield line.snapshot_id or 0, self._hashes[line.path]

    def _read(self, most: Mapping[str, int]) -> Iterator[tuple[str, bytes]]:
        for location, data in self._read_many(most):
            yield location, self._alone(location) if data is None else data

    def _alone(self, location: str) -> bytes:
        self.reads += 1
        with reading(location), self._io.new_input(location).open() as file:
            return file.read()

    def _decoded_list(self, location: str, data: bytes) -> list[Line]:
        with reading(location):
            try:
                return manifest_list.decode(data, _MOST_BYTES, self._known)
            except BookkeeperError:
                # A layout of another writer: pyiceberg reads every layout, more slowly.
                return [_line(item) for item in read_manifest_list(self._io.new_input(location))]

    def _decoded(self, data: bytes, line: Line, wanted: int | None) -> Iterator[Entry]:
        try:
            if wanted is None:
                return _skimmed(manifest_format.decode(data, _MOST_BYTES), line)
            return iter(self._entries_of(data, line, wanted))
        except BookkeeperError:
            # The same.
            manifest = ManifestFile.from_args(
                manifest_path=line.path,
                partition_spec_id=line.spec_id,
                added_snapshot_id=line.snapshot_id,
                sequence_number=line.sequence,
            )
            found = manifest.fetch_manifest_entry(self._io, discard_deleted=False)
            return (_entry(item) for item in found if wanted in (None, item.status))

    def _entries_of(self, data: bytes, line: Line, wanted: int) -> list[Entry]:
        """
        The entries of one status. A block that was read before and had none is known by its bytes, and not read again:
        retention passes most blocks of a manifest on as they are.
        """
        header = avro.read_header(data)
        if header.meta.get(avro.CODEC) != b"deflate":
            return [
                entry for entry in _skimmed(manifest_format.decode(data, _MOST_BYTES), line) if entry.status == wanted
            ]
        found, skims = list[Entry](), manifest_format.skimmer_of(header.meta)
        for block in avro.packed_blocks(data, header.end):
            known = sha256(header.meta["avro.schema"] + b"%d:" % block.count + block.packed).digest(), wanted
            if known in self._without:
                continue
            proven = manifest_format.prove((Block(block.count, avro.payload_of(block)),), skims)
            own = [entry for entry in _skimmed(proven, line) if entry.status == wanted]
            found += own
            if not own:
                self._without.add(known)
        return found


def _adds(line: Line, snapshot_id: int) -> bool:
    return line.snapshot_id == snapshot_id and (line.added_files is None or line.added_files > 0)


def _line(manifest: ManifestFile) -> Line:
    return Line(
        manifest.manifest_path,
        manifest.manifest_length,
        manifest.partition_spec_id,
        manifest.added_snapshot_id,
        manifest.sequence_number,
        manifest.added_files_count,
        manifest.deleted_files_count,
    )


def _skimmed(found: Manifest, line: Line) -> Iterator[Entry]:
    prefixes: dict[bytes, tuple[int, int]] = {}
    for row in found.rows:
        if row.entry is not None:  # decoded in full: its prefix may have another layout
            status, snapshot = row.entry.status, row.entry.snapshot_id or line.snapshot_id or 0
        elif row.prefix in prefixes:
            status, snapshot = prefixes[row.prefix]
        else:
            prefix = read_prefix(row.prefix)
            status, snapshot = prefix.status, prefix.snapshot_id or line.snapshot_id or 0
            prefixes[row.prefix] = status, snapshot
        yield Entry(status, snapshot, normalize(row.path), row.size_bytes)


def _entry(entry: ManifestEntry) -> Entry:
    file = entry.data_file
    return Entry(int(entry.status), entry.snapshot_id or 0, normalize(file.file_path), file.file_size_in_bytes)
