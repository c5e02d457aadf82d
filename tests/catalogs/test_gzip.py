"""`write.metadata.compression-codec = gzip`: what is written, what reads it, and what a hostile file costs."""

import gzip
import json
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table.metadata import TableMetadata, TableMetadataUtil

from bookkeeper.catalogs import metadata_json
from bookkeeper.catalogs.metadata_json import CODEC, MetadataJson
from bookkeeper.catalogs.open import STORAGE, open_catalog
from bookkeeper.commands.init import schema_for
from bookkeeper.commands.recover_catalog import recoverable
from bookkeeper.commands.verify import verify
from bookkeeper.config.settings import Catalog, Table
from bookkeeper.contract.known_table import known_table
from bookkeeper.stores.open import open_store
from tests.histories.readers import duckdb_session
from tests.support.lake import Lake, Writes


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    """A queue whose table asks for gzip."""
    made = Lake(tmp_path)
    set_codec(made, "gzip")
    return made


def set_codec(lake: Lake, codec: str) -> None:
    with lake.table().transaction() as change:
        change.set_properties({CODEC: codec})


def commits(lake: Lake, count: int) -> list[TableMetadata]:
    """The table after each of so many commits."""
    book, writes, found = lake.book(), Writes(lake), []
    for number in range(count):
        writes.publish(f"k{number}")
        lake.tick(book)
        found.append(book.view.metadata)  # type: ignore[union-attr]
    return found


def file_of(lake: Lake) -> Path:
    return Path(lake.table().metadata_location.removeprefix("file://"))


def unzipped(data: bytes) -> bytes:
    """As Java reads it: one member and nothing behind it."""
    unpacker = zlib.decompressobj(wbits=31)
    text = unpacker.decompress(data)
    assert unpacker.eof and not unpacker.unused_data
    assert gzip.decompress(data) == text
    return text


def test_a_metadata_file_is_gzip_by_its_name_and_holds_what_pyiceberg_would_write(lake: Lake) -> None:
    commits(lake, 3)
    path = file_of(lake)
    assert path.name.startswith("00005-") and path.name.endswith(".gz.metadata.json")
    assert unzipped(path.read_bytes()) == lake.table().metadata.model_dump_json().encode()
    assert len(path.read_bytes()) < len(unzipped(path.read_bytes())) / 2


@pytest.mark.parametrize(("codec", "name"), [("GZIP", ".gz.metadata.json"), ("none", ""), ("zstd", ""), ("", "")])
def test_only_gzip_is_a_codec(lake: Lake, codec: str, name: str) -> None:
    set_codec(lake, codec)
    commits(lake, 1)
    assert file_of(lake).name.endswith(name or ".metadata.json")
    assert (".gz." in file_of(lake).name) == bool(name)
    json.loads(unzipped(file_of(lake).read_bytes()) if name else file_of(lake).read_bytes())


def test_stock_pyiceberg_and_duckdb_read_it_and_stock_commits_go_in_between(lake: Lake) -> None:
    stock = SqlCatalog("lake", uri=lake.catalog_settings.properties["uri"], warehouse=f"file://{lake.root}")
    book, writes, names = lake.book(), Writes(lake), []
    for number in range(3):
        writes.publish(f"k{number}")
        lake.tick(book)
        names.append(file_of(lake).name)
        with stock.load_table("demo.events").transaction() as change:
            change.set_properties({"turn": str(number)})
        names.append(file_of(lake).name)
    writes.publish("last")
    lake.tick(book)
    assert [".gz." in name for name in names] == [True, False] * 3
    assert [int(name[:5]) for name in names] == list(range(3, 9))
    assert lake.keys() == sorted(writes.keys)
    found = duckdb_session().execute(f"SELECT key FROM iceberg_scan('{file_of(lake)}')").fetchall()
    assert sorted(key for (key,) in found) == sorted(writes.keys)
    assert len(stock.load_table("demo.events").scan().to_arrow()) == 4


def test_verify_and_recover_catalog_read_it(lake: Lake) -> None:
    commits(lake, 3)
    newest = file_of(lake).name
    assert not verify(lake.audit())
    known = known_table(lake.catalog_settings.properties, lake.settings)
    assert known is not None
    lake.catalog.drop_table(lake.settings.identifier)
    assert recoverable(known, lake.settings, lake.catalog, open_store).newest.name == newest


@pytest.fixture
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Pieces of 300 bytes; the sizes of what is compressed from now on."""
    sizes, deflated = list[int](), metadata_json._deflated
    monkeypatch.setattr(metadata_json, "_PIECE_BYTES", 300)

    def noted(text: bytes, *end: int) -> bytes:
        sizes.append(len(text))
        return deflated(text, *end)

    monkeypatch.setattr(metadata_json, "_deflated", noted)
    return sizes


def without(metadata: TableMetadata, count: int) -> TableMetadata:
    log = metadata.snapshot_log[count:]
    return metadata.model_copy(update={"snapshots": metadata.snapshots[count:], "snapshot_log": log})


def loaded(metadata: TableMetadata) -> TableMetadata:
    return TableMetadataUtil.parse_raw(metadata.model_dump_json())


def all_the_same(course: Sequence[TableMetadata], written: MetadataJson) -> bool:
    zipped = [unzipped(written.zip(metadata)) for metadata in course]
    return zipped == [metadata.model_dump_json().encode() for metadata in course]


def test_pieces_of_old_snapshots_are_compressed_once(lake: Lake, small_pieces: list[int]) -> None:
    written, costs = MetadataJson(), []
    for metadata in commits(lake, 12):
        small_pieces.clear()
        assert all_the_same([metadata], written)
        costs.append(len(small_pieces))
    # The beginning, what lies between the lists, the end, the last piece of each list; and what became full just now.
    assert max(costs) <= 5 + 4 < len(written._lists(metadata.table_uuid)[0].pieces())


def test_it_is_right_after_expiry_reload_rollback_and_growth_again(lake: Lake, small_pieces: list[int]) -> None:
    versions = commits(lake, 8)
    newest = versions[-1]
    course = [newest, without(newest, 2), loaded(newest), versions[2], versions[3], without(loaded(newest), 8), newest]
    assert all_the_same([*versions, *course], MetadataJson())


def test_two_tables_and_plain_files_between_do_not_get_into_its_way(lake: Lake, small_pieces: list[int]) -> None:
    written, versions = MetadataJson(), commits(lake, 5)
    other = versions[-1].model_copy(update={"table_uuid": UUID(int=7)})
    for metadata in (versions[2], other, versions[3], other, versions[4]):
        assert all_the_same([metadata], written)
        assert written.dump(metadata) == metadata.model_dump_json().encode()


def test_no_snapshot_at_all_is_written_too(lake: Lake) -> None:
    assert all_the_same([lake.table().metadata], MetadataJson())


def test_the_storage_catalog_writes_it_plain_and_says_so_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    properties = {"py-catalog-impl": STORAGE, "warehouse": f"file://{tmp_path}"}
    catalog: Any = open_catalog(Catalog("lake", properties), create=True)
    catalog.create_namespace("demo")
    table = catalog.create_table(
        "demo.events", schema_for(Table(name="events", identifier="demo.events")), properties={CODEC: "gzip"}
    )
    for number in range(3):
        with catalog.load_table("demo.events").transaction() as change:
            change.set_properties({"turn": str(number)})
    names = sorted(path.name for path in Path(table.location().removeprefix("file://"), "metadata").iterdir())
    assert names == [
        "v1.metadata.json",
        "v2.metadata.json",
        "v3.metadata.json",
        "v4.metadata.json",
        "version-hint.text",
    ]
    assert [record.action for record in caplog.records if record.levelname == "WARNING"] == ["codec"]  # type: ignore[attr-defined]
