"""Of large data files a fold reads the footer and the key columns, by ranges: the same rows, and few bytes."""

import gc
import io
import random
import re
import struct
from collections.abc import Collection, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from bookkeeper.errors import CannotRead
from bookkeeper.folds import read_columns as ranged
from bookkeeper.format.entries import DataFile
from bookkeeper.format.sparse_file import SparseFile, content_file, joined
from bookkeeper.stores.local import LocalStore
from bookkeeper.stores.store import Range, Store
from tests.stores.wires import OBJECTS, wired
from tests.support.folds import ID, NAME, data, fold, keys, lake_of, live, planned, put, state
from tests.support.lake import Lake

MiB = 2**20


def stored(rows: int, group: int, width: int = 1000, columns: int = 1, seed: int = 0) -> bytes:
    """A Parquet file with a key, `columns` of random text, and a second key after them; `group` rows in a row group."""
    noise, out = random.Random(seed), io.BytesIO()
    text = {f"text{at}": [noise.randbytes(width // 2).hex() for _ in range(rows)] for at in range(columns)}
    table = pa.table({"id": range(rows), **text, "other": [f"o{at % 7}" for at in range(rows)]})
    pq.write_table(table, out, row_group_size=group, compression="none")
    return out.getvalue()


def only(*names: str) -> Any:
    def names_of(file: DataFile, source: pa.Schema) -> Collection[str]:
        return names

    return names_of


class Asked:
    """A store that notes which ranges are asked for."""

    def __init__(self, store: Store) -> None:
        self.store, self.url, self.ranges = store, store.url, list[Range]()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.store, name)

    def read_ranges(self, ranges: Sequence[Range]) -> Any:
        self.ranges += ranges
        return self.store.read_ranges(ranges)

    @property
    def bytes(self) -> int:
        return sum(wanted.end - wanted.begin for wanted in self.ranges)


def put_files(store: Store, *contents: bytes) -> list[DataFile]:
    """These files in a store, and their entries."""
    for number, content in enumerate(contents):
        store.upload(f"{number}.parquet", content)
    return [
        DataFile(f"{store.url}/{number}.parquet", "PARQUET", (), 1, len(content))
        for number, content in enumerate(contents)
    ]


@pytest.fixture
def store(tmp_path: Path) -> Asked:
    return Asked(LocalStore(str(tmp_path / "files")))


def read(store: Any, files: list[DataFile], *names: str) -> list[pa.Table]:
    found = {file.path: content for file, content in ranged.read_columns(store, files, only(*names))}
    return [pq.read_table(content_file(found[file.path]), columns=list(names)) for file in files]


@pytest.mark.parametrize("kind", OBJECTS)
def test_few_requests_and_bytes_of_large_files_on_an_object_store(kind: str) -> None:
    contents = [stored(4_000, 2_000, seed=seed) for seed in range(3)]
    with wired(kind) as (near, through, between):
        files = put_files(near, *contents, stored(10, 10))
        between.seen.clear()
        found = read(through, files, "id")
        asked = [request.headers.get("Range") or request.headers.get("x-ms-range") for request in between.seen]
    assert [table["id"].to_pylist() for table in found] == [[*range(4_000)]] * 3 + [[*range(10)]]
    spans = [tuple(map(int, re.findall(r"\d+", text))) for text in asked if text]
    large = [(begin, end) for begin, end in spans if end > 100_000 or begin]
    # the small file whole; of each large one its end, and the first columns of two row groups
    assert len(asked) == 1 + 3 * 3
    assert sum(end + 1 - begin for begin, end in spans if (begin, end) in large) < 0.1 * sum(map(len, contents))


def test_key_columns_of_many_row_groups_are_read_in_few_ranges(store: Asked, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ranged, "GAP_BYTES", 1000)
    content = stored(6_000, 60)
    (table,) = read(store, put_files(store, content), "id")
    assert table["id"].to_pylist() == [*range(6_000)]
    # beside the end, and a footer that is longer
    assert len(store.ranges) == 2 + ranged.MOST_RANGES and store.bytes < 0.5 * len(content)
    monkeypatch.setattr(ranged, "MOST_RANGES", 1000)
    store.ranges.clear()
    read(store, put_files(store, content), "id")
    assert len(store.ranges) == 2 + 100 and store.bytes < 0.1 * len(content)


def test_ranges_that_lie_near_are_one(store: Asked) -> None:
    (table,) = read(store, put_files(store, stored(3_000, 300)), "id")
    assert table.num_rows == 3_000 and len(store.ranges) == 2


def test_a_footer_that_is_longer_than_the_end_is_read_by_a_range_of_its_own(
    store: Asked, monkeypatch: pytest.MonkeyPatch
) -> None:
    content = stored(4_000, 20, columns=2)
    footer = struct.unpack("<I", content[-8:-4])[0]
    assert footer > ranged.END_BYTES
    (table,) = read(store, put_files(store, content), "other", "id")
    assert table.num_rows == 4_000 and (store.ranges[1].end - store.ranges[1].begin) == footer
    monkeypatch.setattr(ranged, "MOST_FOOTER_BYTES", footer - 1)
    store.ranges.clear()
    read(store, put_files(store, content), "id")
    assert [(item.begin, item.end) for item in store.ranges[1:]] == [(0, len(content))]


@pytest.mark.parametrize("ends", [1, 256])
def test_files_are_read_together_as_far_as_they_fit(store: Asked, monkeypatch: pytest.MonkeyPatch, ends: int) -> None:
    files = put_files(store, *(stored(2_000, 2_000, seed=seed) for seed in range(4)))
    calls = list[int]()
    whole = store.store.read_ranges
    monkeypatch.setattr(store.store, "read_ranges", lambda ranges: (calls.append(len(ranges)), whole(ranges))[1])
    monkeypatch.setattr(ranged, "ENDS_TOGETHER", ends)
    assert [table.num_rows for table in read(store, files, "id")] == [2_000] * 4
    assert calls == ([4, 4] if ends > 1 else [1, 1] * 4)
    calls.clear()
    monkeypatch.setattr(ranged, "TOGETHER_BYTES", 1)
    read(store, files, "id")
    assert calls == ([4, 1, 1, 1, 1] if ends > 1 else [1, 1] * 4)


def test_files_that_were_read_do_not_stay_in_memory(store: Asked, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ranged, "TOGETHER_BYTES", MiB)
    files, most = put_files(store, *(stored(2_000, 2_000, seed=seed) for seed in range(4))), 0
    for _, content in ranged.read_columns(store, files, only("id", "text0")):
        del content
        gc.collect()
        most = max(most, sum(item.held for item in gc.get_objects() if isinstance(item, SparseFile)))
    assert most < 2 * files[0].size_bytes


@pytest.mark.parametrize("more", [-MiB, -1, 1, MiB])
def test_a_file_of_another_size_is_refused(store: Asked, more: int) -> None:
    content = stored(2_500, 2_500)
    (file,) = put_files(store, content)
    (shorter,) = put_files(store, content[:more] if more < 0 else content + bytes(more))
    assert shorter.path == file.path
    ((_, found),) = ranged.read_columns(store, [file], only("id"))
    assert isinstance(found, CannotRead) and f"{shorter.size_bytes} bytes, the table says {len(content)}" in str(found)


def test_a_missing_file_and_one_of_another_format_are_refused_beside_a_good_one(store: Asked) -> None:
    (good,) = put_files(store, stored(2_000, 2_000))
    gone = DataFile(f"{store.url}/gone.parquet", "PARQUET", (), 1, good.size_bytes)
    other = DataFile(good.path, "ORC", (), 1, good.size_bytes)
    outside = DataFile("s3://elsewhere/1.parquet", "PARQUET", (), 1, good.size_bytes)
    found = [content for _, content in ranged.read_columns(store, [gone, good, other, outside], only("id"))]
    assert sorted(isinstance(content, CannotRead) for content in found) == [False, True, True, True]


# hostile files


def outcome(lake: Lake) -> Any:
    """What a fold of the lake finds: dead rows by file, and what it leaves."""
    computed = planned(lake)
    return computed.dead_rows, sorted(re.sub(r"bytes \d+ to \d+.*", "", text) for text in computed.left.values())


def large_lake(root: Path, group: int = 500) -> Lake:
    """A table with a large data file, and deletes by one key and by two."""
    lake, noise = lake_of(root), random.Random(1)
    rows = [{"id": at % 3_000, "name": f"n{at % 5}", "region": noise.randbytes(300).hex()} for at in range(4_000)]
    monkey = pytest.MonkeyPatch()
    with monkey.context() as patch:
        patch.setattr("tests.support.folds.ROWS_OF_A_GROUP", group)
        put(lake, data(lake, rows))
    put(lake, keys(lake, [{"id": at} for at in range(0, 900, 3)]))
    put(lake, keys(lake, [{"id": 1, "name": "n1"}, {"id": 3_000, "name": "n0"}, {"id": 4, "name": None}], (ID, NAME)))
    return lake


@pytest.mark.parametrize("group", [5, 500, 4_000])
def test_a_fold_by_ranges_is_the_fold_of_whole_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, group: int
) -> None:
    lake = large_lake(tmp_path, group)
    before, by_ranges = state(lake), outcome(lake)
    monkeypatch.setattr(ranged, "SMALL_BYTES", 2**40)
    assert outcome(lake) == by_ranges and by_ranges[0] > 300
    monkeypatch.undo()
    fold(lake)
    assert state(lake) == before and live(lake, 2) == []


@pytest.mark.parametrize("seed", range(3))
def test_a_damaged_footer_is_refused_as_in_a_file_that_is_read_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    lake, noise, refused = large_lake(tmp_path), random.Random(seed), 0
    (file,) = live(lake, 0)
    path = Path(file.file["file_path"].removeprefix("file://"))
    whole, asked = path.read_bytes(), list[Range]()
    footer = struct.unpack("<I", whole[-8:-4])[0]
    given = LocalStore.read_ranges

    def noted(self: LocalStore, ranges: Sequence[Range]) -> Any:
        asked.extend(ranges)
        return given(self, ranges)

    monkeypatch.setattr(LocalStore, "read_ranges", noted)
    for _ in range(20):
        damaged = bytearray(whole)
        for _ in range(noise.choice([1, 1, 3])):
            damaged[len(whole) - 1 - noise.randrange(footer + 8)] ^= 1 << noise.randrange(8)
        path.write_bytes(damaged)
        by_ranges = outcome(lake)
        with monkeypatch.context() as patch:
            patch.setattr(ranged, "SMALL_BYTES", 2**40)
            assert outcome(lake) == by_ranges
        refused += bool(by_ranges[1])
    assert refused and all(0 <= item.begin < item.end <= len(whole) for item in asked)
    assert len(asked) <= 20 * (3 + ranged.MOST_RANGES)


# the parts


def test_a_byte_that_was_not_read_is_never_made_up() -> None:
    file = SparseFile(100)
    file.add(90, bytes(range(90, 100)))
    file.add(10, bytes(range(10, 20)))
    assert bytes(file.read(12, 15)) == bytes([12, 13, 14]) and file[95] == 95 and len(file) == 100
    assert bytes(file.read(95, 500)) == bytes(range(95, 100))
    for begin, end in ((9, 11), (19, 21), (50, 60), (0, 1)):
        with pytest.raises(CannotRead, match="were not read"):
            file.read(begin, end)
    assert file.lacking == [(9, 11), (19, 21), (50, 60), (0, 1)]
    with pytest.raises(IndexError):
        file[100]


@pytest.mark.parametrize("seed", range(50))
def test_joined_ranges_cover_all_are_apart_and_few(seed: int) -> None:
    noise = random.Random(seed)
    spans = [(begin, begin + noise.randint(1, 50)) for begin in noise.choices(range(2000), k=noise.randint(0, 40))]
    gap, most = noise.choice([0, 5, 40]), noise.choice([1, 3, 100])
    found = joined(spans, gap, most)
    assert all(any(begin <= first and last <= end for begin, end in found) for first, last in spans)
    assert all(later[0] - earlier[1] > gap for earlier, later in pairwise(found))
    assert len(found) <= most
    assert {begin for begin, _ in found} <= {first for first, _ in spans}
