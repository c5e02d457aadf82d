"""
What others do to the table of a history, with pyiceberg: append, take out, change schema, spec or properties.
"""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

from pyiceberg.expressions import EqualTo
from pyiceberg.manifest import DataFile as Theirs
from pyiceberg.manifest import DataFileContent, FileFormat
from pyiceberg.transforms import BucketTransform, DayTransform, IdentityTransform, TruncateTransform
from pyiceberg.typedef import Record
from pyiceberg.types import DecimalType, DoubleType, LongType, StringType

from tests.histories import files
from tests.histories.model import seen
from tests.histories.world import KEY, World

#: changes of the schema, with a name that was not used before
CHANGES: dict[str, Callable[[Any, str], Any]] = {
    "add": lambda change, name: change.add_column(name, StringType()),
    "widen n": lambda change, name: change.update_column("n", LongType()),
    "widen ratio": lambda change, name: change.update_column("ratio", DoubleType()),
    "widen price": lambda change, name: change.update_column("price", DecimalType(12, 2)),
    "rename": lambda change, name: change.rename_column("n", name),
    "drop": lambda change, name: change.delete_column("region"),
}
#: what may be added to the spec: column and transform
FIELDS: dict[str, tuple[str, Any]] = {
    "day": ("timestamp", DayTransform()),
    "bucket": ("key", BucketTransform(4)),
    "region": ("region", IdentityTransform()),
    "ratio": ("ratio", IdentityTransform()),
    "price": ("price", IdentityTransform()),
    "short": ("key", TruncateTransform(2)),
}


def append(world: World, rows: int, hours: float | None = 0) -> None:
    """One file, in a snapshot of pyiceberg's."""
    table, card = world.lake.table(), world.lake.folder.card()
    at = None if hours is None else world.lake.clock.now - timedelta(hours=hours)
    world.count += 1
    keys = [f"f{world.count:04d}-{number}" for number in range(rows)]
    schema, spec = table.schema(), table.spec()
    found = files.rows_of(schema, spec, keys, at, world.dice)
    made = files.write(card.data_path, f"foreign-{world.count:05d}.parquet", schema, spec, found)
    with table.transaction() as transaction, transaction.update_snapshot().fast_append() as producer:
        producer.append_data_file(_theirs(made))
    world.model.add(made)


def _theirs(made: files.File) -> Theirs:
    said = made.described
    statistics = {name: dict(getattr(said, name)) for name in ("column_sizes", "value_counts", "null_value_counts")}
    bounds = {name: dict(getattr(said, name)) for name in ("nan_value_counts", "lower_bounds", "upper_bounds")}
    theirs = Theirs.from_args(
        content=DataFileContent.DATA,
        file_path=made.path,
        file_format=FileFormat.PARQUET,
        partition=Record(*made.partition),
        record_count=said.record_count,
        file_size_in_bytes=said.size_bytes,
        split_offsets=list(said.split_offsets or ()),
        **statistics,
        **bounds,
    )
    theirs.spec_id = made.spec_id
    return theirs


def take_out(world: World, number: int) -> None:
    """One live file of one row, by its key: pyiceberg finds it by its bounds and drops it whole."""
    table = world.lake.table()
    columns = {field.field_id for field in table.schema().fields}
    # It writes no manifest of a spec that lost a column.
    whole = {key for key, spec in table.specs().items() if columns.issuperset(item.source_id for item in spec.fields)}
    # It makes a predicate of the file's partition too, and takes no NaN in one.
    able = (file for file in world.model.live.values() if len(file.rows) == 1 and "NaN" not in seen(file.partition))
    single = sorted((file.rows[0][KEY], file.path) for file in able if file.spec_id in whole)
    if single:
        key, path = single[number % len(single)]
        with table.transaction() as change, change.update_snapshot().delete() as producer:
            producer.delete_by_predicate(EqualTo("key", key))
        world.model.drop(path)


def set_property(world: World) -> None:
    """A commit without a snapshot."""
    with world.lake.table().transaction() as change:
        change.set_properties({"foreign": str(world.count)})


def change_schema(world: World, what: str) -> None:
    """Changes a column, unless that was done before or the spec needs the column."""
    table = world.lake.table()
    specs = table.metadata.partition_specs if world.keeps_sources else [table.spec()]
    used = {field.source_id for spec in specs for field in spec.fields}
    names = {field.name: field for field in table.schema().fields}
    gone = {"drop": "region", "rename": "n", "widen n": "n", "widen ratio": "ratio", "widen price": "price"}.get(what)
    if gone in names and what == "drop" and names[gone].field_id in used:
        return
    if gone is None or gone in names:
        world.count += 1
        with table.update_schema() as change:
            CHANGES[what](change, f"c{world.count}")


def add_field(world: World, what: str) -> None:
    """New files are partitioned by one more field."""
    table = world.lake.table()
    column, transform = FIELDS[what]
    known = {field.name: field.field_id for field in table.schema().fields}
    there = {(field.source_id, str(field.transform)) for field in table.spec().fields}
    if column in known and (known[column], str(transform)) not in there:
        world.count += 1
        with table.update_spec() as change:
            change.add_field(column, transform, f"p{world.count}")


def remove_field(world: World) -> None:
    """New files are partitioned by one field less."""
    table = world.lake.table()
    if table.spec().fields:
        with table.update_spec() as change:
            change.remove_field(table.spec().fields[0].name)
