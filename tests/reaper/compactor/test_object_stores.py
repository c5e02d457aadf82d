"""The embedded compactor on object stores: files are read, new ones uploaded, and the rewrite is committed."""

from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pytest

from reaper.compactor.worker import CannotRewrite
from tests.servers.shared import place, wanted
from tests.support.compactions import committed, rewritten, scanned
from tests.support.compactor import live
from tests.support.lake import Lake
from tests.support.pyiceberg_files import sqlite_catalog
from writers import Writer

FILES = 5


def now() -> datetime:
    return datetime.now(UTC)


@pytest.mark.parametrize("kind", ["s3", "azurite"])
def test_files_are_rewritten_and_committed(kind: str, tmp_path: Path) -> None:
    catalog = sqlite_catalog(tmp_path, **{**wanted(kind).properties, "warehouse": place(kind)})
    lake = Lake(tmp_path, catalog=catalog, file_names=None)
    with Writer.open(lake.made.folder, "w1", stores=lake.store) as writer:
        for number in range(FILES):
            writer.write(pa.Table.from_pylist([{"timestamp": now(), "key": f"k{number}", "value": b"v"}]))
            writer.publish()
    lake.tick()
    before, files = scanned(lake), live(lake)

    gone = replace(files[0].file, path=files[0].file.path.replace("w1-", "w2-"))
    with pytest.raises(CannotRewrite, match=r"w2-.*is not there"):
        rewritten(lake, [files[0]._replace(file=gone)])
    done = rewritten(lake)
    assert (done.new_files, done.rows) == (1, FILES)
    committed(lake)
    assert len(live(lake)) == 1
    assert scanned(lake) == before
