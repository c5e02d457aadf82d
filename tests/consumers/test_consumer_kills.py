"""`kill -9` of a process that consumes into SQLite, Postgres, DuckDB and Parquet: each row is there once."""

import random
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.consumers import endless_consumer
from tests.packaging.project import ROOT
from tests.servers import postgres
from tests.servers.needed import needed
from tests.support.configured import configured
from tests.support.crew import Crew
from tests.support.lake import Lake, Writes

KILLS = 4


@pytest.fixture(params=["sqlite", "postgres", "duckdb", "parquet"])
def output(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[str, str]]:
    if request.param == "postgres":
        with needed("Postgres"), postgres() as server:
            yield "postgres", server.properties["uri"].replace("postgresql+psycopg2", "postgresql")
    else:
        yield request.param, str(tmp_path / f"output-{request.param}")


def found(kind: str, where: str) -> list[str]:
    """What the output holds."""
    if kind == "parquet":
        files = sorted(Path(where).glob("*.parquet"))
        held: list[str] = pa.concat_tables([pq.read_table(path) for path in files])["key"].to_pylist()
        return held
    connection: Any = endless_consumer.opened(kind, where)
    cursor = connection.cursor()
    cursor.execute("SELECT key FROM output")
    rows = [key for (key,) in cursor.fetchall()]
    cursor.close()
    connection.close()
    return rows


@pytest.mark.slow
def test_kill_9_loses_no_row_and_doubles_none(tmp_path: Path, output: tuple[str, str]) -> None:
    lake, dice = Lake(tmp_path), random.Random(7)
    writer, book = Writes(lake), lake.book()
    for commit in range(30):
        writer.publish(*[f"{commit}.{number}" for number in range(5)])
        lake.tick(book)
    command = [sys.executable, "-m", "tests.consumers.endless_consumer", str(configured(lake)), *output]
    crew = Crew({"consumer": command}, tmp_path)
    for _ in range(KILLS):
        child = crew.start("consumer", cwd=ROOT, stdout=subprocess.PIPE)
        for _, _ in zip(range(dice.randint(1, 30)), child.stdout, strict=False):
            pass
        crew.kill("consumer")
    crew.start("consumer", cwd=ROOT)
    assert crew.wait("consumer") == 0
    assert sorted(found(*output)) == sorted(writer.keys)
