"""`bookkeeper init` as a newcomer types it: what fits is chosen, and what was chosen is said."""

import json
import re
import shlex
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner, Result

from bookkeeper.cli import main as bookkeeper
from bookkeeper.commands.columns import schema_for
from bookkeeper.commands.infer.like import infer
from bookkeeper.config.settings import Table
from tests.packaging.project import ROOT
from tests.support.logs import logging_put_back
from writers.cli import main as writer


@pytest.fixture
def sample(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """
    The sample configuration where README says to copy it, and a Parquet file without a column `timestamp`.
    """
    (tmp_path / "bookkeeper.toml").write_text((ROOT / "config" / "local.toml").read_text("utf-8"))
    rows = pa.table({"id": [1], "seen": pa.array([0], pa.timestamp("us", "UTC"))})
    pq.write_table(rows, tmp_path / "x.parquet")
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("BOOKKEEPER_CONFIG", raising=False)
    return tmp_path


def init(*words: str) -> Result:
    with logging_put_back():
        return CliRunner().invoke(bookkeeper, ["init", *words])


def test_a_writer_finds_its_folder_by_the_sample_configuration(sample: Path) -> None:
    folder = json.loads(init("--json").stdout)[0]["folder"]
    for words in ((), ("--config", "bookkeeper.toml")):
        with logging_put_back():
            done = CliRunner().invoke(writer, ["generate", *words, "--files", "1", "--records", "3", "--quiet"])
        assert done.exit_code == 0, done.output
    assert len(list(Path(folder.removeprefix("file://"), "pending").iterdir())) == 2


def test_columns_without_a_timestamp_are_partitioned_by_what_fits(sample: Path) -> None:
    done = init("--like", "x.parquet")
    assert done.exit_code == 0, done.output
    assert "events: partitioned by day(seen), the first column with a time; --partition says otherwise." in done.stderr
    assert "day(seen)" in done.stdout


def test_the_partition_can_be_said(sample: Path) -> None:
    words = ("--like", "x.parquet", "--partition", "hour(seen)", "--partition", "bucket(4, id)", "--json")
    assert json.loads(init(*words).stdout)[0]["partition"] == "hour(seen), bucket(4, id)"


def test_a_table_can_be_without_partitions(sample: Path) -> None:
    assert json.loads(init("--partition", "none", "--json").stdout)[0]["partition"] == "nothing"


@pytest.mark.parametrize("words", [("--partition", "dya(seen)"), ("--partition", "day(sen)")])
def test_a_typo_in_a_partition_makes_nothing(sample: Path, words: tuple[str, ...]) -> None:
    done = init("--like", "x.parquet", *words)
    assert (done.exit_code, words[1] in done.stderr) == (1, True)
    assert not (sample / "lake" / "demo").exists()


def test_a_table_that_is_there_is_not_changed_by_a_typo_and_it_is_said(sample: Path) -> None:
    init()
    done = init("--partition", "dya(timestamp)")
    assert done.exit_code == 1 and "the table is there and partitioned by day(timestamp)" in done.stderr
    text = (sample / "bookkeeper.toml").read_text()
    configured = text.replace("# partition-by = [", "partition-by = ['dya(timestamp)'] #")
    (sample / "bookkeeper.toml").write_text(configured)
    done = init()
    assert done.exit_code == 0 and "dya(timestamp)" in done.stderr and "init changes nothing" in done.stderr


def test_columns_for_a_table_that_is_there_are_not_used_and_it_is_said(sample: Path) -> None:
    init()
    assert (
        "events: the table is there: it keeps its columns, whatever x.parquet has."
        in init("--like", "x.parquet").stderr
    )


def test_what_becomes_of_history_is_said_when_the_table_becomes_a_queue(sample: Path) -> None:
    assert "expires snapshots older than 10 m, except the last 100" in init().stderr
    assert "history" not in init().stderr


def test_keys_are_asked_for_by_options(sample: Path) -> None:
    columns = '[{"name": "id", "type": "long", "required": true}, {"name": "op", "type": "string"}]'
    Path("columns.json").write_text(columns)
    made = json.loads(init("--schema", "columns.json", "--key", "id", "--op-column", "op", "--json").stdout)
    assert "keys" in made[0]["made"]
    assert "keys" not in json.loads(init("--json").stdout)[0]["made"]
    refused = init("--key", "nothing")
    assert refused.exit_code != 0 and "has no column 'nothing'" in refused.stderr


def test_a_dry_run_shows_the_columns_and_changes_nothing(sample: Path) -> None:
    (sample / "x.csv").write_text("id,seen\n1,2026-01-01T00:00:00Z\nNA,\n")
    before = sorted(sample.rglob("*"))
    done = init("--like", "x.csv", "--null", "NA", "--dry-run")
    assert done.exit_code == 0, done.output
    assert re.search(r"id +long +no +1 +1\nseen +timestamptz +no +1 +2026-01-01T00:00:00Z", done.stdout)
    assert "partitioned by day(seen)" in done.stderr and "nothing was changed" in done.stderr
    (shown,) = json.loads(init("--like", "x.csv", "--null", "NA", "--dry-run", "--json").stdout)
    assert (shown["partition"], len(shown["schema"])) == ("day(seen)", 2)
    assert json.loads(init("--dry-run", "--partition", "none", "--json").stdout)[0]["partition"] == "nothing"
    assert sorted(sample.rglob("*")) == before


def test_the_columns_that_are_written_are_what_schema_takes(sample: Path) -> None:
    (sample / "x.ndjson").write_text('{"id": 1, "deep": {"a": [1.5], "b": {"c": true}}, "none": {}}\n')
    assert init("--like", "x.ndjson", "--write-schema", "columns.json").exit_code == 0
    assert not (sample / "lake").exists()
    written = schema_for(Table(name="t", identifier="d.t"), "columns.json")
    assert written == infer("x.ndjson").schema
    assert init("--like", "x.ndjson", "--write-schema", "no/columns.json").exit_code == 1
    assert init("--like", "x.ndjson", "--schema", "columns.json").exit_code == 2


def test_the_load_that_init_names_loads_the_file(sample: Path) -> None:
    (sample / "My prices.txt").write_text("id;arr delay;Sepal.Width;seen\n1;NA;2.5;2026-01-01\n2;3;NA;2026-01-02\n")
    done = init("--like", "My prices.txt", "--delimiter", ";", "--null", "NA", "--key", "id")
    assert done.exit_code == 0, done.output
    (command,) = re.findall(r"load it: writer (.*)", done.stderr)
    with logging_put_back():
        loaded = CliRunner().invoke(writer, shlex.split(command))
    assert loaded.exit_code == 0 and "bad lines 0" in loaded.stderr, loaded.output
    with logging_put_back():
        assert CliRunner().invoke(bookkeeper, ["once"]).exit_code == 0
    with logging_put_back():
        rows = CliRunner().invoke(bookkeeper, ["tail", "--from", "beginning", "--count", "2", "--json"])
    assert "2026-01-02" in rows.stdout and "2.5" in rows.stdout, rows.output


@pytest.mark.parametrize("named", [True, False])
def test_the_load_that_init_names_works_without_a_location_too(sample: Path, named: bool) -> None:
    text = re.sub(r"^location = .*$", "", (sample / "bookkeeper.toml").read_text(), flags=re.MULTILINE)
    (sample / "bookkeeper.toml").unlink()
    config = "my lake.toml" if named else "bookkeeper.toml"
    (sample / config).write_text(text)
    (sample / "x.csv").write_text("id\n1\n")
    done = init(*(("--config", config) if named else ()), "--like", "x.csv")
    assert done.exit_code == 0, done.output
    (command,) = re.findall(r"load it: writer (.*)", done.stderr)
    with logging_put_back():
        loaded = CliRunner().invoke(writer, [*shlex.split(command), "--quiet"])
    assert loaded.exit_code == 0, loaded.output
    assert len(list((sample / "lake/demo/events/_bookkeeper/pending").iterdir())) == 1


def test_a_change_stream_becomes_a_keyed_table_and_is_loaded_by_the_command_that_is_named(sample: Path) -> None:
    changes = [{"op": "c", "after": {"id": 1, "v": "a"}}, {"op": "d", "before": {"id": 1}}]
    (sample / "x.ndjson").write_text("".join(json.dumps(change) + "\n" for change in changes))
    refused = init("--like", "x.ndjson", "--preset", "debezium")
    assert refused.exit_code == 1 and "Never null: id." in refused.stderr
    words = ("--like", "x.ndjson", "--preset", "debezium", "--key", "id", "--op-column", "op", "--order-column", "at")
    assert "column 'op' (string) is added as the op-column" in init(*words, "--dry-run").stderr
    done = init(*words)
    assert done.exit_code == 0 and "column 'at' (long) is added as the order-column" in done.stderr, done.output
    (command,) = re.findall(r"load it: writer (.*)", done.stderr)
    with logging_put_back():
        loaded = CliRunner().invoke(writer, shlex.split(command))
    assert loaded.exit_code == 0 and "bad lines 0" in loaded.stderr, loaded.output


def test_an_op_column_that_differs_by_case_only_is_refused(sample: Path) -> None:
    (sample / "x.csv").write_text("id,Op\n1,c\n")
    done = init("--like", "x.csv", "--key", "id", "--op-column", "op")
    assert done.exit_code == 1 and "Did you mean Op?" in done.stderr


def test_an_op_column_that_a_table_lacks_is_refused_with_the_way_to_add_it(sample: Path) -> None:
    assert init("--key", "key").exit_code == 0
    done = init("--key", "key", "--op-column", "op")
    assert done.exit_code == 1 and "ALTER TABLE demo.events ADD COLUMN op STRING" in done.stderr


def test_a_table_made_by_mistake_is_dropped_and_made_again(sample: Path) -> None:
    def drop(*words: str) -> Result:
        with logging_put_back():
            return CliRunner().invoke(bookkeeper, ["drop", "events", *words])

    assert init().exit_code == 0
    shown = drop("--json")
    assert shown.exit_code == 0 and json.loads(shown.stdout)["against"] == "nothing"
    assert "bookkeeper drop events --yes" in shown.stderr and init("--json").stdout.count("nothing, all was there") == 1
    done = drop("--yes")
    assert done.exit_code == 0, done.output
    (command,) = re.findall(r"to delete them: (.*)", done.stderr)
    assert command == f"rm -r {sample}/lake/demo/events"
    assert drop("--yes").exit_code == 1
    assert "table" in json.loads(init("--json").stdout)[0]["made"]
