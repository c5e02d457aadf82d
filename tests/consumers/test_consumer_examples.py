"""The examples of docs/consumers.md do what they say."""

import os
import sqlite3
from importlib.util import find_spec
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from tests.docs.blocks import blocks
from tests.packaging.project import ROOT
from tests.servers import postgres
from tests.servers.needed import needed
from tests.support.configured import configured
from tests.support.lake import Lake, Writes

EXAMPLES = {
    name: block.text
    for block in blocks(ROOT / "docs/consumers.md")
    if block.kind == "python"
    for name in ("sums", "to-postgres", "counts", "latest", "export", "group")
    if f'name="{name}"' in block.text
}


@pytest.fixture
def lake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Lake:
    lake = Lake(tmp_path)
    configured(lake).rename(tmp_path / "bookkeeper.toml")
    monkeypatch.chdir(tmp_path)
    return lake


def run(lake: Lake, name: str) -> None:
    """Runs an example twice, with a commit before each, and once more."""
    writer = Writes(lake)
    for group in (["a", "b", "a"], ["b", "c"], []):
        if group:
            writer.publish(*group)
            lake.tick()
        exec(compile(EXAMPLES[name], f"docs/consumers.md {name}", "exec"), {})


def test_there_are_these_examples() -> None:
    assert len(EXAMPLES) == 6


def test_python(lake: Lake) -> None:
    run(lake, "sums")
    connection = sqlite3.connect("sums.db")
    assert connection.execute("SELECT * FROM sums ORDER BY key").fetchall() == [("a", 2), ("b", 2), ("c", 1)]
    connection.close()


def test_postgres(lake: Lake) -> None:
    with needed("Postgres"), postgres() as server:
        import psycopg2

        url = server.properties["uri"].replace("postgresql+psycopg2", "postgresql")
        EXAMPLES["to-postgres"] = EXAMPLES["to-postgres"].replace("postgresql://postgres@127.0.0.1/postgres", url)
        connection = psycopg2.connect(url)
        with connection, connection.cursor() as cursor:
            cursor.execute("CREATE TABLE keys (key TEXT)")
        run(lake, "to-postgres")
        with connection, connection.cursor() as cursor:
            cursor.execute("SELECT key FROM keys ORDER BY key")
            assert [key for (key,) in cursor.fetchall()] == list("aabbc")
        connection.close()


@pytest.mark.skipif(find_spec("polars") is None, reason="polars is not installed")
def test_polars(lake: Lake) -> None:
    run(lake, "counts")
    assert sum(sum(pq.read_table(path)["len"].to_pylist()) for path in Path("counts").iterdir()) == 5


def test_duckdb(lake: Lake) -> None:
    import duckdb

    run(lake, "latest")
    with duckdb.connect("lake.duckdb") as connection:
        assert [key for (key,) in connection.execute("SELECT key FROM latest ORDER BY key").fetchall()] == list("abc")


def test_parquet(lake: Lake) -> None:
    run(lake, "export")
    files = sorted(Path("export").iterdir())
    assert [key for path in files for key in pq.read_table(path)["key"].to_pylist()] == ["a", "b", "a", "b", "c"]
    assert os.fspath(files[0]) == "export/export-000000000001.parquet"


def test_several_processes(lake: Lake) -> None:
    run(lake, "group")
    connection = sqlite3.connect("group.db")
    assert [key for (key,) in connection.execute("SELECT key FROM keys")] == ["a", "b", "a", "b", "c"]
    connection.close()
