"""How much a consumer has in memory: what is read at once, decoded at once, and fetched ahead."""

import random
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from bookkeeper.catalogs.file_io import LocalFile
from bookkeeper.consumers import reader
from bookkeeper.consumers.consumer import Limits
from bookkeeper.consumers.read_ahead import READ_AHEAD, each_ahead
from bookkeeper.consumers.rows import DISK_BUFFER, PIECE_BYTES
from bookkeeper.errors import StorageUnavailable
from tests.consumers.consumers import commit, committed, keys, opened, taken
from tests.support.lake import Lake, Writes, append_by_others


@pytest.fixture
def far(monkeypatch: pytest.MonkeyPatch) -> None:
    """The lake as if it were no disk of this machine."""
    monkeypatch.setattr(reader, "local_path", lambda location: None)


class Opened:
    """Each file that was opened, and the bytes of each read."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.reads: list[int] = []
        real = LocalFile.open

        def recording(file: LocalFile, seekable: bool = True) -> Any:
            found = real(file, seekable)
            return Recorded(found, self.reads) if file.location.endswith(".parquet") else found

        monkeypatch.setattr(LocalFile, "open", recording)


class Recorded:
    """A file whose reads are written down."""

    def __init__(self, inner: Any, reads: list[int]) -> None:
        self.inner, self.reads = inner, reads

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    def __enter__(self) -> "Recorded":
        return self

    def __exit__(self, *error: object) -> None:
        self.inner.close()

    def read(self, *most: int) -> Any:
        found = self.inner.read(*most)
        self.reads.append(len(found))
        return found


def large(lake: Lake, writer: Writes, rows: int = 16_000) -> list[str]:
    """A file of one row group whose keys, which do not compress, take 4 MB."""
    dice = random.Random(1)
    found = ["large", *(dice.randbytes(128).hex() for _ in range(rows))]  # the first one is in the file's name
    writer.publish(*found)
    lake.tick()
    return found


def test_of_a_large_file_little_is_read_and_decoded_at_once(
    lake: Lake, writer: Writes, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted, seen = large(lake, writer), Opened(monkeypatch)
    with opened(lake) as consumer:
        consumer.limits = Limits(100_000)
        (batch,) = committed(consumer)
    assert keys(batch) == wanted
    assert sum(seen.reads) > 4 * 2**20 and max(seen.reads) < DISK_BUFFER + 2**20, "a page has 1 MiB"
    chunks = batch.table["key"].chunks
    assert len(chunks) > 4 and max(chunk.nbytes for chunk in chunks) < 2 * PIECE_BYTES


@pytest.mark.usefixtures("far")
def test_elsewhere_a_small_file_is_fetched_whole_and_a_large_one_is_not(
    lake: Lake, writer: Writes, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit(lake, writer, "abc", "d")
    wanted = [*"abcd", *large(lake, writer, 3_000)]
    monkeypatch.setattr(reader, "FETCHED_BYTES", 2**16)
    seen = Opened(monkeypatch)
    assert taken(lake) == wanted
    assert len([size for size in seen.reads if size < 2**12]) >= 2
    assert taken(lake, 1, rows=2, name="other") + taken(lake, rows=7, name="other") == wanted


@pytest.mark.usefixtures("far")
def test_a_file_that_is_larger_than_its_entry_says_is_not_kept(
    lake: Lake, writer: Writes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reader, "FETCHED_BYTES", 100)
    append_by_others(lake, writer.file(["a", "b"], size_bytes=10))
    seen = Opened(monkeypatch)
    assert sorted(taken(lake)) == ["a", "b"]
    assert seen.reads[0] == 101, "no more than one byte beyond the bound"


@pytest.mark.usefixtures("far")
def test_a_storage_that_fails_in_a_thread_is_an_error_after_the_rows_before_it(
    lake: Lake, writer: Writes, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit(lake, writer, "a", "b", "c")
    fetch = reader.Reader._fetch

    def failing(self: Any, item: Any) -> Any:
        if item.file is not None and item.file.file_path.endswith("-b.parquet"):
            raise StorageUnavailable("no answer")
        return fetch(self, item)

    monkeypatch.setattr(reader.Reader, "_fetch", failing)
    found = []
    with opened(lake) as consumer, pytest.raises(StorageUnavailable):
        for batch in committed(consumer):
            found += keys(batch)
    assert found == ["a"]
    monkeypatch.undo()
    assert taken(lake) == ["b", "c"]


@pytest.mark.parametrize(("weight", "most", "ahead"), [(0, 0, READ_AHEAD), (10, 35, 4), (50, 35, 1), (35, 35, 2)])
def test_what_is_done_ahead_is_bounded_by_its_number_and_its_weight(weight: int, most: int, ahead: int) -> None:
    begun: list[int] = []
    with ThreadPoolExecutor(1) as threads:
        given = each_ahead(threads, range(100), begun.append, weigh=lambda item: weight, most=most)
        for done, (item, _) in enumerate(given):
            assert item == done
            threads.submit(int).result()  # what was submitted before is done
            assert len(begun) == min(100, done + ahead)
