"""A foreign manifest that we cannot read: it is left as it is, and appends go on."""

from datetime import timedelta
from pathlib import Path

import pytest

from bookkeeper.config.settings import Retention
from bookkeeper.ledger import merge
from tests.support.lake import Lake, Writes


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return Lake(tmp_path, check_files=False)


def spoil(lake: Lake) -> Path:
    """The first manifest of the head becomes one in an unknown form."""
    table = lake.table()
    manifest = table.current_snapshot().manifests(table.io)[0]
    path = Path(manifest.manifest_path.removeprefix("file://"))
    path.write_bytes(b"Obj\x02" + bytes(manifest.manifest_length - 4))
    return path


def listed(lake: Lake) -> list[str]:
    table = lake.table()
    return [item.manifest_path for item in table.current_snapshot().manifests(table.io)]


def test_appends_go_on_beside_a_manifest_that_cannot_be_read(
    lake: Lake, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(merge, "FAN", 3)
    book, writer = lake.book(), Writes(lake)
    for number in range(8):
        writer.publish(f"k{number}")
        assert lake.tick(book).commit is not None
        if number == 0:
            bad = spoil(lake)
    assert f"file://{bad}" in listed(lake)
    assert lake.operations().count("replace") >= 2  # the others are merged, as soon as there are enough of them
    said = [record for record in caplog.records if record.getMessage() == "manifests left unmerged"]
    assert [(record.action, record.manifests) for record in said] == [("merge", [f"file://{bad}"])]


def test_manifests_from_before_the_metadata_path_moved_are_merged_and_lose_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(merge, "FAN", 3)
    retention = Retention(keep=timedelta(days=1), every=timedelta(0), brake=1.0)
    lake = Lake(tmp_path, check_files=False, retention=retention)
    book, writer = lake.book(), Writes(lake)
    for number in range(2):
        writer.publish(f"k{number}", at=lake.clock.now - timedelta(hours=22 - number))
        lake.tick(book)
    moved = f"{lake.table().metadata.location}/metadata/moved"
    with lake.table().transaction() as change:
        change.set_properties({"write.metadata.path": moved})
    book = lake.book()
    writer.publish("k2")
    lake.tick(book, seconds=11)
    assert lake.operations()[-1] == "replace" and [path.startswith(moved) for path in listed(lake)] == [True]
    with lake.table().transaction() as change:
        change.set_properties({"write.metadata.path": f"{moved}-again"})
    assert lake.tick(lake.book(), hours=2).dropped_files == 1
    assert lake.keys() == ["k1", "k2"]
    assert not [record for record in caplog.records if record.getMessage() == "manifests left unmerged"]
