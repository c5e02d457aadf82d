"""
What readers remember of manifests and of their blocks. Neither ever changes, so the cache is never stale.

A block is known by the digest of its bytes, whatever manifest it lies in. A block that loses nothing is copied from
manifest to manifest as it is stored, and read once (docs/maintain/block-reuse.md). Which facts are remembered of a
block, and which of a manifest, is each reader's own choice.
"""

from collections.abc import Callable, Container, Hashable, Iterable, Sequence
from functools import cache
from hashlib import blake2b
from typing import Generic, TypeVar

from bookkeeper.format import avro
from bookkeeper.format.avro import Block, PackedBlock

K = TypeVar("K", bound=Hashable)
M = TypeVar("M")
B = TypeVar("B")

#: the digest of a block
Digest = Callable[[Block | PackedBlock], bytes]

#: manifests
MOST_MANIFESTS = 100_000
#: manifests that are remembered though the table may list them no more
_SLACK = 64
_DIGEST_BYTES = 16


class BlockCache(Generic[K, M, B]):
    """
    Facts of manifests, by path or another name, and of blocks, by digest.

    The facts of blocks take at most `most_bytes`, as `weigh` tells: those that were asked for least recently are
    forgotten first, and found once more when the block is met again.
    """

    def __init__(self, weigh: Callable[[B], int], most_bytes: int) -> None:
        self._weigh, self._most_bytes = weigh, most_bytes
        self._manifests: dict[K, tuple[M, Sequence[bytes]]] = {}
        self._blocks: dict[bytes, B] = {}
        self._weight = 0

    @property
    def manifests(self) -> Sequence[K]:
        """The paths of the manifests that are known."""
        return [*self._manifests]

    def manifest(self, path: K) -> M | None:
        """The facts of the manifest at `path`, or None when it was not read yet."""
        known = self._manifests.get(path)
        return known[0] if known else None

    def blocks_of(self, path: K) -> Sequence[bytes]:
        """The digests of the blocks of a manifest, as they were given."""
        known = self._manifests.get(path)
        return known[1] if known else ()

    def put_manifest(self, path: K, facts: M, digests: Sequence[bytes] = ()) -> None:
        """Remembers a manifest and which blocks it has; the oldest is forgotten when there are too many."""
        if len(self._manifests) >= MOST_MANIFESTS:
            self._manifests.pop(next(iter(self._manifests)))
        self._manifests[path] = facts, digests

    def block(self, digest: bytes) -> B | None:
        """The facts of the block with this digest, or None; a block that was asked for is forgotten last."""
        facts = self._blocks.pop(digest, None)
        if facts is not None:
            self._blocks[digest] = facts
        return facts

    def put_block(self, digest: bytes, facts: B) -> None:
        """
        Remembers a block; one that would push out a tenth of all others is not remembered.

        What it says must be the same in each manifest: facts that a record inherits belong to one manifest only.
        """
        weight, before = self._weigh(facts), self._blocks.pop(digest, None)
        if before is not None:
            self._weight -= self._weigh(before)
        if weight > self._most_bytes // 10:
            return
        self._blocks[digest] = facts
        self._weight += weight
        while self._weight > self._most_bytes:
            self._weight -= self._weigh(self._blocks.pop(next(iter(self._blocks))))

    def forget_unlisted(self, paths: Iterable[K]) -> None:
        """Forgets, once enough of them have piled up, manifests other than these, and the blocks of no manifest."""
        listed = set(paths)
        if len(self._manifests) > 2 * len(listed) + _SLACK:
            self.keep_only(listed)

    def keep_only(self, paths: Container[K]) -> None:
        """Forgets manifests other than these, and the blocks of no manifest."""
        self._manifests = {path: known for path, known in self._manifests.items() if path in paths}
        live = {digest for _, digests in self._manifests.values() for digest in digests}
        self._blocks = {digest: facts for digest, facts in self._blocks.items() if digest in live}
        self._weight = sum(map(self._weigh, self._blocks.values()))


def digester(avro_schema: bytes, codec: bytes = b"deflate") -> Digest:
    """
    Makes the digests of blocks with this schema and codec: of both, the count of records and the bytes as stored.
    """

    @cache  # readers that remember nothing ask for no digest
    def schema_hash() -> blake2b:
        return blake2b(avro_schema, digest_size=_DIGEST_BYTES, person=codec)

    def digest(block: Block | PackedBlock) -> bytes:
        block_hash = schema_hash().copy()
        block_hash.update(b"%d " % block.count)
        block_hash.update(block.packed or avro.payload_of(block))
        return block_hash.digest()

    return digest
