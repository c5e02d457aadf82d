"""Jobs beside the bookkeeper with keys that a REST catalog hands out and that end: the compactor, and Spark."""

import subprocess
import sys
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from bookkeeper.catalogs.open import open_catalog
from bookkeeper.config.settings import Compaction
from bookkeeper.contract.pending_rewrites import pending_rewrites, rejected_rewrites
from reaper.compactor.compactor import Compactor
from reaper.compactor.worker import rewrite
from spark_jobs.versions import AWS, ICEBERG
from tests.catalogs import test_handed_out as governed
from tests.servers import spark
from tests.servers.proxy import Reply, Request
from tests.support.lake import Writes

servers, house = governed.servers, governed.house


def test_a_compactor_goes_on_across_renewals_also_within_a_group(house: governed.Lakehouse) -> None:
    lake = house.lake()
    book, write, catalog = lake.product(), Writes(lake), open_catalog(house.catalog)

    def slow(*given: Any, stopped: Any, **more: Any) -> Any:
        def asked() -> bool:  # between two steps of a group
            house.desk.now.seconds += governed.LATER
            return bool(stopped())

        return rewrite(*given, stopped=asked, **more)

    compactor = Compactor(replace(lake.settings, compaction=Compaction(engine="own", fan_in=4)), slow, lake.clock)
    for turn in range(3):
        for number in range(4):
            write.publish(f"{turn}{number}")
        assert book.tick(lake.clock.now).commit.txlogs == 4
        loads = len(house.desk.loads)
        assert compactor.round(catalog, lake.clock.now).replaced_files == 4
        assert len(house.desk.loads) - loads >= 3  # beside its own look
        assert lake.product().tick(lake.clock.now).rewrites.committed == 1
    compactor.close()
    assert (pending_rewrites(lake.folder), rejected_rewrites(lake.folder)) == ([], [])
    assert lake.keys() == sorted(write.keys) and house.desk.refused == [] == house.desk.expired
    assert {key for key, path in house.desk.used if path.startswith("/queue/")} == {"test"}


@pytest.mark.spark
def test_a_job_on_spark_compacts_with_keys_that_were_handed_out_and_none_is_on_a_command_line(
    house: governed.Lakehouse, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spark.wanted((ICEBERG, AWS))
    house.desk.seconds = 3600  # Java renews keys where the server names `client.refresh-credentials-endpoint`
    lake, shown = house.lake(), list[str]()
    book, write = lake.product(), Writes(lake)
    for number in range(3):
        write.publish(f"{number}", at=datetime.now(UTC) - timedelta(hours=5))
    assert book.tick(lake.clock.now).commit.txlogs == 3
    monkeypatch.setattr(house.first, "answer", _while_it_runs(house.first.answer, shown))
    house.first.seen.clear()
    house.desk.used.clear()
    config = tmp_path / "bookkeeper.toml"
    config.write_text(_written(house, lake.settings.identifier, str(lake.settings.folder)))
    words = ["-m", "spark_jobs.compact", "--config", str(config), "--older-than", "1h", "--min-input-files", "2"]
    done = subprocess.run([sys.executable, *words], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    assert lake.product().tick(lake.clock.now).rewrites.replaced_files == 3
    assert lake.keys() == sorted(write.keys) and house.desk.refused == []
    # Of the table nothing was reached with the keys of the configuration, which are those of the folder.
    assert {key for key, path in house.desk.used if path.startswith("/lake/")} <= house.desk.keys.keys()
    loads = [request for request in house.first.seen if "/tables/" in request.path]
    assert loads and all(
        request.headers.get("X-Iceberg-Access-Delegation") == "vended-credentials" for request in loads
    )
    secrets = [*house.desk.secrets(), "testtest", "s3cr3t-of-nothing"]
    assert any("org.apache.spark.deploy.SparkSubmit" in line for line in shown)
    assert not [text for text in secrets if text in done.stdout + done.stderr + "".join(shown)]


def _while_it_runs(answer: Any, shown: list[str]) -> Any:
    def answered(request: Request) -> Reply:
        for place in Path("/proc").glob("[0-9]*/cmdline"):
            try:
                line = place.read_bytes().decode(errors="replace")
            except OSError:
                continue  # it has ended
            if "spark" in line:
                shown.append(line)
        reply: Reply = answer(request)
        return reply

    return answered


def _written(house: governed.Lakehouse, identifier: str, folder: str) -> str:
    """The configuration as a file, with what only Spark hides if it is kept off the command line."""
    properties = {**house.catalog.properties, "header.X-Secret": "s3cr3t-of-nothing"}
    lines = [f'"{key}" = "{value}"' for key, value in properties.items()]
    table = f'[tables.events]\nidentifier = "{identifier}"\nfolder = "{folder}"\n'
    return "\n".join(["[catalog]", 'name = "lake"', *lines, table])
