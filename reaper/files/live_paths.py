"""
Which files snapshots can read, by keyed 64-bit hashes of their locations: 8 bytes a file, kept from run to run.

A manifest never changes, and most of its blocks are passed on to the next: each block is hashed once. Where manifests
are large, the hashes are kept in the folder, next to the journal; a record that is torn or of another table is thrown
away, and all is read once more.
"""

import json
import secrets
from array import array
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from hashlib import blake2b, sha256

import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]
from pyiceberg.table.snapshots import Snapshot

from bookkeeper.errors import Missing, Unfit
from bookkeeper.stores.store import Store
from reaper.files.manifest_reader import ManifestReader

KEY = "reaper/live-paths"
VERSION = 1
#: of the record: thirty million files
MOST_BYTES = 2**28
#: of manifests, with some 100,000 files: fewer are read again in each run, in less than half a second
FEW_BYTES = 2**24
_DIGEST_BYTES = 32
#: of a manifest: its location and length in bytes
_Manifest = tuple[str, int]


@dataclass
class LivePaths:
    """
    The files that snapshots of one table can read.
    """

    folder: Store
    reader: ManifestReader
    _uuid: str = ""
    _key: bytes = b""
    #: digests of a manifest's blocks: a manifest never changes
    _blocks: dict[_Manifest, list[bytes]] = field(default_factory=dict)
    #: by digest of a block: retention passes most blocks of a manifest on to the next as they are
    _hashes: dict[bytes, "array[int]"] = field(default_factory=dict)
    #: whether there is something to keep
    _fresh: bool = False

    def among(self, paths: Collection[str], table_uuid: str, snapshots: Iterable[Snapshot]) -> frozenset[str]:
        """
        Those of the normalized `paths` that these snapshots can read; raises StorageUnavailable.

        A path that has the hash of another counts too, which only leaves a file.
        """
        if self._uuid != table_uuid:
            self._uuid, self._key, self._blocks, self._hashes = table_uuid, secrets.token_bytes(16), {}, {}
        lines = {(line.path, line.length): line for line in self.reader.by_path(snapshots).values()}
        many = sum(max(0, line.length) for line in lines.values()) > FEW_BYTES
        if many and not self._blocks:
            self._read()
        missing = [line for manifest, line in lines.items() if manifest not in self._blocks]
        for line, blocks in self.reader.live(missing, self._hashes):
            self._hashes |= {digest: self._hashed(block) for digest, block in blocks if block is not None}
            self._blocks[line.path, line.length] = [digest for digest, _ in blocks]
        self._blocks = {manifest: self._blocks[manifest] for manifest in lines}
        self._hashes = {digest: self._hashes[digest] for blocks in self._blocks.values() for digest in blocks}
        self._fresh = self._fresh or (many and bool(missing))
        return self._found(paths)

    def keep(self) -> None:
        """
        Keeps what was read for the next run; raises StorageUnavailable. A crash before or in it costs a run's reading.
        """
        if not self._fresh:
            return
        at = {digest: number for number, digest in enumerate(self._hashes)}
        record = {
            "version": VERSION,
            "table-uuid": self._uuid,
            "key": self._key.hex(),
            "blocks": [[digest.hex(), len(hashes)] for digest, hashes in self._hashes.items()],
            "manifests": [[*manifest, [at[digest] for digest in blocks]] for manifest, blocks in self._blocks.items()],
        }
        content = b"".join([json.dumps(record).encode(), b"\n", *map(bytes, self._hashes.values())])
        if len(content) + _DIGEST_BYTES <= MOST_BYTES:
            self.folder.replace(KEY, content + sha256(content).digest())
        self._fresh = False

    def _hashed(self, paths: Iterable[str]) -> "array[int]":
        return array("q", map(self._hash, paths))

    def _hash(self, path: str) -> int:
        return int.from_bytes(blake2b(path.encode(), digest_size=8, key=self._key).digest(), "little", signed=True)

    def _found(self, paths: Collection[str]) -> frozenset[str]:
        by_hash = {self._hash(path): path for path in paths}
        live = pa.chunked_array([_as_arrow(hashes) for hashes in self._hashes.values()], pa.int64())
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
            self._key, self._blocks, self._hashes = bytes.fromhex(record["key"]), blocks, hashes


def _as_arrow(hashes: "array[int]") -> pa.Array:
    return pa.Array.from_buffers(pa.int64(), len(hashes), [None, pa.py_buffer(hashes)])
