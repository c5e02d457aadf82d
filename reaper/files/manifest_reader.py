"""
Reads manifest lists and manifests of a table, several at once; one that cannot be read now ends the run.
"""

from array import array
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
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
from bookkeeper.format.avro import Header, PackedBlock
from bookkeeper.format.manifest import Manifest
from bookkeeper.format.manifest_list import KnownLines, Line
from bookkeeper.format.records import ADDED, DELETED, EXISTING, read_prefix
from bookkeeper.format.skim import StatusRow
from bookkeeper.stores.locations import are_normal, normal

_MOST_BYTES = 2**31
_LIVE = (EXISTING, ADDED)
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
        #: by snapshot and its list: the manifests with files that it added
        self._own: dict[tuple[int, str], list[Line]] = {}
        #: of blocks that have no entry of some statuses: digest of the block's bytes and schema, and those statuses
        self._without: set[tuple[bytes, tuple[int, ...]]] = set()

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

    def entries(self, manifests: Iterable[Line]) -> Iterator[tuple[Line, Iterator[Entry]]]:
        """Each manifest, and its entries (deleted ones too) with what they inherit; raises StorageUnavailable."""
        for line, data in self.contents(manifests):
            with reading(line.path):
                found = self._entries_of(data, line)
            yield line, found

    def with_status(self, manifests: Iterable[Line], *statuses: int) -> Iterator[tuple[Line, list[StatusRow]]]:
        """
        Each manifest, and what of its entries has one of these statuses: their snapshots as written (None: the
        manifest's), normalized locations and bytes. Raises StorageUnavailable.

        Of deletions as many as the list states: where it states too few, files are left for the orphan sweep.
        """
        for line, data in self.contents(manifests):
            with reading(line.path):
                found = self._rows_of(data, line, statuses)
            yield line, found if are_normal([path for _, path, _ in found]) else _normalized(found)

    def added(self, snapshots: Iterable[Snapshot]) -> Iterator[tuple[int, Sequence[int]]]:
        """
        (snapshot, hash() of the normalized location of each file that it added), for each manifest with such files.

        Kept for a run, in 8 bytes a file: each step of a run looks at everything that was added since.
        """
        keys = {(item.snapshot_id, item.manifest_list): item for item in snapshots}
        missing = [key for key in keys if key not in self._own]
        for key, lines in zip(missing, self.lists(keys[key] for key in missing), strict=True):
            self._own[key] = [line for line in lines if _adds(line, key[0])]
        own = [line for key in keys for line in self._own[key]]
        new = [line for line in own if line.path not in self._hashes]
        for line, rows in self.with_status(new, ADDED):
            paths = (path for snapshot, path, _ in rows if snapshot in (None, line.snapshot_id))
            self._hashes[line.path] = array("q", map(hash, paths))
        for line in own:
            yield line.snapshot_id or 0, self._hashes[line.path]

    def live(
        self, manifests: Iterable[Line], known: Container[bytes]
    ) -> Iterator[tuple[Line, list[tuple[bytes, list[str] | None]]]]:
        """
        Each manifest by its blocks: a block's digest, and the normalized locations of its files that are not deleted;
        None for a block that is `known`. Raises StorageUnavailable.
        """
        for line, data in self.contents(manifests):
            with reading(line.path):
                found = [
                    (digest, None if rows is None else _paths(rows))
                    for digest, rows in self._live_of(data, line, known)
                ]
            yield line, found

    def _live_of(
        self, data: bytes, line: Line, known: Container[bytes]
    ) -> Sequence[tuple[bytes, Sequence[StatusRow] | None]]:
        try:
            header = avro.read_header(data)
            if header.meta.get(avro.CODEC) != b"deflate":
                return [(sha256(data).digest(), self._rows_of(data, line, _LIVE))]
            skims = manifest_format.skimmer_of(header.meta)
            blocks = [(_digest(header, block), block) for block in avro.packed_blocks(data, header.end)]
            return [
                (digest, None if digest in known else manifest_format.with_status(block, skims, *_LIVE))
                for digest, block in blocks
            ]
        except BookkeeperError:
            return [(sha256(data).digest(), self._rows_of(data, line, _LIVE))]

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

    def contents(self, manifests: Iterable[Line]) -> Iterator[tuple[Line, bytes]]:
        """Each manifest, and its bytes; raises StorageUnavailable."""
        lines = {line.path: line for line in manifests}
        for path, data in self._read({path: max(0, line.length) for path, line in lines.items()}):
            yield lines[path], data

    def _entries_of(self, data: bytes, line: Line) -> Iterator[Entry]:
        try:
            return _skimmed(manifest_format.decode(data, _MOST_BYTES), line)
        except BookkeeperError:
            return map(_entry, self._foreign(line))

    def _rows_of(self, data: bytes, line: Line, statuses: tuple[int, ...]) -> list[StatusRow]:
        try:
            return self._skimmed_rows(data, statuses, line.deleted_files if statuses == (DELETED,) else None)
        except BookkeeperError:
            found = map(_entry, self._foreign(line))
            return [(item.snapshot_id, item.path, item.bytes) for item in found if item.status in statuses]

    def _skimmed_rows(self, data: bytes, statuses: tuple[int, ...], most: int | None) -> list[StatusRow]:
        """
        The rows of these statuses, up to the end of a block with which there are `most`.

        A block that was read before and had none is known by its bytes, and not read again: retention passes most
        blocks of a manifest on as they are, behind that of its deletions.
        """
        header = avro.read_header(data)
        codec, skims = header.meta.get(avro.CODEC, b"null"), manifest_format.skimmer_of(header.meta)
        if codec != b"deflate":
            blocks = avro.read_blocks(data, header.end, codec, _MOST_BYTES)
            return [row for block in blocks for row in manifest_format.with_status(block, skims, *statuses)]
        found = list[StatusRow]()
        for block in avro.packed_blocks(data, header.end):
            if most is not None and len(found) >= most:
                break
            known = _digest(header, block), statuses
            if known in self._without:
                continue
            rows = manifest_format.with_status(block, skims, *statuses)
            found += rows
            if not rows:
                self._without.add(known)
        return found

    def _foreign(self, line: Line) -> Iterable[ManifestEntry]:
        """The entries of a layout of another writer: pyiceberg reads every layout, more slowly."""
        manifest = ManifestFile.from_args(
            manifest_path=line.path,
            partition_spec_id=line.spec_id,
            added_snapshot_id=line.snapshot_id,
            sequence_number=line.sequence,
        )
        return manifest.fetch_manifest_entry(self._io, discard_deleted=False)


def _digest(header: Header, block: PackedBlock) -> bytes:
    """Of what a block says: its bytes, and the schema that they are read by."""
    return sha256(header.meta["avro.schema"] + b"%d:" % block.count + block.packed).digest()


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
        int(manifest.content),
    )


def _paths(rows: Sequence[StatusRow]) -> list[str]:
    paths = [path for _, path, _ in rows]
    return paths if are_normal(paths) else [normalize(path) for path in paths]


def _normalized(rows: list[StatusRow]) -> list[StatusRow]:
    return [(snapshot, normalize(path), size) for snapshot, path, size in rows]


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
