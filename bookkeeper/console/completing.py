"""
Completion of names in a shell: from the configuration, and from a txlog folder on this machine's disk.

It must be quick, so it opens no catalog and asks no server; on any error there is nothing to complete.
"""

import json
import os
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import click

from bookkeeper.errors import BookkeeperError

if TYPE_CHECKING:
    from bookkeeper.config.settings import Settings

Completer = Callable[[click.Context, click.Parameter, str], list[str]]
PENDING, REJECTED = "pending", "rejected"


def tables(context: click.Context, parameter: click.Parameter, text: str) -> list[str]:
    """
    Tables of the configuration.
    """
    settings = _settings(context)
    return [name for name in settings.tables if name.startswith(text)] if settings else []


def txlogs(*places: str) -> Completer:
    """
    Txlogs in these parts of the folder.
    """
    return _those(lambda folder: (name for place in places for name in _listed(folder, place)))


def _listed(folder: str, place: str, suffix: str = ".txlog.avro") -> list[str]:
    return [name for name in os.listdir(f"{folder}/{place}") if name.endswith(suffix)]


def _writers(folder: str) -> Iterator[str]:
    with open(f"{folder}/marks.json", "rb") as copy:
        return iter(json.load(copy)["marks"]["writers"])


def _those(names: Callable[[str], Iterator[str]]) -> Completer:
    def complete(context: click.Context, parameter: click.Parameter, text: str) -> list[str]:
        folder = _folder(context)
        try:
            return sorted({name for name in names(folder) if name.startswith(text)}) if folder else []
        except (OSError, ValueError, KeyError, TypeError):
            return []

    return complete


runs = _those(lambda folder: (name.rsplit(".", 3)[0] for name in _listed(folder, PENDING)))
writers = _those(_writers)
consumers = _those(lambda folder: (name.removesuffix(".json") for name in _listed(folder, "consumers", ".json")))


def _settings(context: click.Context) -> "Settings | None":
    from bookkeeper.config.load import load

    given = context.params.get("config") or (context.parent.params.get("config") if context.parent else None)
    try:
        return load(given, os.environ)  # noqa: TID251 -- the shell calls this, no command of ours
    except BookkeeperError:
        return None


def _folder(context: click.Context) -> str | None:
    """The txlog folder, if the configuration alone names it and it is on this machine."""
    from bookkeeper.stores.locations import local_path

    settings = _settings(context)
    name = context.params.get("table") or next(iter(settings.tables if settings else ()), "")
    table: Any = settings.tables.get(name) if settings else None
    if settings is None or table is None:
        return None
    warehouse = settings.catalog.properties.get("warehouse", "")
    # Where catalogs put a table without a location; a catalog that does not yields no names.
    location = table.location or "/".join((warehouse, *table.identifier.split(".")))
    return local_path(table.folder or f"{location}/_bookkeeper")
