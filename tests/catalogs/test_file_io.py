"""The daemon's FileIO: local files without pyarrow, every other location as pyiceberg has it."""

import subprocess
import sys
from pathlib import Path

import pytest
from pyiceberg.catalog.rest import TableResponse
from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.table.update import SetPropertiesUpdate

from bookkeeper.catalogs.commit import load_table
from bookkeeper.catalogs.file_io import DiskFirst
from tests.support.catalog_lake import CatalogLake, Chain, Place
from tests.support.lake import Lake, Writes


@pytest.mark.parametrize("form", ["{}", "file:{}", "file://{}"])
def test_a_local_file_is_what_pyiceberg_sees_there(tmp_path: Path, form: str) -> None:
    ours, theirs, location = DiskFirst(), PyArrowFileIO(), form.format(tmp_path / "deep" / "a.json")
    assert not ours.new_input(location).exists()
    with ours.new_output(location).create() as stream:
        stream.write(b"{}")
    for io in (ours, theirs):
        assert (io.new_input(location).exists(), len(io.new_input(location))) == (True, 2)
        with io.new_input(location).open() as source:
            assert source.read() == b"{}"
    ours.delete(location)
    assert not theirs.new_input(location).exists()


def test_what_is_not_there_and_what_is_there_are_said(tmp_path: Path) -> None:
    io, location = DiskFirst(), f"file://{tmp_path}/a"
    with pytest.raises(FileNotFoundError):
        io.new_input(location).open()
    with pytest.raises(FileNotFoundError):
        io.delete(io.new_output(location))
    io.new_output(location).create().close()
    with pytest.raises(FileExistsError):
        io.new_output(location).create()
    io.new_output(location).create(overwrite=True).close()
    assert not io.new_input(f"file://{tmp_path}").exists()


def test_other_locations_and_odd_ones_are_left_to_pyiceberg(tmp_path: Path) -> None:
    io = DiskFirst({"s3.endpoint": "http://127.0.0.1:1", "s3.region": "nowhere"})
    odd = tmp_path / "50%.json"
    odd.write_bytes(b"{}")
    assert isinstance(io._other("s3://bucket/key"), PyArrowFileIO)
    assert len(io.new_input(str(odd))) == 2


WITHOUT = """
import sys
from datetime import UTC, datetime
from bookkeeper.config import load as config
from bookkeeper.serve.open import open_bookkeeper
settings = config.load(sys.argv[1], {})
turn = open_bookkeeper(settings, settings.tables["events"], lambda: datetime.now(UTC)).tick(datetime.now(UTC))
print(turn.commit.txlogs, "pyarrow" in sys.modules)
"""


def test_a_bookkeeper_on_local_disk_commits_without_pyarrow(tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    Writes(lake).publish("a")
    path = tmp_path / "bookkeeper.toml"
    catalog = "\n".join(f'"{key}" = "{value}"' for key, value in lake.catalog_settings.properties.items())
    path.write_text(f'[catalog]\nname = "lake"\n{catalog}\n[tables.events]\nidentifier = "demo.events"\n')
    said = subprocess.run([sys.executable, "-c", WITHOUT, str(path)], capture_output=True, text=True, check=True)
    assert said.stdout.split() == ["1", "False"], said.stderr


#: what a table's property names as the class of its FileIO
IMPORTED = "tests.catalogs.imported_by_a_table"
HOSTILE = {
    "py-io-impl": f"{IMPORTED}.Io",
    "s3.endpoint": "http://127.0.0.1:1",
    "s3.proxy-uri": "http://127.0.0.1:1",
    "adls.connection-string": "elsewhere",
}


def test_a_tables_properties_say_nothing_of_how_its_files_are_reached(lake: CatalogLake) -> None:
    """Whoever may alter the table would name the endpoint that gets the catalog's keys, or a class to import."""
    table = lake.table()
    table.catalog.commit_table(table, (), (SetPropertiesUpdate(updates=HOSTILE),))
    chain = Chain(lake, "w1")
    chain.publish()
    assert lake.tick().commit.txlogs == 1
    assert lake.keys() == lake.published and lake.wrong() == []
    loaded = load_table(lake.where.open(), lake.settings.identifier)
    assert loaded.metadata.properties.items() >= HOSTILE.items()
    assert {key: loaded.io.properties.get(key) for key in HOSTILE} == {
        key: lake.where.settings.properties.get(key) for key in HOSTILE
    }
    assert IMPORTED not in sys.modules


def test_what_a_rest_server_says_of_a_table_counts_and_the_tables_properties_do_not(rest: Place) -> None:
    lake, catalog = rest.lake(), rest.open()
    said = catalog._session.get(catalog.url("namespaces/demo/tables/" + lake.settings.identifier.rpartition(".")[2]))
    answer = said.json()
    answer["config"] = {"s3.endpoint": "http://said:1"}
    answer["metadata"]["properties"] = {"s3.endpoint": "http://stolen:1", "s3.proxy-uri": "http://stolen:1", "a": "b"}
    table = catalog._response_to_table(("demo", "t"), TableResponse.model_validate(answer))
    assert (table.io.properties["s3.endpoint"], table.io.properties.get("s3.proxy-uri")) == ("http://said:1", None)
    assert table.metadata.properties["a"] == "b"
