"""`init`: makes or adopts a queue, twice or after a crash at any step, and touches nothing that is not ours."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField, StringType, StructType, TimestamptzType

from bookkeeper.catalogs.open import open_catalog
from bookkeeper.commands.init import Initialised, initialise, partition_spec, partition_text, schema_for, schema_of
from bookkeeper.config.settings import Catalog, Reaper, Table
from bookkeeper.contract.marks import PROPERTY
from bookkeeper.contract.marks_json import loads
from bookkeeper.contract.txlog_folder import Folder
from bookkeeper.errors import ConfigInvalid, NotPossible, TableUnusable, WrongFolder
from bookkeeper.stores.open import open_store
from tests.support.enumerated import crash_points, crashed, recorded
from tests.support.faults import Faults, FaultyCatalog, FaultyStore
from tests.support.lake import Lake, Writes

EVENTS = Table(name="events", identifier="demo.events")


@pytest.fixture
def catalog(tmp_path: Path) -> Any:
    return fresh_catalog(tmp_path)


def fresh_catalog(root: Path) -> Any:
    settings = {"type": "sql", "uri": f"sqlite:///{root}/catalog.db", "warehouse": f"file://{root}"}
    return open_catalog(Catalog("lake", settings), create=True)


def init(catalog: Any, table: Table = EVENTS, **more: Any) -> Initialised:
    return initialise(catalog, table, schema_for(table), **more)


def existing(catalog: Any, **properties: str) -> Any:
    """A table that another program made."""
    catalog.create_namespace_if_not_exists("demo")
    schema = Schema(
        NestedField(1, "when", TimestamptzType(), required=True), NestedField(2, "key", StringType(), required=False)
    )
    return catalog.create_table("demo.events", schema, properties={"owner": "another", **properties})


def test_init_makes_namespace_table_folder_and_marks(catalog: Any) -> None:
    made = init(catalog)
    assert made.made == ("namespace", "table", "folder", "marks")
    table = catalog.load_table("demo.events")
    assert [field.name for field in table.schema().fields] == ["timestamp", "key", "value"]
    assert [field.name for field in table.spec().fields] == ["timestamp_day"]
    assert table.format_version == 2
    card = Folder(open_store(made.folder)).card()
    assert (card.table_uuid, card.table) == (made.uuid, "demo.events")
    assert loads(table.properties[PROPERTY]).folder == card.folder


def test_init_twice_changes_nothing(catalog: Any) -> None:
    first = init(catalog)
    before = catalog.load_table("demo.events").metadata_location
    again = init(catalog)
    assert (again.made, again.uuid, again.folder) == ((), first.uuid, first.folder)
    assert catalog.load_table("demo.events").metadata_location == before


def test_init_again_on_a_working_queue_leaves_its_marks_alone(lake: Lake, writer: Writes) -> None:
    writer.publish("a")
    lake.tick()
    before = lake.view().marks
    assert initialise(lake.catalog, lake.settings, schema_for(lake.settings), lake.store).made == ()
    assert lake.view().marks == before
    writer.publish("b")
    lake.tick()
    assert lake.keys() == ["a", "b"]


def test_an_adopted_table_is_untouched_but_for_our_property(catalog: Any) -> None:
    before = existing(catalog).metadata
    assert init(catalog).made == ("folder", "marks")
    after = catalog.load_table("demo.events").metadata
    assert after.properties == {**before.properties, PROPERTY: after.properties[PROPERTY]}
    assert (after.schemas, after.partition_specs, after.sort_orders) == (
        before.schemas,
        before.partition_specs,
        before.sort_orders,
    )
    assert (after.location, after.snapshots) == (before.location, before.snapshots)


def test_adopting_a_table_says_that_the_reaper_will_shorten_its_history(catalog: Any) -> None:
    column = pa.field("when", pa.timestamp("us", "UTC"), nullable=False)
    rows = pa.table({"when": pa.array([0], column.type)}, pa.schema([column]))
    existing(catalog).append(rows)
    told = init(catalog, Table(name="events", identifier="demo.events", reaper=Reaper(retain_last=7)))
    (note,) = told.notes
    assert note.startswith("history: it has 1 snapshots, the oldest of 2")
    assert "expires snapshots older than 10 m, except the last 7" in note and "[tables.events.reaper]" in note
    assert init(catalog).notes == ()


@pytest.mark.parametrize(
    ("properties", "said"),
    [
        ({"history.expire.max-snapshot-age-ms": "432000000"}, "older than 5 d, except the last 100"),
        ({"history.expire.max-snapshot-age-ms": "soon"}, "'soon', not a number. Correct or unset it."),
        ({"history.expire.max-snapshot-age-ms": "²"}, "'²', not a number. Correct or unset it."),
        ({"history.expire.min-snapshots-to-keep": "9" * 5000}, "9', not a number. Correct or unset it."),
        ({"gc.enabled": "false"}, ""),
    ],
)
def test_what_is_said_of_history_is_what_the_reaper_will_do(
    catalog: Any, properties: dict[str, str], said: str
) -> None:
    existing(catalog, **properties)
    notes = init(catalog).notes
    assert said in notes[0] if said else notes == ()


def test_adopting_a_table_asks_nothing_of_the_columns_that_a_new_one_would_have(catalog: Any) -> None:
    existing(catalog)
    assert init(catalog, Table(name="events", identifier="demo.events", partition_by=("day(nothing)",))).made


@pytest.mark.parametrize(
    ("texts", "said"),
    [
        (("day(nothing)",), "Could not find field with name nothing"),
        (("dya(when)",), "dya"),
        (("hour(when)", "key"), "and not by hour(when), key"),
    ],
)
def test_partitions_that_a_table_does_not_have_are_said_and_change_nothing(
    catalog: Any, texts: tuple[str, ...], said: str
) -> None:
    before = existing(catalog)
    note = init(catalog, Table(name="events", identifier="demo.events", partition_by=texts)).notes[0]
    assert note.startswith("the table is there and partitioned by nothing, ") and said in note
    assert catalog.load_table("demo.events").specs() == before.specs()
    with pytest.raises(NotPossible, match="partitioned by nothing") as refused:
        init(catalog, partition=texts)
    assert "ALTER TABLE" in refused.value.hint


def test_partitions_that_a_table_has_are_no_news(catalog: Any) -> None:
    table = Table(name="events", identifier="demo.events", partition_by=("hour(timestamp)", "bucket(16, key)"))
    assert init(catalog, table).partition == "hour(timestamp), bucket(16, key)"
    assert init(catalog, table).notes == ()
    assert init(catalog, partition=["hour(timestamp)", "bucket(16,key)"]).notes == ()


@pytest.mark.parametrize("version", ["1", "3"])
def test_a_table_of_another_format_version_is_refused_with_words(catalog: Any, version: str, tmp_path: Path) -> None:
    existing(catalog, **{"format-version": "1"})
    location = catalog.load_table("demo.events").metadata_location
    if version == "3":
        as_version_3(location.removeprefix("file://"))
        catalog = fresh_catalog(tmp_path)  # one that wrote a file does not read it again
    with pytest.raises(TableUnusable, match=f"version {version}") as refused:
        init(catalog)
    assert ("Upgrade it" if version == "1" else "No table goes back") in refused.value.hint
    assert catalog.load_table("demo.events").metadata_location == location
    assert PROPERTY not in catalog.load_table("demo.events").properties


def as_version_3(path: str) -> None:
    """Rewrites a metadata file as one of format version 3, which pyiceberg reads and does not write."""
    data = json.loads(Path(path).read_text())
    data |= {"format-version": 3, "next-row-id": 0, "last-sequence-number": 0}
    Path(path).write_text(json.dumps(data))


def test_a_folder_of_another_table_is_refused(catalog: Any, tmp_path: Path) -> None:
    folder = f"file://{tmp_path}/folder"
    init(catalog, Table(name="a", identifier="demo.a", folder=folder))
    with pytest.raises(WrongFolder, match="belongs to"):
        init(catalog, Table(name="b", identifier="demo.b", folder=folder))


@pytest.mark.parametrize("folder", ["data/txlogs", "metadata/txlogs", "txlogs"])
def test_a_folder_where_iceberg_sweeps_is_refused(catalog: Any, folder: str) -> None:
    location = init(catalog).location
    with pytest.raises(ConfigInvalid, match="starts with _"):
        init(catalog, Table(name="events", identifier="demo.events", folder=f"{location}/{folder}"))


def test_a_second_folder_beside_the_one_that_is_there_is_refused(catalog: Any, tmp_path: Path) -> None:
    """Nobody would commit what is pending in the first one, and the reaper would sweep its data files."""
    there = Path(init(catalog).folder.removeprefix("file://"))
    new = tmp_path / "elsewhere"
    moved = replace(EVENTS, folder=f"file://{new}")
    with pytest.raises(NotPossible, match=r"/_bookkeeper is the txlog folder of demo\.events"):
        init(catalog, moved)
    assert not new.exists()
    there.rename(new)
    assert init(catalog, moved).made == ()
    new.rename(tmp_path / "lost")
    assert init(catalog, moved).made == ("folder",)


def test_a_folder_that_is_made_anew_is_said_for_the_one_before_may_be_elsewhere(catalog: Any, tmp_path: Path) -> None:
    """From one `folder` to another, or to none, init cannot see the one before; what is pending there would be lost."""
    one, two = (replace(EVENTS, folder=f"file://{tmp_path / name}") for name in ("one", "two"))
    assert not any("elsewhere" in note for note in init(catalog, one).notes)
    assert not any("elsewhere" in note for note in init(catalog, one).notes)
    for other in (two, EVENTS):
        made = init(catalog, other)
        assert made.made == ("folder",) and [note for note in made.notes if f"{made.folder} was made anew" in note]


def test_a_crash_between_any_two_steps_is_mended_by_running_it_again(tmp_path: Path) -> None:
    def act(root: Path) -> Callable[[Faults], None]:
        def run(faults: Faults) -> None:
            catalog = FaultyCatalog(fresh_catalog(root), faults)
            init(catalog, store=lambda url: FaultyStore(open_store(url), faults, "folder"))

        return run

    seen = recorded(act(tmp_path / "whole"))
    points = list(crash_points(seen))
    assert len(points) == 3 * len(["create_namespace", "create_table", "card.json", "marks"])
    for number, point in enumerate(points):
        root = tmp_path / str(number)
        assert crashed(act(root), point)
        catalog = fresh_catalog(root)
        made = init(catalog)
        assert init(catalog).made == ()
        card = Folder(open_store(made.folder)).card()
        assert loads(catalog.load_table("demo.events").properties[PROPERTY]).folder == card.folder, str(point)


STEPS = ["create_namespace", "create_table", "create folder/card.json", "read folder/card.json", "commit_table"]


@pytest.mark.parametrize("step", STEPS)
def test_two_inits_that_race_agree(tmp_path: Path, step: str) -> None:
    faults = Faults()
    slow, quick = FaultyCatalog(fresh_catalog(tmp_path), faults), fresh_catalog(tmp_path)
    faults.between(step, lambda: init(quick))
    made = init(slow, store=lambda url: FaultyStore(open_store(url), faults, "folder"))
    card = Folder(open_store(made.folder)).card()
    assert loads(quick.load_table("demo.events").properties[PROPERTY]).folder == card.folder


def test_an_init_that_sleeps_until_the_queue_works_resets_no_marks(tmp_path: Path) -> None:
    """It saw no marks; meanwhile another init set them, and a bookkeeper committed."""
    faults, lakes = Faults(), []

    def meanwhile() -> None:
        lakes.append(Lake(tmp_path / "lake"))
        Writes(lakes[0]).publish("a")
        lakes[0].tick()

    (tmp_path / "lake").mkdir()
    slow = FaultyCatalog(fresh_catalog(tmp_path / "lake"), faults)
    faults.between("commit_table", meanwhile)
    init(slow)
    (lake,) = lakes
    assert loads(lake.table().properties[PROPERTY]).writers
    lake.tick()
    assert lake.keys() == ["a"]


# schema and partitions


def test_the_schema_may_come_from_a_parquet_file(tmp_path: Path) -> None:
    rows = pa.table({"ts": pa.array([0], pa.timestamp("us", "UTC")), "n": [1], "deep": [{"x": 1}]})
    pq.write_table(rows, tmp_path / "x.parquet")
    schema = schema_for(EVENTS, like=str(tmp_path / "x.parquet"))
    assert [str(field.field_type) for field in schema.fields][:2] == ["timestamptz", "long"]
    assert len({field.field_id for field in schema.fields} | {4}) == 4


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("list.json", '[{"name": "ts", "type": "timestamptz", "required": true}, {"name": "n", "type": "long"}]'),
        ("iceberg.json", '{"type": "struct", "fields": [{"id": 1, "name": "ts", "type": "timestamptz", "required":'
         ' true}, {"id": 2, "name": "n", "type": "long", "required": false}]}'),
        ("columns.toml", '[[schema]]\nname = "ts"\ntype = "timestamptz"\nrequired = true\n'
         '[[schema]]\nname = "n"\ntype = "long"\n'),
    ],
)  # fmt: skip
def test_the_schema_may_come_from_a_file(tmp_path: Path, name: str, text: str) -> None:
    (tmp_path / name).write_text(text)
    schema = schema_for(EVENTS, file=str(tmp_path / name))
    assert schema.fields == (
        NestedField(1, "ts", TimestamptzType(), required=True),
        NestedField(2, "n", LongType(), required=False),
    )


@pytest.mark.parametrize("text", ["{", "[1]", '{"columns": []}', '[{"name": "x"}]', '[{"name": "x", "type": "texts"}]'])
def test_a_schema_file_that_says_nothing_useful_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "schema.json").write_text(text)
    with pytest.raises(ConfigInvalid):
        schema_for(EVENTS, file=str(tmp_path / "schema.json"))


@pytest.mark.parametrize("kind", ["file", "like"])
def test_a_schema_file_that_is_not_there_is_refused(kind: str) -> None:
    with pytest.raises(ConfigInvalid):
        schema_for(EVENTS, **{kind: "/nowhere/x.json"})


def test_a_nested_schema_keeps_its_columns_apart(catalog: Any) -> None:
    """Its nested fields bring ids of their own, which must not collide with those of the columns behind it."""
    fields = [{"id": number, "name": f"x{number}", "type": "long", "required": True} for number in (1, 2)]
    columns = (
        {"name": "b", "type": "string", "required": True},
        {"name": "timestamp", "type": "timestamptz", "required": True},
        {"name": "a", "type": {"type": "struct", "fields": fields}},
    )
    table = Table(name="events", identifier="demo.events", schema=columns, partition_by=("b", "day(timestamp)"))
    init(catalog, table)
    made = catalog.load_table("demo.events")
    sources = [made.schema().find_column_name(field.source_id) for field in made.spec().fields]
    assert sources == ["b", "timestamp"]
    assert isinstance(made.schema().find_field("a").field_type, StructType)


def test_partition_texts_become_transforms() -> None:
    schema = schema_for(EVENTS)
    spec = partition_spec(["day(timestamp)", "bucket(16, key)", "truncate(4,key)", "key"], schema)
    assert [(field.name, str(field.transform)) for field in spec.fields] == [
        ("timestamp_day", "day"),
        ("key_bucket_16", "bucket[16]"),
        ("key_truncate_4", "truncate[4]"),
        ("key", "identity"),
    ]


@pytest.mark.parametrize(
    ("types", "chosen", "said"),
    [
        (("long", "timestamptz"), "day(c1)", "day(c1), the first column with a time"),
        (("date", "timestamp"), "day(c1)", "day(c1), the first column with a time"),
        (("string", "date"), "day(c1)", "day(c1), the first column with a time"),
        (("string", "long"), "nothing", "not partitioned, for no column has a time"),
    ],
)
def test_a_new_table_without_a_timestamp_gets_the_partition_that_fits_and_it_is_said(
    catalog: Any, types: tuple[str, ...], chosen: str, said: str
) -> None:
    schema = schema_of([{"name": f"c{number}", "type": text} for number, text in enumerate(types)])
    made = initialise(catalog, EVENTS, schema)
    assert made.partition == chosen and said in made.notes[0] and "--partition" in made.notes[0]
    assert partition_text(catalog.load_table("demo.events").spec(), schema) == chosen


def test_a_timestamp_that_is_no_time_is_passed_over(catalog: Any) -> None:
    schema = schema_of([{"name": "timestamp", "type": "long"}, {"name": "event time", "type": "timestamptz"}])
    assert initialise(catalog, EVENTS, schema).partition == "day(event time)"


def test_the_partition_of_a_new_table_can_be_said(catalog: Any) -> None:
    schema = schema_of([{"name": "seen", "type": "timestamptz"}, {"name": "key", "type": "string"}])
    made = initialise(catalog, EVENTS, schema, partition=["hour(seen)", "bucket(4, key)"])
    assert made.partition == "hour(seen), bucket(4, key)"
    assert [note for note in made.notes if "partition" in note] == []
    other = Table(name="other", identifier="demo.other")
    assert initialise(catalog, other, schema, partition=[]).partition == "nothing"


BAD_PARTITIONS = ["day(nothing)", "day(key)", "week(timestamp)", "bucket(key)", "bucket(0, key)", "", "day(", "a b"]


@pytest.mark.parametrize("text", BAD_PARTITIONS)
def test_a_partition_text_that_makes_no_sense_is_refused_and_makes_nothing(catalog: Any, text: str) -> None:
    table = Table(name="events", identifier="demo.events", partition_by=(text,))
    with pytest.raises(ConfigInvalid, match="partition-by"):
        init(catalog, table)
    assert catalog.list_namespaces() == []


def test_an_unknown_key_of_a_column_is_refused() -> None:
    with pytest.raises(ConfigInvalid, match="name and type"):
        schema_of([{"name": "x", "type": "long", "nullable": False}])
