"""Blocks of manifests: those that lose nothing are carried on as they are, unread, and proven again when changed."""

from collections import Counter
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.manifest import ManifestContent

from bookkeeper.config.settings import Retention
from bookkeeper.format import avro, records
from bookkeeper.format import manifest as manifest_format
from bookkeeper.format.records import EXISTING, Prefix, write_prefix
from bookkeeper.format.skim import Skimmer
from bookkeeper.ledger import merge
from bookkeeper.manifests import stats as block_stats
from bookkeeper.manifests.blocks import stats_of
from bookkeeper.manifests.cache import digester
from bookkeeper.manifests.stats import EMPTY, BlockStats, Range, StatsCache, range_of, union
from bookkeeper.retention.scan import find
from bookkeeper.retention.size_cutoff import size_cutoff
from tests.support.lake import Lake, Writes

#: of about four records
BLOCK_BYTES = 1000


@pytest.fixture
def lake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Lake:
    monkeypatch.setattr(records, "BLOCK_BYTES", BLOCK_BYTES)
    retention = Retention(keep=timedelta(days=1), every=timedelta(0), brake=1.0)
    return Lake(tmp_path, check_files=False, partition_by=(), retention=retention)


@pytest.fixture
def skimmed(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How many records were read."""
    count, rows = Counter[str](), Skimmer.rows

    def counted(self: Skimmer, payload: bytes, number: int) -> Any:
        count["records"] += number
        return rows(self, payload, number)

    monkeypatch.setattr(Skimmer, "rows", counted)
    return count


def merged(lake: Lake, book: Any, files: int = 2 * merge.FAN) -> list[str]:
    """Commits files, each an hour older than the next, until the oldest lie in manifests of several blocks."""
    writer = Writes(lake)
    for number in range(files):
        writer.publish(f"k{number:02d}", at=lake.clock.now - timedelta(minutes=60 * (files - number)))
        lake.tick(book, seconds=1)
    return writer.keys


def blocks(lake: Lake) -> list[avro.Block]:
    """Of all manifests of the head."""
    table = lake.table()
    paths = [item.manifest_path for item in table.current_snapshot().manifests(table.io)]
    return [block for path in paths for block in avro.decode(_local(path).read_bytes(), 2**24).blocks]


def _local(path: str) -> Path:
    return Path(path.removeprefix("file://"))


def test_a_retention_reads_and_writes_only_the_blocks_that_lose_files(lake: Lake, skimmed: Counter[str]) -> None:
    book = lake.book()
    keys = merged(lake, book, 2 * merge.FAN)
    lake.tick(book, hours=1)
    before, read = blocks(lake), skimmed["records"]
    assert len(before) > 4
    turn = lake.tick(book, hours=1)
    assert turn.dropped_files == 1
    assert skimmed["records"] - read <= 2 * max(block.count for block in before)
    same = {block.packed for block in before} & {block.packed for block in blocks(lake)}
    assert len(same) >= len(before) - 3
    assert lake.keys() == keys[-len(lake.keys()) :]


def test_which_commits_are_too_many_bytes_is_found_in_the_oldest_blocks(lake: Lake, skimmed: Counter[str]) -> None:
    book = lake.book()
    merged(lake, book)
    view, ledger = lake.view(), book.ledger
    live = [*ledger.live_entries(view, ManifestContent.DATA)]
    sizes = sorted((entry.sequence_number, entry.data_file.size_bytes) for entry in live)
    for dropped in (1, 3):
        read, excess = skimmed["records"], sum(size for _, size in sizes[:dropped])
        assert size_cutoff(ledger, view, ledger.cache.column, excess) == sizes[dropped - 1][0]
        assert skimmed["records"] - read < len(live) // 2


def test_a_merge_of_merged_manifests_reads_no_record(lake: Lake, skimmed: Counter[str]) -> None:
    book = lake.book()
    merged(lake, book)
    view, read = lake.view(), skimmed["records"]
    group = [item for item in book.ledger.manifests(view) if not item.added_files_count]
    header = book.ledger.writer.header(view.metadata.schema(), view.metadata.spec())
    found = merge.merge(book.ledger.reader(view), group, header, book.ledger.cache).records
    assert found.counts[records.EXISTING][0] == sum(item.existing_files_count or 0 for item in group) >= merge.FAN
    assert skimmed["records"] - read <= sum(item.deleted_files_count or 0 for item in group)


def test_a_block_that_changed_on_disk_is_not_carried_on(lake: Lake, caplog: pytest.LogCaptureFixture) -> None:
    book = lake.book()
    merged(lake, book)
    oldest = min(book.ledger.manifests(lake.view()), key=lambda item: item.min_sequence_number or 0)
    path = _local(oldest.manifest_path)
    data = path.read_bytes()
    packed = avro.decode(data, 2**24).blocks[-1].packed or b"?"
    # A single byte may lie in a text, and be another one then.
    path.write_bytes(data.replace(packed, packed[: len(packed) // 2].ljust(len(packed), b"\0")))
    head = lake.table().metadata.current_snapshot_id
    assert lake.tick(book, hours=2).dropped_files == 0
    assert "a manifest cannot be read" in book.duties.retention.held_back
    (hint,) = [vars(record)["hint"] for record in caplog.records if record.getMessage() == "retention held back"]
    assert "rewrite_manifests" in hint
    assert lake.table().metadata.current_snapshot_id == head


def test_a_bookkeeper_that_looks_before_anything_is_old_drops_it_once_it_is(lake: Lake) -> None:
    merged(lake, lake.book())
    anew = lake.book()
    lake.tick(anew, seconds=1)
    before = lake.keys()
    assert lake.tick(anew, seconds=1).dropped_files == 0
    assert lake.tick(anew, hours=3).dropped_files == 3
    assert lake.keys() == before[3:]


def test_blocks_that_are_not_compressed_lose_files_too(lake: Lake) -> None:
    book = lake.book()
    merged(lake, book)
    for item in book.ledger.manifests(lake.view()):
        path = _local(item.manifest_path)
        found = avro.decode(path.read_bytes(), 2**24)
        path.write_bytes(avro.encode(found.meta, found.blocks, "null"))
    before = lake.keys()
    assert lake.tick(lake.book(), hours=3).dropped_files == 3
    assert lake.keys() == before[3:]


def test_one_large_block_becomes_several_of_which_only_one_is_read_from_then_on(
    lake: Lake, skimmed: Counter[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(records, "BLOCK_BYTES", 2**16)
    book = lake.book()
    merged(lake, book)
    assert max(block.count for block in blocks(lake)) >= merge.FAN
    monkeypatch.setattr(records, "BLOCK_BYTES", BLOCK_BYTES)
    lake.tick(book, hours=1)
    read = skimmed["records"]
    assert lake.tick(book, hours=1).dropped_files == 1
    assert skimmed["records"] - read < merge.FAN


@pytest.mark.parametrize("ids", [(7, 3, None), (7, None, 3), (None, 3, 3)])
def test_a_block_with_anything_to_inherit_is_not_carried_on_unread(lake: Lake, ids: Any) -> None:
    book = lake.book()
    merged(lake, book, 3)
    item = book.ledger.manifests(lake.view())[0]
    (row, *_) = manifest_format.decode(_local(item.manifest_path).read_bytes(), 2**24).rows
    whole, lacking = (write_prefix(Prefix(EXISTING, *given)) for given in ((7, 3, 3), ids))
    assert stats_of([row._replace(prefix=whole)], 1) is not None
    assert stats_of([row._replace(prefix=lacking)], 1) is None


def test_a_find_by_another_column_in_between_does_not_make_a_drop_forget(lake: Lake) -> None:
    book = lake.book()
    merged(lake, book)
    view, ledger = lake.view(), book.ledger
    drops = find(ledger, view, None, lambda _: True, lambda row, _: row.path.endswith("-k20.parquet"))
    every = (lambda found: found.least_upper is not None, lambda row, _: row.upper is not None)
    before = find(ledger, view, 1, *every)
    after = find(ledger, ledger.drop(view, drops), 1, *every)
    assert len(drops) == 1
    assert sum(len(item.dropped) for item in after) == sum(len(item.dropped) for item in before) - 1


def test_the_same_bytes_are_another_block_under_another_schema_or_count() -> None:
    block = avro.PackedBlock(3, b"packed")
    same = digester(b"schema")(block)
    assert digester(b"schema")(avro.PackedBlock(3, b"packed")) == same
    others = [avro.PackedBlock(2, b"packed"), avro.PackedBlock(3, b"packet")]
    assert len({same, digester(b"scheme")(block), *map(digester(b"schema"), others)}) == 4


def stats(*partitions: tuple[Any, ...]) -> BlockStats:
    return BlockStats(1, 1, 1, EMPTY, frozenset(partitions))


def test_what_is_remembered_of_blocks_is_bounded_and_what_was_asked_for_goes_last(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(block_stats, "MOST_BYTES", 20_000)
    for partitions in ([(1,)], [(number,) for number in range(9)], [("x" * 1000,)]):
        known = StatsCache()
        for number in range(100):
            known.put_block(b"%d" % number, stats(*partitions))
            known.block(b"0")
        kept = [number for number in range(100) if known.block(b"%d" % number)]
        assert kept == [0, *range(101 - len(kept), 100)]
        assert 5 <= len(kept) <= 40


def test_a_block_that_would_push_out_all_others_is_not_remembered() -> None:
    known = StatsCache()
    known.put_block(b"a", stats((1,)))
    known.put_block(b"b", stats(*((number,) for number in range(200_000))))
    assert known.block(b"a")
    assert not known.block(b"b")


def test_what_no_live_manifest_has_is_forgotten() -> None:
    known = StatsCache()
    for number in range(300):
        name = b"%d" % number
        known.put_block(name, stats((number,)))
        known.put_manifest(name.decode(), EMPTY, [name])
        known.forget_unlisted([name.decode(), "0"])
    left = [number for number in range(300) if known.block(b"%d" % number)]
    assert {0, 299} <= set(left)
    assert len(left) < 100
    assert [number for number in range(300) if known.manifest(str(number))] == left


def test_ranges_unite_to_the_range_of_all() -> None:
    files = [(b"\x05" + bytes(7), 7), (None, 3), (b"\xff" * 8, 9)]  # -1 is the least
    assert range_of(files) == union(range_of([item]) for item in files) == Range(b"\xff" * 8, 3, 9)
    assert union([]) == EMPTY
