"""
Which files snapshots can read, by keyed 64-bit hashes of their locations: 8 bytes a file.

A manifest never changes, and most of its blocks are passed on to the next: each block is hashed once. Where manifests
are large, the hashes are kept in the folder, next to the journal; a record that is torn or of another table is thrown
away, and all is read once more.
"""

import json
import secrets
from array import array
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b, sha256

import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]
from pyiceberg.table.snapshots import Snapshot

from bookkeeper.errors import Missing, Unfit
from bookkeeper.format.manifest_list import ListedManifest
from bookkeeper.format.records import ADDED, EXISTING
from bookkeeper.manifests.cache import BlockCache
from bookkeeper.manifests.walk import Walked
from bookkeeper.stores.store import Store
from reaper.files.manifest_reader import ManifestReader, normalized

KEY = "reaper/live-paths"
VERSION = 1
#: of the record: thirty million files
MOST_BYTES = 2**28
#: of manifests, with some 100,000 files: fewer are read again in each run, in less than half a second
FEW_BYTES = 2**24
_DIGEST_BYTES = 32
#: of the hashes in memory, and of a block beside them
_MOST_BYTES, _BLOCK_BYTES = MOST_BYTES, 200
_LIVE = (EXISTING, ADDED)
#: of a manifest: its location and length in bytes
_Manifest = tuple[str, int]


def _cache() -> "BlockCache[_Manifest, Sequence[bytes], array[int]]":
    """The digests of the blocks of each manifest, and the hashes of each block."""
    return BlockCache(lambda hashes: _BLOCK_BYTES + 8 * len(hashes), _MOST_BYTES)


@dataclass
class LivePaths:
    """
    The files that snapshots of one table can read.
    """

    folder: Store
    reader: ManifestReader
    _uuid: str = ""
    #: of the hashes that are kept; empty where there are few
    _key: bytes = b""
    _known: "BlockCache[_Manifest, Sequence[bytes], array[int]]" = field(default_factory=_cache)
    #: whether there is something to keep
    _fresh: bool = False

    def among(self, paths: Collection[str], table_uuid: str, snapshots: Iterable[Snapshot]) -> frozenset[str]:
        """
        Those of the normalized `paths` that these snapshots can read; raises StorageUnavailable.

        A path that has the hash of another counts too, which only leaves a file.
        """
        if self._uuid != table_uuid:
            self._uuid, self._key, self._known = table_uuid, b"", _cache()
        lines = {(item.manifest_path, item.manifest_length): item for item in self.reader.by_path(snapshots).values()}
        many = sum(max(0, item.manifest_length) for item in lines.values()) > FEW_BYTES
        if many and not self._key:
            self._key, self._known = secrets.token_bytes(16), _cache()
            self._read()
        live: dict[bytes, array[int]] = {}
        missing = list[ListedManifest]()
        for manifest, item in lines.items():
            blocks = self._blocks(manifest)
            if blocks is None:
                missing.append(item)
            else:
                live |= blocks
        for item, read in self.reader.each(missing, self._hashed_blocks):
            self._known.put_manifest((item.manifest_path, item.manifest_length), [*read], [*read])
            live |= read
        self._known.keep_only(lines)
        self._fresh = self._fresh or (many and bool(missing))
        return self._found(paths, live.values())

    def keep(self) -> None:
        """
        Keeps what was read for the next run; raises StorageUnavailable. A crash before or in it costs a run's reading.
        """
        if not self._fresh:
            return
        manifests = {name: blocks for name in self._known.manifests if (blocks := self._blocks(name)) is not None}
        hashes = {digest: found for blocks in manifests.values() for digest, found in blocks.items()}
        at = {digest: number for number, digest in enumerate(hashes)}
        record = {
            "version": VERSION,
            "table-uuid": self._uuid,
            "key": self._key.hex(),
            "blocks": [[digest.hex(), len(found)] for digest, found in hashes.items()],
            "manifests": [[*name, [at[digest] for digest in blocks]] for name, blocks in manifests.items()],
        }
        content = b"".join([json.dumps(record).encode(), b"\n", *map(bytes, hashes.values())])
        if len(content) + _DIGEST_BYTES <= MOST_BYTES:
            self.folder.replace(KEY, content + sha256(content).digest())
        self._fresh = False

    def _blocks(self, manifest: _Manifest) -> "dict[bytes, array[int]] | None":
        """The hashes of the blocks of a manifest, by their digests; None when some are not known."""
        found = {digest: self._known.block(digest) for digest in self._known.manifest(manifest) or ()}
        known = {digest: hashes for digest, hashes in found.items() if hashes is not None}
        return known if len(known) == len(found) and self._known.manifest(manifest) is not None else None

    def _hashed_blocks(self, manifest: ListedManifest, blocks: Iterable[Walked]) -> "dict[bytes, array[int]]":
        found: dict[bytes, array[int]] = {}
        for block in blocks:
            digest = block.digest
            known = self._known.block(digest)
            if known is None:
                known = self._hashed(path for _, path, _ in normalized(block.with_status(*_LIVE)))
                self._known.put_block(digest, known)
            found[digest] = known
        return found

    def _hashed(self, paths: Iterable[str]) -> "array[int]":
        return array("q", map(self._hash, paths))

    def _hash(self, path: str) -> int:
        if not self._key:  # nothing is kept: Python's own is keyed by process, and takes a tenth
            return hash(path)
        return int.from_bytes(blake2b(path.encode(), digest_size=8, key=self._key).digest(), "little", signed=True)

    def _found(self, paths: Collection[str], hashes: "Iterable[array[int]]") -> frozenset[str]:
        by_hash = {self._hash(path): path for path in paths}
        live = pa.chunked_array([*map(_as_arrow, hashes)], pa.int64())
        found = live.filter(pc.is_in(live, pa.array(by_hash, pa.int64())))
        return frozenset(by_hash[value] for value in found.to_pylist())

    def _read(self) -> None:
        """Takes over the record of an earlier run, if it is whole and of this table."""
        try:
            data = self.folder.read(KEY, MOST_BYTES)
        except (Missing, Unfit):
            return
        content, digest = data[:-_DIGEST_BYTES], data[-_DIGEST_BYTES:]
        if sha256(content).digest() != digest:
            return
        try:
            self._take(content)
        except (ValueError, KeyError, TypeError, IndexError, RecursionError):
            return

    def _take(self, content: bytes) -> None:
        head, _, values = content.partition(b"\n")
        record = json.loads(head)
        if (record["version"], record["table-uuid"]) != (VERSION, self._uuid):
            return
        at = 0
        hashes: dict[bytes, array[int]] = {}
        for digest, files in record["blocks"]:
            hashes[bytes.fromhex(digest)] = array("q", values[at : at + files * 8])
            at += files * 8
        digests = [*hashes]
        blocks = {(path, length): [digests[at] for at in numbers] for path, length, numbers in record["manifests"]}
        if at == len(values):
            self._key = bytes.fromhex(record["key"])
            for digest, found in hashes.items():
                self._known.put_block(digest, found)
            for manifest, of_manifest in blocks.items():
                self._known.put_manifest(manifest, of_manifest, of_manifest)


def _as_arrow(hashes: "array[int]") -> pa.Array:
    return pa.Array.from_buffers(pa.int64(), len(hashes), [None, pa.py_buffer(hashes)])
