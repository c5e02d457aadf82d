"""
Which txlog folders the options of a command name, and how their storage is reached.
"""

from collections.abc import Mapping, Sequence

from bookkeeper.config.dead_letters import letters_of
from bookkeeper.config.settings import Settings
from bookkeeper.console.options import load_settings, pick_table
from bookkeeper.contract.txlog_folder import folder_url as configured_url
from bookkeeper.errors import ConfigInvalid
from bookkeeper.stores.locations import absolute
from writers.reach import CATALOG, Reach


def folder_url(folder: str | None, config: str | None, table: str | None, environ: Mapping[str, str]) -> str:
    """
    The txlog folder that the options name; raises ConfigInvalid.
    """
    if folder is not None:
        return absolute(folder)
    try:
        settings = load_settings(config, environ)
        section = pick_table(settings, table)
    except ConfigInvalid as exc:
        hint = f"Give --folder URL as `bookkeeper init` prints it. {exc.hint}".strip()
        raise ConfigInvalid(f"no txlog folder is given, and {exc}", hint=hint) from exc
    if section.folder is None and section.location is None:
        if section.credentials == CATALOG:
            return configured_url(section, Reach(settings).location(section))
        raise ConfigInvalid(
            f"tables.{section.name} names neither folder nor location, and a writer cannot ask the catalog",
            hint="Give --folder URL as `bookkeeper init` prints it, or set `folder` in the configuration.",
        )
    return str(section.folder) if section.location is None else configured_url(section, section.location)


def letters_url(
    letters: str | None, folder: str | None, config: str | None, table: str | None, environ: Mapping[str, str]
) -> str | None:
    """
    The txlog folder of the table's dead letters, if the options name one; raises ConfigInvalid.
    """
    if letters is not None:
        return absolute(letters)
    if folder is not None:
        return None
    section = pick_table(load_settings(config, environ), table)
    return folder_url(None, config, letters_of(section).name, environ) if section.dead_letters else None


def served_folders(
    folders: Sequence[str], config: str | None, tables: Sequence[str], environ: Mapping[str, str]
) -> dict[str, str]:
    """
    By txlog folder the table's name; "" of a folder that is given itself. Without both, all tables that are configured.
    Raises ConfigInvalid.
    """
    given = {absolute(folder): "" for folder in folders}
    if not (folders or tables):
        tables = [*load_settings(config, environ).tables]
    return given | {folder_url(None, config, table, environ): table for table in tables}


def reach(folder: str | None, config: str | None, environ: Mapping[str, str]) -> Reach:
    """
    How the configuration reaches storage; with --folder and without --config, a missing configuration says nothing.
    """
    try:
        return Reach(load_settings(config, environ))
    except ConfigInvalid:
        if folder is None or config is not None:
            raise
        return Reach(Settings())
