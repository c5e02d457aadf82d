"""
The columns of `bookkeeper init`: from where, and shown for review.
"""

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from bookkeeper.console.output import say, show_rows, table, to_json
from bookkeeper.errors import ConfigInvalid

if TYPE_CHECKING:
    from pyiceberg.schema import Schema

    from bookkeeper.commands.infer.like import Inferred
    from bookkeeper.config.settings import Table


@dataclass(frozen=True)
class Plan:
    """A table and the columns that it gets if it is new; `inferred` where they are those of a file of data."""

    table: "Table"
    schema: "Schema"
    inferred: "Inferred | None" = None
    #: of columns that were added to it
    notes: tuple[str, ...] = ()

    @property
    def fitting(self) -> tuple[str, str] | None:
        """The partition that fits the data, and why."""
        return None if self.inferred is None else (self.inferred.partition, self.inferred.why)


def plan_columns(
    table: "Table",
    schema: str | None,
    like: str | None,
    nulls: Sequence[str] = (),
    sign: str | None = None,
    changes: bool = False,
) -> Plan:
    """
    The columns of a new table; raises ConfigInvalid.
    """
    from bookkeeper.commands.columns import schema_for
    from bookkeeper.commands.init_keys import with_missing

    if like is None:
        columns, notes = with_missing(schema_for(table, schema), table)
        return Plan(table, columns, None, tuple(notes))
    from bookkeeper.commands.infer.like import infer

    inferred = infer(like, nulls, sign, changes, bool(table.key))
    if table.key:
        inferred = inferred.with_keys(table.key)
    columns, notes = with_missing(inferred.schema, table)
    return Plan(table, columns, replace(inferred, schema=columns), tuple(notes))


def review(plans: Sequence[Plan], partition: Sequence[str] | None, write_schema: str | None, as_json: bool) -> None:
    """
    Show what a new table would be, and write its columns where that is asked for.
    """
    from bookkeeper.commands.init import spec_of_new
    from bookkeeper.commands.init_keys import asks_for_keys, with_keys
    from bookkeeper.commands.partitions import partition_text

    shown: list[dict[str, Any]] = []
    for plan in plans:
        notes: list[str] = []
        schema = with_keys(plan.schema, plan.table) if asks_for_keys(plan.table) else plan.schema
        by = partition_text(spec_of_new(plan.table, schema, partition, notes, plan.fitting), schema)
        if plan.inferred is not None:
            notes = [*plan.inferred.notes, *notes]
        for note in (*notes, *plan.notes):
            say(f"{plan.table.name}: {note}")
        columns = columns_of(schema)
        shown.append({"table": plan.table.name, "partition": by, "schema": columns})
        if not as_json:
            show_rows(columns if plan.inferred is None else plan.inferred.review(), False)
            say(f"{plan.table.name}: partitioned by {by}")
    if as_json:
        click.echo(to_json(shown))
    if write_schema:
        _write(write_schema, shown)
    say("nothing was changed" + (f"; the columns are in {write_schema}, for --schema" if write_schema else ""))


def columns_of(schema: "Schema") -> list[dict[str, Any]]:
    """The columns as `--schema` takes them."""
    return [
        {key: value for key, value in field.model_dump(mode="json").items() if key in ("name", "type", "required")}
        for field in schema.fields
    ]


def _write(path: str, shown: Sequence[dict[str, Any]]) -> None:
    columns = [shown[0]["schema"]] + [one["schema"] for one in shown if one["schema"] != shown[0]["schema"]]
    if len(columns) > 1:
        raise ConfigInvalid("--write-schema: the tables have different columns", hint="Choose one by --table.")
    text = ",\n".join("  " + json.dumps(column, ensure_ascii=False) for column in columns[0])
    try:
        Path(path).write_text(f"[\n{text}\n]\n", "utf-8")
    except OSError as exc:
        hint = "Name a file in a folder that is there and may be written."
        raise ConfigInvalid(f"--write-schema {path} cannot be written: {exc.strerror}", hint=hint) from exc


def say_inferred(inferred: "Inferred", name: str) -> None:
    """
    Say the columns that were made, and what there is to say of them.
    """
    say("\n".join(table(inferred.review())))
    for note in inferred.notes:
        say(f"{name}: {note}")


def load_words(plan: Plan, path: str, folder: str, config: str | None, name: str | None = None) -> list[str]:
    """
    The command that loads the file into the table with this txlog `folder`, word by word.

    A writer cannot ask the catalog: --table is enough only where the configuration says the place.
    """
    table, options = plan.table, plan.inferred.options if plan.inferred else ()
    known = table.location is not None or table.folder is not None
    words = ["writer", "lines", *(["--config", config] if config else [])]
    words += ["--table", table.name] if known else ["--folder", folder]
    return [
        *words,
        "--name",
        name or f"{short_name(path)}-1",
        *options,
        *(["--"] if path.startswith("-") else []),
        path,
    ]


def short_name(path: str) -> str:
    """A name for a writer or a table, from that of a file."""
    return re.sub(r"[^a-z0-9_-]+", "-", Path(path).name.split(".")[0].lower()).strip("-_")[:50] or "load"
