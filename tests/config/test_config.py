"""The configuration: found, read, refused in one line that names key, value and what is allowed."""

from collections.abc import Mapping
from dataclasses import FrozenInstanceError, fields
from datetime import timedelta
from pathlib import Path

import pytest

from bookkeeper.config.load import defaults, load, locate
from bookkeeper.config.load import parse as parse_with
from bookkeeper.config.settings import Catalog, Compaction, Daemon, Fold, Reaper, Retention, Settings, Table
from bookkeeper.errors import ConfigInvalid

TABLE = "[tables.events]\n"


def parse(text: str, environ: Mapping[str, str] | None = None) -> Settings:
    return parse_with(text, environ or {})


def test_an_empty_configuration_is_all_defaults() -> None:
    assert parse("") == Settings(source="text")


def test_a_table_without_keys_is_all_defaults_but_its_name() -> None:
    assert parse(TABLE).tables == {"events": Table(name="events", identifier="default.events")}


def test_every_kind_of_value_is_read() -> None:
    text = """
        [catalog]
        name = "prod"
        type = "rest"
        "s3.region" = "eu-central-1"
        "s3.path-style-access" = true
        "token-refresh" = 7

        [bookkeeper]
        every = "250ms"
        not-ready-after = 3

        [reaper]
        older-than = "1h"

        [tables.events]
        identifier = "demo.raw.events"
        folder = "s3://bucket/queue/"
        max-bytes = "10GiB"
        max-txlog-bytes = 1048576
        check-files = false
        partition-by = ["hour(ts)", "bucket(16, key)"]
        schema = [{ name = "ts", type = "timestamptz", required = true }]

        [tables.events.retention]
        keep = "7d"
        brake = 1

        [tables.events.reaper]
        retain-last = 5
    """
    read = parse(text)
    assert read.catalog == Catalog(
        "prod",
        {"type": "rest", "s3.region": "eu-central-1", "s3.path-style-access": "true", "token-refresh": "7"},
    )
    assert read.bookkeeper == Daemon(every=timedelta(milliseconds=250), not_ready_after=3)
    assert read.reaper == Reaper(older_than=timedelta(hours=1))
    assert read.tables["events"] == Table(
        name="events",
        identifier="demo.raw.events",
        folder="s3://bucket/queue/",
        max_bytes=10 * 2**30,
        max_txlog_bytes=2**20,
        check_files=False,
        partition_by=("hour(ts)", "bucket(16, key)"),
        schema=({"name": "ts", "type": "timestamptz", "required": True},),
        retention=Retention(keep=timedelta(days=7), brake=1.0),
        reaper=Reaper(older_than=timedelta(hours=1), retain_last=5),
    )


def test_a_tables_reaper_takes_from_the_common_one_what_it_does_not_say() -> None:
    read = parse('[reaper]\nretain-last = 7\nevery = "1m"\n[tables.a]\n[tables.b.reaper]\nretain-last = 9\n')
    assert read.tables["a"].reaper == Reaper(retain_last=7, every=timedelta(minutes=1))
    assert read.tables["b"].reaper == Reaper(retain_last=9, every=timedelta(minutes=1))


def test_a_tables_fold_is_read() -> None:
    read = parse('[tables.a]\n[tables.a.fold]\nenabled = false\nfiles = 3\nafter = "5s"\nmax-bytes = "1MiB"\n')
    assert read.tables["a"].fold == Fold(enabled=False, files=3, after=timedelta(seconds=5), max_bytes=2**20)


def test_settings_are_frozen() -> None:
    read = parse(TABLE)
    for owner in (read, read.catalog, read.bookkeeper, read.reaper, read.tables["events"]):
        with pytest.raises((FrozenInstanceError, TypeError)):
            setattr(owner, fields(owner)[0].name, "changed")


REFUSED = [
    ("x = 1", "x is not a known key; allowed here: bookkeeper, catalog, reaper, storage, tables"),
    ("[bookkeper]", "bookkeper is not a known key; allowed here: bookkeeper, catalog, reaper, storage, tables"),
    ("[bookkeeper]\nevry = 1", "bookkeeper.evry is not a known key; allowed here: allowed-hosts, backoff-most, "),
    (TABLE + "max_files = 3", "tables.events.max_files is not a known key; allowed here: check-files, "),
    (TABLE + 'name = "x"', "tables.events.name is not a known key; allowed here: check-files, "),
    ("[tables.e.retention]\nkep = 1", "tables.e.retention.kep is not a known key; allowed here: brake, column, "),
    ("tables = 1", "tables = 1: a section [tables] is allowed"),
    ("[tables]\nevents = 1", "tables.events = 1: a section [tables.events] is allowed"),
    (TABLE + "retention = 5", "tables.events.retention = 5: a section [tables.events.retention] is allowed"),
    ("catalog = 'x'", "catalog = 'x': a section [catalog] is allowed"),
    (TABLE + "window = 5", "tables.events.window = 5: a duration such as 500ms, 10s, 10m, 24h or 7d is allowed"),
    (TABLE + "window = '5'", "tables.events.window = '5': a duration such as 500ms, 10s, 10m, 24h or 7d is allowed"),
    (
        TABLE + "window = '-5s'",
        "tables.events.window = '-5s': a duration such as 500ms, 10s, 10m, 24h or 7d is allowed",
    ),
    (TABLE + "marks-keep = '1h'", "tables.events.marks-keep = '1h': at least 2 h is allowed"),
    (TABLE + "orphan-age = '9999999w'", "tables.events.orphan-age = '9999999w': a duration of at most 36500d is"),
    ("[bookkeeper]\nevery = '1ms'", "bookkeeper.every = '1ms': at least 10 ms is allowed"),
    (TABLE + "max-files = 0", "tables.events.max-files = 0: at least 1 is allowed"),
    (TABLE + "max-files = 1.5", "tables.events.max-files = 1.5: a whole number is allowed"),
    (TABLE + "max-files = true", "tables.events.max-files = True: a whole number is allowed"),
    (TABLE + "max-files = '7'", "tables.events.max-files = '7': a whole number is allowed"),
    (TABLE + "max-bytes = 'lots'", "tables.events.max-bytes = 'lots': a size such as 512, 64KiB, 128MiB or 2GiB is "),
    (TABLE + "max-bytes = 1.5", "tables.events.max-bytes = 1.5: a size such as 512, 64KiB, 128MiB or 2GiB is "),
    (TABLE + "max-bytes = -1", "tables.events.max-bytes = -1: at least 1 is allowed"),
    (TABLE + "check-files = 1", "tables.events.check-files = 1: true or false is allowed"),
    (TABLE + "check-files = 'no'", "tables.events.check-files = 'no': true or false is allowed"),
    (TABLE + "file-format = 'orc'", "tables.events.file-format = 'orc': one of parquet, avro is allowed"),
    (TABLE + "compression = 'ZSTD'", "tables.events.compression = 'ZSTD': one of zstd, snappy, gzip, none is allowed"),
    (TABLE + "partition-by = 'day(ts)'", "tables.events.partition-by = 'day(ts)': a list is allowed"),
    (TABLE + "partition-by = [1]", "tables.events.partition-by = [1]: a list of strings is allowed"),
    (TABLE + "schema = ['ts']", "tables.events.schema = ['ts']: a list of tables is allowed"),
    (TABLE + "identifier = 7", "tables.events.identifier = 7: a string is allowed"),
    (TABLE + "identifier = 'events'", "tables.events.identifier = 'events': namespace.table is allowed"),
    (TABLE + "identifier = 'a..b'", "tables.events.identifier = 'a..b': namespace.table is allowed"),
    (TABLE + "folder = 'queue'", "tables.events.folder = 'queue': an absolute path or URL, without "),
    (TABLE + "folder = ''", "tables.events.folder = '': an absolute path or URL, without "),
    (TABLE + "location = 's3://b/../x'", "tables.events.location = 's3://b/../x': an absolute path or URL, without "),
    ("[tables.e.retention]\nbrake = 1.1", "tables.e.retention.brake = 1.1: at most 1.0 is allowed"),
    ("[tables.e.retention]\nbrake = nan", "tables.e.retention.brake = nan: at least 0.0 is allowed"),
    ("[tables.e.retention]\nbrake = '0.5'", "tables.e.retention.brake = '0.5': a number is allowed"),
    ("[tables.e.retention]\nkeep = 2026-11-21", "tables.e.retention.keep = datetime.date(2026, 11, 21): a duration "),
    ("[tables.e.reaper]\nretain-last = 0", "tables.e.reaper.retain-last = 0: at least 1 is allowed"),
    ("[catalog]\nuri = ['a']", "catalog.uri = ['a']: a string, number or boolean is allowed"),
    ("[catalog.s3]\nendpoint = 'a'", "catalog.s3 = {...}: a string, number or boolean is allowed (write 's3.endpoint'"),
    (TABLE + "identifier = '${NOBODY_SET_THIS}'", "tables.events.identifier: ${NOBODY_SET_THIS} is not set in the env"),
    ("[catalog]\nx = '''\na\nb'''\ny = []", "catalog.y = []: a string, number or boolean is allowed"),
    ("[tables.events", "text is not valid TOML: "),
    ("x = 1\nx = 2", "text is not valid TOML: "),
]


@pytest.mark.parametrize(("text", "message"), REFUSED)
def test_a_bad_key_or_value_is_refused_in_one_line_that_says_what_is_allowed(text: str, message: str) -> None:
    with pytest.raises(ConfigInvalid) as refused:
        parse(text)
    assert str(refused.value).startswith(message)
    assert "\n" not in str(refused.value)


def test_a_refusal_never_shows_a_secret() -> None:
    # A section where pyiceberg wants keys with dots.
    with pytest.raises(ConfigInvalid) as refused:
        parse('[catalog.s3]\nsecret-access-key = "${SECRET}"', {"SECRET": "hunter2"})
    assert "hunter2" not in str(refused.value)


def test_variables_come_from_the_environment_that_was_given() -> None:
    text = '[catalog]\nuri = "${SCHEME:-sqlite}:///${FILE}?a=$b&c=${EMPTY:-}"\n'
    assert parse(text, {"FILE": "x.db"}).catalog.properties["uri"] == "sqlite:///x.db?a=$b&c="
    assert parse(text, {"FILE": "x", "SCHEME": "y", "EMPTY": "z"}).catalog.properties["uri"] == "y:///x?a=$b&c=z"


def test_what_a_variable_holds_is_taken_as_it_is() -> None:
    value = 'a"b\\c ${OTHER} = 1\n[tables.x]'
    assert parse('[catalog]\nkey = "${KEY}"', {"KEY": value, "OTHER": "!"}).catalog.properties == {"key": value}


def test_variables_are_put_into_lists_and_sections_too() -> None:
    text = TABLE + 'partition-by = ["day(${COLUMN})"]\nschema = [{ name = "${COLUMN}", type = "date" }]\n'
    table = parse(text, {"COLUMN": "ts"}).tables["events"]
    assert (table.partition_by, table.schema) == (("day(ts)",), ({"name": "ts", "type": "date"},))


def test_here_is_the_folder_of_the_file_whatever_the_environment_says(tmp_path: Path) -> None:
    (tmp_path / "bookkeeper.toml").write_text('[catalog]\nuri = "sqlite:///${HERE}/catalog.db"\n')
    read = load(str(tmp_path / "bookkeeper.toml"), {"HERE": "/elsewhere"})
    assert read.catalog.properties["uri"] == f"sqlite:///{tmp_path}/catalog.db"
    assert read.source == str(tmp_path / "bookkeeper.toml")


def test_the_option_goes_before_the_environment_and_that_before_the_working_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("option.toml", "environment.toml", "bookkeeper.toml"):
        (tmp_path / name).write_text("")
    monkeypatch.chdir(tmp_path)
    assert locate("option.toml", {"BOOKKEEPER_CONFIG": "environment.toml"}) == Path("option.toml")
    assert locate(None, {"BOOKKEEPER_CONFIG": "environment.toml"}) == Path("environment.toml")
    assert locate(None, {}) == Path("bookkeeper.toml")


def test_no_configuration_is_said_with_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigInvalid, match=r"no configuration at bookkeeper\.toml") as refused:
        locate(None, {})
    assert "--config" in refused.value.hint
    with pytest.raises(ConfigInvalid, match=r"no configuration at gone\.toml"):
        locate("gone.toml", {})


@pytest.mark.parametrize("content", [b"\xff\xfe\x00", b"x = '\xe9'"])
def test_a_file_that_is_no_text_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "c.toml").write_bytes(content)
    with pytest.raises(ConfigInvalid, match="cannot be read"):
        load(str(tmp_path / "c.toml"), {})


@pytest.mark.parametrize("kind", [Daemon, Retention, Reaper, Compaction, Fold, Table])
def test_every_option_has_a_default_and_a_line_of_help(kind: type) -> None:
    named = {key: help for key, _, help in defaults(kind)}
    nested = {"name", "retention", "reaper", "compaction", "evolve", "fold", "service"}
    assert named.keys() == {item.name.replace("_", "-") for item in fields(kind) if item.name not in nested}
    assert all(help and help[0].islower() and "\n" not in help for help in named.values())
