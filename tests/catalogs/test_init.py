"""`init` under faults: whatever was lost on the way, running it again does the rest."""

from contextlib import suppress
from dataclasses import replace
from itertools import count

import pytest
from pyiceberg.table.update import AssertTableUUID, RemovePartitionSpecsUpdate

from bookkeeper.catalogs.commit import commit, load_table
from bookkeeper.catalogs.open import open_catalog
from bookkeeper.commands.init import Initialised, initialise, schema_for
from bookkeeper.config.settings import Table
from bookkeeper.contract.keyed import Keyed, keyed_of
from bookkeeper.errors import Retry, StorageUnavailable
from tests.catalogs import test_handed_out_writers as governed
from tests.servers.line import Fault, Line
from tests.support.catalog_lake import CatalogLake, Chain, Place

port, house = governed.port, governed.house
_numbers = count(1)
LOST = (Fault.REQUEST_LOST, Fault.REPLY_LOST, Fault.APPLIED_503)


@pytest.mark.parametrize("fault", LOST, ids=lambda fault: fault.name.lower())
def test_init_after_an_init_that_broke_off_at_any_request_does_the_rest(rest: Place, fault: Fault) -> None:
    points = _requests_of_init(rest)
    assert points >= 4  # look for the table, make it, load it, commit its marks
    for point in range(1, points + 1):
        settings = rest.table()
        line = Line(fault, every=point, most=1)
        with suppress(Retry):  # where it can see for itself that its request was applied, it goes on
            initialise(rest.over(line, all_requests=True), settings, schema_for(settings))
        assert line.injected == 1
        _works(CatalogLake(rest, name=settings.name, identifier=settings.identifier))


def test_two_inits_at_once_make_one_queue(where: Place) -> None:
    settings, made = where.table(), []

    def rival() -> Initialised:
        made.append(initialise(where.near, settings, schema_for(settings)))
        return made[-1]

    catalog = where.over(Line(Fault.OVERTAKEN, most=1, meanwhile=rival))
    with suppress(Retry):  # its guard may see the other's marks come in between
        initialise(catalog, settings, schema_for(settings))
    assert len(made) == 1
    _works(CatalogLake(where, name=settings.name, identifier=settings.identifier))


def _requests_of_init(where: Place) -> int:
    first = where.table()
    # The first of all opens the catalog and makes the namespace too.
    initialise(where.over(Line(), all_requests=True), first, schema_for(first))
    line, settings = Line(), where.table()
    initialise(where.over(line, all_requests=True), settings, schema_for(settings))
    return line.requests


def _works(lake: CatalogLake) -> None:
    Chain(lake, "w1").publish()
    lake.tick()
    assert lake.keys() == lake.published and lake.wrong() == []


def test_every_catalog_makes_a_table_keyed_and_keeps_its_delete_spec(where: Place) -> None:
    """A REST catalog chooses the ids of schemas and specs itself."""
    settings = where.table()
    lake = CatalogLake(where, name=settings.name, identifier=settings.identifier)
    keyed = replace(settings, key=("key",))
    assert initialise(where.near, keyed, schema_for(keyed)).made == ("keys",)
    assert initialise(where.near, keyed, schema_for(keyed)).made == ()
    table = load_table(where.near, settings.identifier)
    assert keyed_of(table.metadata) == Keyed((2,), 1) and table.schema().identifier_field_ids == [2]
    guard = AssertTableUUID(uuid=table.metadata.table_uuid)
    commit(table, (guard,), (RemovePartitionSpecsUpdate(spec_ids=[1]),))
    _works(lake)
    mended = load_table(where.near, settings.identifier).metadata
    assert keyed_of(mended) == Keyed((2,), 1) and mended.default_spec_id == 0
    assert [len(spec.fields) for spec in mended.partition_specs] == [1, 0]
    assert lake.folder.card().keyed == Keyed((2,), 1)


def test_init_says_what_to_configure_where_only_handed_out_keys_reach_the_folder_of_a_new_table(
    house: governed.Lakehouse,
) -> None:
    settings = Table(name="t", identifier=f"demo.init{next(_numbers)}")
    by_url = {**house.catalog.properties, "warehouse": "s3://lake/w"}
    with pytest.raises(
        StorageUnavailable, match=r"whether s3://lake/w/demo/.* knows a lost table demo.* no keys"
    ) as made:
        initialise(open_catalog(replace(house.catalog, properties=by_url)), settings, schema_for(settings))
    assert "s3.bucket.NAME.access-key-id" in made.value.hint and "`folder`" in made.value.hint
    ways: list[dict[str, str]] = [
        {**by_url, "s3.bucket.lake.access-key-id": "test", "s3.bucket.lake.secret-access-key": "testtest"},
        house.catalog.properties,
    ]
    for properties in ways:
        settings = Table(name="t", identifier=f"demo.init{next(_numbers)}")
        catalog = open_catalog(replace(house.catalog, properties=properties))
        assert initialise(catalog, settings, schema_for(settings)).made[-3:] == ("table", "folder", "marks")
