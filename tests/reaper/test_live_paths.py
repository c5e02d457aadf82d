"""
The record of the files that snapshots can read: read once, kept, and never believed when it is not whole.
"""

from pathlib import Path
from typing import Any

import pytest

from bookkeeper.format import manifest
from reaper.context import ReaperContext
from reaper.files import live_paths
from reaper.files.live_paths import LivePaths
from reaper.files.manifest_reader import ManifestReader
from tests.support.pyiceberg_files import parquet_file
from tests.support.reaper_lake import ReaperLake


@pytest.fixture(autouse=True)
def always(monkeypatch: pytest.MonkeyPatch) -> None:
    """A table of a few files is worth a record."""
    monkeypatch.setattr(live_paths, "FEW_BYTES", -1)


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Entries of each block whose live files are read."""
    found: list[int] = []
    real = manifest.with_status

    def counting(block: Any, skims: Any, *statuses: int) -> Any:
        if len(statuses) == 2:
            found.append(block.count)
        return real(block, skims, *statuses)

    monkeypatch.setattr(manifest, "with_status", counting)
    return found


def twice(lake: ReaperLake) -> str:
    """A file that the table lists twice, and reads, after one of its entries was deleted and that snapshot expires."""
    file = lake.data_file()
    lake.append(file)
    lake.append(parquet_file(file.file_path, record_count=1, file_size_in_bytes=file.file_size_in_bytes))
    lake.delete(file.file_path, once=True)
    churn(lake)
    return str(file.file_path)


def churn(lake: ReaperLake) -> None:
    """Something to delete in the next run."""
    file = lake.data_file()
    lake.append(file)
    lake.delete(file.file_path)
    for _ in range(3):
        lake.append()


def record(lake: ReaperLake) -> Path:
    return lake.folder_path / live_paths.KEY


def test_a_block_is_read_by_one_run_only(lake: ReaperLake, read: list[int]) -> None:
    for _ in range(20):
        lake.append()
    churn(lake)
    lake.reap()
    assert len(read) > 20
    read.clear()
    churn(lake)
    lake.reap()
    assert 0 < len(read) <= 5


def test_a_file_that_a_snapshot_reads_stays_by_what_an_earlier_run_read(lake: ReaperLake, read: list[int]) -> None:
    path = twice(lake)
    lake.reap()
    assert path in lake.disk()
    again = lake.data_file()
    lake.append(again)
    lake.append(parquet_file(again.file_path, record_count=1, file_size_in_bytes=again.file_size_in_bytes))
    churn(lake)
    lake.reap()
    read.clear()
    lake.delete(again.file_path, once=True)
    for _ in range(4):
        lake.append()
    lake.reap()
    assert {path, again.file_path} <= lake.disk().keys()
    assert len(lake.rows()) > 4


@pytest.mark.parametrize(
    "broken", ["empty", "torn", "bits", "too long", "other table", "newer", "nonsense", "no record"]
)
def test_a_record_that_is_not_whole_is_read_anew(lake: ReaperLake, broken: str) -> None:
    file = lake.data_file()
    lake.append(file)
    asked = [file.file_path, f"file://{lake.location}/data/other.parquet"]
    table = lake.table()

    def among() -> LivePaths:
        found = LivePaths(*opened(lake))
        assert found.among(asked, str(table.metadata.table_uuid), table.metadata.snapshots) == {file.file_path}
        return found

    among().keep()
    whole = record(lake).read_bytes()
    content = whole[: -live_paths._DIGEST_BYTES]
    head, _, values = content.partition(b"\n")
    wrong = head + b"\n" + bytes(byte ^ 1 for byte in values)
    record(lake).write_bytes(
        {
            "empty": b"",
            "torn": whole[: len(whole) // 2],
            "bits": wrong + whole[-live_paths._DIGEST_BYTES :],
            "too long": signed(wrong + b"\0" * 8),
            "other table": signed(wrong.replace(b'"table-uuid": "', b'"table-uuid": "0')),
            "newer": signed(wrong.replace(b'"version": 1', b'"version": 2')),
            "nonsense": signed(b"[" * 100_000),
            "no record": b"",
        }[broken]
    )
    if broken == "no record":
        record(lake).unlink()
    among()


def opened(lake: ReaperLake) -> tuple[Any, ManifestReader]:
    """The folder, and a reader of its table's manifests."""
    context = ReaperContext.of(lake.settings, lake.opened(), None, lake.now)
    return context.folder, context.reader


def test_a_look_ahead_writes_nothing(lake: ReaperLake) -> None:
    churn(lake)
    lake.outlook()
    assert not record(lake).exists()


def test_a_small_table_has_no_record(lake: ReaperLake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live_paths, "FEW_BYTES", 2**24)
    churn(lake)
    lake.reap()
    assert not record(lake).exists()


def signed(content: bytes) -> bytes:
    """As the reaper would have written it."""
    return content + live_paths.sha256(content).digest()
