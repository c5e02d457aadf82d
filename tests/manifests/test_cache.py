"""What readers remember of blocks: within a bound, the same for the same bytes only, and as long as it is listed."""

import pytest

from bookkeeper.format.avro import Block, PackedBlock
from bookkeeper.manifests import cache
from bookkeeper.manifests.cache import BlockCache, digester


def test_facts_of_a_block_may_grow_and_the_bound_holds() -> None:
    known = BlockCache[str, int, bytes](len, 100)
    for number in range(50):
        known.put_block(b"%d" % number, b"x" * 5)
    assert [number for number in range(50) if known.block(b"%d" % number)] == [*range(30, 50)]
    for size in (6, 7, 8):
        known.put_block(b"49", b"x" * size)
    assert known.block(b"49") == b"x" * 8 and known.block(b"30") is None
    known.put_block(b"49", b"x" * 11)  # more than a tenth of all
    assert known.block(b"49") is None


def test_a_manifest_has_its_own_facts_and_its_blocks() -> None:
    known = BlockCache[tuple[str, int], int, bytes](len, 100)
    known.put_block(b"d", b"x")
    known.put_manifest(("m", 1), 0, [b"d", b"e"])
    assert known.manifest(("m", 1)) == 0 and known.manifest(("m", 2)) is None
    assert known.blocks_of(("m", 1)) == [b"d", b"e"] and known.blocks_of(("m", 2)) == ()
    known.keep_only([("m", 1)])
    assert known.manifests == [("m", 1)] and known.block(b"d") == b"x"
    known.keep_only([])
    assert not known.manifests and known.block(b"d") is None


def test_the_oldest_of_too_many_manifests_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache, "MOST_MANIFESTS", 3)
    known = BlockCache[str, int, bytes](len, 100)
    for number in range(5):
        known.put_manifest(f"{number}", number)
    assert known.manifests == ["2", "3", "4"]


def test_bytes_that_are_not_compressed_are_another_block_than_the_same_bytes_compressed() -> None:
    plain, packed = Block(3, b"the same"), PackedBlock(3, b"the same")
    assert digester(b"schema", b"null")(plain) != digester(b"schema")(packed)
    assert digester(b"schema")(Block(3, b"unpacked", b"the same")) == digester(b"schema")(packed)
