"""The daemon's FileIO: local files without pyarrow, every other location as pyiceberg has it."""

import subprocess
import sys
from pathlib import Path

import pytest
from pyiceberg.io.pyarrow import PyArrowFileIO

from bookkeeper.catalogs.file_io import DiskFirst
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
