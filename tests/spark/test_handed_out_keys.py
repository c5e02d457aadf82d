"""A job on Spark with keys that a REST catalog hands out: none of them, and no other secret, is on a command line."""

import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from spark_jobs.versions import AWS, ICEBERG
from tests.catalogs import test_handed_out as governed
from tests.servers import spark as prepared
from tests.servers.proxy import Reply, Request
from tests.support.lake import Writes

servers, house = governed.servers, governed.house


@pytest.mark.spark
def test_a_job_on_spark_compacts_with_keys_that_were_handed_out_and_none_is_on_a_command_line(
    house: governed.Lakehouse, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    prepared.wanted((ICEBERG, AWS))
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
