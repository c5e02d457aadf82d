"""`init --key`: makes a new or an existing table keyed, again or after a crash anywhere, and changes nothing else."""

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from bookkeeper.commands.init import initialise, schema_for
from bookkeeper.config.settings import Table
from bookkeeper.contract.keyed import PROPERTY, Keyed, keyed_of
from bookkeeper.contract.marks import PROPERTY as MARKS
from bookkeeper.contract.txlog_folder import Folder
from bookkeeper.errors import ConfigInvalid, NotPossible, TableUnusable
from bookkeeper.stores.open import open_store
from tests.commands.test_init import as_version_3, fresh_catalog
from tests.support.enumerated import crash_points, crashed, recorded
from tests.support.faults import Faults, FaultyCatalog, FaultyStore
from tests.support.keyed import COLUMNS, ID, OP, SEQ, Step, Steps, keyed_lake
from tests.support.lake import Lake
from tests.tick.test_delete_spec import clean_away

KEYED: dict[str, Any] = {"key": ("id",), "op_column": "op", "order_column": "seq"}


def table(**settings: Any) -> Table:
    return Table(
        **{"name": "events", "identifier": "demo.events", "schema": COLUMNS, "partition_by": (), **settings}  # type: ignore[arg-type]
    )


def init(catalog: Any, settings: Table, **more: Any) -> Any:
    return initialise(catalog, settings, schema_for(settings), **more)


@pytest.fixture
def catalog(tmp_path: Path) -> Any:
    return fresh_catalog(tmp_path)


def keyed(catalog: Any) -> Keyed | None:
    return keyed_of(catalog.load_table("demo.events").metadata)


def test_a_new_table_is_keyed_and_the_card_says_so(catalog: Any) -> None:
    made = init(catalog, table(**KEYED))
    assert made.made == ("namespace", "table", "keys", "folder", "marks")
    found = catalog.load_table("demo.events")
    assert (found.metadata.current_schema_id, found.schema().identifier_field_ids) == (0, [ID])
    assert json.loads(found.properties[PROPERTY]) == {"delete-spec-id": 0, "op-field-id": OP, "order-field-id": SEQ}
    assert Folder(open_store(made.folder)).card().keyed == Keyed((ID,), 0, OP, SEQ)


def test_init_twice_changes_nothing(catalog: Any) -> None:
    init(catalog, table(**KEYED))
    before = catalog.load_table("demo.events").metadata_location
    assert init(catalog, table(**KEYED)).made == ()
    # What is not asked for stays as it is.
    assert init(catalog, table(key=("id",))).made == init(catalog, table()).made == ()
    assert catalog.load_table("demo.events").metadata_location == before


def test_without_keys_nothing_is_keyed(catalog: Any) -> None:
    init(catalog, table())
    found = catalog.load_table("demo.events")
    assert PROPERTY not in found.properties and found.schema().identifier_field_ids == []


TWO_KEYS = ({"name": "part", "type": "int", "required": True}, *COLUMNS, {"name": "day", "type": "date"})


@pytest.mark.parametrize(
    ("partition", "keys", "spec"),
    [
        ((), ("id",), 0),
        (("bucket(8, id)",), ("id",), 0),
        (("part", "bucket(8, id)"), ("id", "part"), 0),
        (("part",), ("id",), 1),
        (("bucket(8, id)", "day(day)"), ("id",), 1),
        (("day(day)",), ("id", "part"), 1),
    ],
)
def test_deletes_have_the_tables_spec_only_where_it_is_within_the_keys(
    catalog: Any, partition: Sequence[str], keys: Sequence[str], spec: int
) -> None:
    init(catalog, table(schema=TWO_KEYS, partition_by=tuple(partition), key=tuple(keys)))
    found = catalog.load_table("demo.events").metadata
    assert keyed(catalog) == Keyed(tuple(sorted(found.schema().find_field(name).field_id for name in keys)), spec)
    assert found.default_spec_id == 0
    assert [len(one.fields) for one in found.partition_specs] == [len(partition)] + [0] * spec


# an existing table


def rows(lake: Lake) -> Steps:
    """A writer that has published a row."""
    writer = Steps(lake)
    writer.publish_rows({1: "a"})
    lake.tick()
    return writer


def test_an_existing_table_is_untouched_but_for_property_identifier_fields_and_the_spec(tmp_path: Path) -> None:
    columns = (*COLUMNS, {"name": "day", "type": "date"})
    lake = Lake(tmp_path, columns=columns, partition_by=("day(day)",))
    rows(lake)
    before = lake.table().metadata
    lake.settings = table(schema=columns, partition_by=("day(day)",), **KEYED)
    assert initialise(lake.catalog, lake.settings, schema_for(lake.settings), lake.store).made == ("keys",)
    after = lake.table().metadata
    assert after.properties == {**before.properties, PROPERTY: after.properties[PROPERTY]}
    assert after.schema().fields == before.schema().fields and after.schema().identifier_field_ids == [ID]
    assert after.schemas[:1] == before.schemas and len(after.schemas) == 2
    assert after.partition_specs[:1] == before.partition_specs and after.partition_specs[1].fields == ()
    assert (after.default_spec_id, after.last_partition_id) == (before.default_spec_id, before.last_partition_id)
    assert (after.snapshots, after.refs, after.sort_orders) == (before.snapshots, before.refs, before.sort_orders)
    assert lake.folder.card().keyed == Keyed((ID,), 1, OP, SEQ)
    # The queue goes on, with the marks it had.
    Steps(lake, "k2").publish_rows({2: "b"})
    lake.tick()
    assert sorted(lake.table().scan().to_arrow()["id"].to_pylist()) == [1, 2]


def test_a_schema_that_is_there_already_is_made_current_again(tmp_path: Path) -> None:
    lake = keyed_lake(tmp_path)
    with lake.table().update_schema() as change:
        change.set_identifier_fields()
    with lake.table().transaction() as transaction:
        transaction.remove_properties(PROPERTY)
    assert initialise(lake.catalog, lake.settings, schema_for(lake.settings), lake.store).made == ("keys",)
    after = lake.table().metadata
    assert (after.current_schema_id, len(after.schemas)) == (0, 2)


def test_a_spec_that_older_live_files_do_not_have_is_not_that_of_deletes(tmp_path: Path) -> None:
    lake = Lake(tmp_path, columns=COLUMNS, partition_by=("bucket(4, seq)",))
    rows(lake)
    with lake.table().update_spec() as change:
        change.remove_field("seq_bucket_4")
        change.add_identity("id")
    assert lake.table().spec().fields != ()
    init(lake.catalog, table(key=("id",)), store=lake.store)
    after = lake.table().metadata
    assert len(after.partition_specs) == 3 and after.default_spec_id == 1
    assert keyed(lake.catalog) == Keyed((ID,), 2) and after.partition_specs[2].fields == ()


def test_a_spec_that_all_live_files_have_is_that_of_deletes(tmp_path: Path) -> None:
    lake = Lake(tmp_path, columns=COLUMNS, partition_by=("bucket(4, id)",))
    rows(lake)
    init(lake.catalog, table(key=("id",)), store=lake.store)
    assert keyed(lake.catalog) == Keyed((ID,), 0) and len(lake.table().metadata.partition_specs) == 1


def test_an_unpartitioned_spec_that_is_there_is_used(tmp_path: Path) -> None:
    lake = Lake(tmp_path, columns=COLUMNS, partition_by=())
    with lake.table().update_spec() as change:
        change.add_identity("value")
    init(lake.catalog, table(key=("id",)), store=lake.store)
    assert keyed(lake.catalog) == Keyed((ID,), 0) and len(lake.table().metadata.partition_specs) == 2


def test_deletes_without_partitions_stay_so(tmp_path: Path) -> None:
    lake = keyed_lake(tmp_path)
    with lake.table().update_spec() as change:
        change.add_identity("id")
    init(lake.catalog, table(**KEYED), store=lake.store)
    assert keyed(lake.catalog) == Keyed((ID,), 0, OP, SEQ)


def test_a_delete_spec_that_is_gone_is_added_again(tmp_path: Path) -> None:
    lake = keyed_lake(tmp_path, partition_by=("value",))
    clean_away(lake, 1)
    assert init(lake.catalog, lake.settings, store=lake.store).made == ("keys",)
    assert [spec["spec-id"] for spec in lake.folder.card().specs] == [0, 1]


def test_op_and_order_column_may_come_later_and_a_column_may_be_renamed(catalog: Any) -> None:
    init(catalog, table(key=("id",)))
    assert init(catalog, table(**KEYED)).made == ("keys",)
    with catalog.load_table("demo.events").update_schema() as change:
        change.rename_column("op", "operation")
    assert init(catalog, table(key=("id",))).made == ()
    assert keyed(catalog) == Keyed((ID,), 0, OP, SEQ)


# what is refused


def columns(*more: Mapping[str, Any]) -> tuple[Mapping[str, Any], ...]:
    return (*COLUMNS, *more)


NESTED = {"type": "struct", "fields": [{"id": 9, "name": "k", "type": "long", "required": True}]}
REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "an unknown key": ({"key": ("nothing",)}, "has no column 'nothing'"),
    "an optional key": ({"key": ("value",)}, "'value' is optional"),
    "one optional key": ({"key": ("id", "value")}, "'value' is optional"),
    "a double key": ({"key": ("d",), "schema": columns({"name": "d", "type": "double", "required": True})}, "no key"),
    "a float key": ({"key": ("f",), "schema": columns({"name": "f", "type": "float", "required": True})}, "no key"),
    "a struct": ({"key": ("s",), "schema": columns({"name": "s", "type": NESTED, "required": True})}, "no key"),
    "a key in an optional struct": ({"key": ("s.k",), "schema": columns({"name": "s", "type": NESTED})}, "whole"),
    "a key in a required struct": (
        {"key": ("s.k",), "schema": columns({"name": "s", "type": NESTED, "required": True})},
        "keys are whole columns",
    ),
    "a key twice": ({"key": ("id", "id")}, "different columns"),
    "an unknown op-column": ({"key": ("id",), "op_column": "o"}, "has no column 'o'"),
    "an op-column of numbers": ({"key": ("id",), "op_column": "seq"}, "not string"),
    "an op-column that is a key": ({"key": ("id",), "op_column": "id"}, "different columns"),
    "an unknown order-column": ({"key": ("id",), "order_column": "s"}, "has no column 's'"),
    "an order-column of texts": ({"key": ("id",), "order_column": "value"}, "not long"),
    "an order-column of ints": (
        {"key": ("id",), "order_column": "i", "schema": columns({"name": "i", "type": "int"})},
        "not long",
    ),
    "op- and order-column alone": ({"op_column": "op"}, "need key"),
    "an op-column beside another required column": (
        {"key": ("id",), "op_column": "op", "schema": columns({"name": "r", "type": "long", "required": True})},
        "'r' is required, but a tombstone carries only the keys",
    ),
    "data files of Avro": ({"key": ("id",), "file_format": "avro"}, "Parquet"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_keyed_is_refused_before_anything_is_made(catalog: Any, case: str) -> None:
    settings, said = REFUSED[case]
    with pytest.raises(ConfigInvalid, match=said) as refused:
        init(catalog, table(**settings))
    assert "Keys are required columns" in refused.value.hint or case == "data files of Avro"
    assert catalog.list_namespaces() == []
    # And of an existing queue nothing is changed.
    init(catalog, table(schema=settings.get("schema", COLUMNS)))
    before = catalog.load_table("demo.events").metadata_location
    with pytest.raises(ConfigInvalid, match=said):
        init(catalog, table(**settings))
    assert catalog.load_table("demo.events").metadata_location == before


@pytest.mark.parametrize("version", ["1", "3"])
def test_a_table_of_another_format_version_is_not_made_keyed(catalog: Any, version: str, tmp_path: Path) -> None:
    catalog.create_namespace("demo")
    made = catalog.create_table("demo.events", schema_for(table()), properties={"format-version": "1"})
    if version == "3":
        as_version_3(made.metadata_location.removeprefix("file://"))
        catalog = fresh_catalog(tmp_path)
    with pytest.raises(TableUnusable, match=f"version {version}"):
        init(catalog, table(**KEYED))
    assert catalog.load_table("demo.events").metadata_location == made.metadata_location


def test_the_keys_of_a_keyed_table_stay(catalog: Any) -> None:
    schema = columns({"name": "other", "type": "long", "required": True})
    init(catalog, table(schema=schema, key=("id",)))
    with pytest.raises(NotPossible, match="keyed by id, not by other"):
        init(catalog, table(schema=schema, key=("other",)))
    assert keyed(catalog) == Keyed((ID,), 0)


@pytest.mark.parametrize("said", ["{", "{}", '{"delete-spec-id": 0, "op-field-id": 99}'])
def test_a_property_that_does_not_fit_is_set_right(catalog: Any, said: str) -> None:
    init(catalog, table(**KEYED))
    with catalog.load_table("demo.events").transaction() as transaction:
        transaction.set_properties({PROPERTY: said})
    with pytest.raises(TableUnusable, match="does not fit") as caught:
        init(catalog, table())
    assert "init --key" in caught.value.hint
    assert init(catalog, table(**KEYED)).made == ("keys",)
    assert keyed(catalog) == Keyed((ID,), 0, OP, SEQ)


# crashes and races


def act(root: Path, settings: Table) -> Callable[[Faults], None]:
    def run(faults: Faults) -> None:
        catalog = FaultyCatalog(fresh_catalog(root), faults)
        init(catalog, settings, store=lambda url: FaultyStore(open_store(url), faults, "folder"))

    return run


@pytest.mark.parametrize("there", [True, False], ids=["existing", "new"])
def test_a_crash_between_any_two_steps_is_mended_by_running_it_again(tmp_path: Path, there: bool) -> None:
    """A spec that nothing uses yet is what a crash may leave beside the steps done."""
    by_value = table(partition_by=("value",))
    settings = table(partition_by=("value",), **KEYED)

    def prepared(root: Path) -> Callable[[Faults], None]:
        root.mkdir()
        if there:
            init(fresh_catalog(root), by_value)
        return act(root, settings)

    points = list(crash_points(recorded(prepared(tmp_path / "whole"))))
    commits = [point for point in points if "commit_table" in str(point)]
    assert len(commits) == 3 * (2 if there else 3), "the spec, the keys, the marks of a new one"
    for number, point in enumerate(points):
        root = tmp_path / str(number)
        assert crashed(prepared(root), point)
        catalog = fresh_catalog(root)
        made = init(catalog, settings)
        assert init(catalog, settings).made == ()
        found = catalog.load_table("demo.events").metadata
        assert keyed_of(found) == Keyed((ID,), 1, OP, SEQ), str(point)
        assert ([len(spec.fields) for spec in found.partition_specs], found.default_spec_id) == ([1, 0], 0)
        card = Folder(open_store(made.folder)).card()
        assert card.keyed == keyed_of(found) and MARKS in found.properties


@pytest.mark.parametrize("settings", [{}, KEYED], ids=["append-only", "keyed"])
def test_two_inits_that_race_agree(tmp_path: Path, settings: dict[str, Any]) -> None:
    by_value = table(partition_by=("value",), **KEYED)
    init(fresh_catalog(tmp_path), table(partition_by=("value",)))
    faults = Faults()
    slow, quick = FaultyCatalog(fresh_catalog(tmp_path), faults), fresh_catalog(tmp_path)
    faults.between("commit_table", lambda: init(quick, table(partition_by=("value",), **settings)))
    init(slow, by_value)
    found = fresh_catalog(tmp_path).load_table("demo.events").metadata
    assert keyed_of(found) == Keyed((ID,), 1, OP, SEQ)
    assert [len(spec.fields) for spec in found.partition_specs] == [1, 0]


def test_keys_are_set_beside_a_bookkeeper_that_commits(tmp_path: Path) -> None:
    lake = Lake(tmp_path, columns=COLUMNS, partition_by=())
    writer, faults = rows(lake), Faults()

    def meanwhile() -> None:
        writer.publish_rows({2: "b"})
        lake.tick()

    faults.between("commit_table", meanwhile)
    assert "keys" in init(FaultyCatalog(lake.catalog, faults), table(**KEYED), store=lake.store).made
    assert sorted(lake.table().scan().to_arrow()["id"].to_pylist()) == [1, 2]
    assert keyed(lake.catalog) == Keyed((ID,), 0, OP, SEQ)


def test_a_running_bookkeeper_takes_deletes_of_a_table_made_keyed_a_moment_ago(tmp_path: Path) -> None:
    """Its view is older; before it rejects anything it loads the table again."""
    lake = Lake(tmp_path, columns=COLUMNS, partition_by=())
    rows(lake)
    book = lake.book()
    lake.tick(book)
    init(lake.catalog, table(**KEYED), store=lake.store)
    Steps(lake, "k2").publish_steps(Step(upserts={1: "b"}))
    lake.tick(book)
    assert lake.rejected() == {}
    assert lake.folder.card().keyed == Keyed((ID,), 0, OP, SEQ)
