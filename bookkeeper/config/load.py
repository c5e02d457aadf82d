"""
Reads the configuration: `--config`, then $BOOKKEEPER_CONFIG, then ./bookkeeper.toml.

Unknown keys and bad values are refused in one line that names the key, the value and what is allowed.
"""

import re
import tomllib
import types
import typing
from collections.abc import Mapping
from dataclasses import MISSING, Field, fields, replace
from datetime import timedelta
from difflib import get_close_matches
from pathlib import Path
from typing import Any, TypeVar

from bookkeeper.config.dead_letters import letters_of, with_letters
from bookkeeper.config.maintained import maintained
from bookkeeper.config.settings import (
    Catalog,
    Compaction,
    Daemon,
    Evolve,
    Fold,
    Reaper,
    Retention,
    Service,
    Settings,
    Table,
)
from bookkeeper.config.units import duration, format_duration, size
from bookkeeper.errors import ConfigInvalid, PathRefused
from bookkeeper.stores.locations import normal

T = TypeVar("T")
_VARIABLE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)(?::-([^}]*))?\}")


def locate(option: str | None, environ: Mapping[str, str]) -> Path:
    """
    The configuration file to read; raises ConfigInvalid when there is none.
    """
    wanted = option or environ.get("BOOKKEEPER_CONFIG") or "bookkeeper.toml"
    path = Path(wanted)
    try:
        there = path.is_file()
    except OSError as exc:
        raise ConfigInvalid(f"{wanted[:300]} cannot be read: {exc.strerror}") from exc
    if not there:
        raise ConfigInvalid(
            f"no configuration at {wanted}",
            hint="Give --config FILE, set BOOKKEEPER_CONFIG, or copy config/local.toml to ./bookkeeper.toml.",
        )
    return path


def load(option: str | None, environ: Mapping[str, str]) -> Settings:
    """
    The settings of the file that `option`, the environment or the working folder names.
    """
    path = locate(option, environ)
    try:
        text = path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as exc:
        raise ConfigInvalid(f"{path} cannot be read: {exc}") from exc
    return parse(text, {**environ, "HERE": str(path.resolve().parent)}, source=str(path))


def parse(text: str, environ: Mapping[str, str], source: str = "text") -> Settings:
    """
    The settings in `text` (TOML), `${NAME}` and `${NAME:-default}` taken from `environ`.

    `${HERE}` is the folder of the configuration file. Raises ConfigInvalid.
    """
    try:
        data = _substitute(tomllib.loads(text), environ, "")
    except tomllib.TOMLDecodeError as exc:
        raise ConfigInvalid(f"{source} is not valid TOML: {exc}") from exc
    known = ("catalog", "storage", "bookkeeper", "reaper", "tables")
    _refuse_unknown(data, known, "")
    reaper = _section(Reaper, data.get("reaper", {}), "reaper")
    tables = _mapping(data.get("tables", {}), "tables")
    storage = _flat(_mapping(data.get("storage", {}), "storage"), "storage")
    catalog = _flat(_mapping(data.get("catalog", {}), "catalog"), "catalog")
    name, properties = catalog.pop("name", "lake"), {**storage, **catalog}
    daemon = _section(Daemon, data.get("bookkeeper", {}), "bookkeeper")
    if not daemon.lease and daemon.share != Daemon().share:
        raise ConfigInvalid(f"bookkeeper.share = {daemon.share!r} needs bookkeeper.lease = true")
    return Settings(
        catalog=Catalog(name=name, properties=properties),
        storage=properties,
        bookkeeper=daemon,
        reaper=reaper,
        tables=_tables(tables, reaper),
        source=source,
    )


def _substitute(value: Any, environ: Mapping[str, str], where: str) -> Any:
    if isinstance(value, dict):
        return {key: _substitute(item, environ, f"{where}.{key}".strip(".")) for key, item in value.items()}
    if isinstance(value, list):
        return [_substitute(item, environ, where) for item in value]
    return _VARIABLE.sub(lambda found: _variable(found, environ, where), value) if isinstance(value, str) else value


def _variable(found: re.Match[str], environ: Mapping[str, str], where: str) -> str:
    value = environ.get(found[1], found[2])
    if value is None:
        raise ConfigInvalid(f"{where}: ${{{found[1]}}} is not set in the environment")
    return value


def _flat(data: Mapping[str, Any], where: str) -> dict[str, str]:
    return {key: _plain(value, f"{where}.{key}") for key, value in data.items()}


def _plain(value: Any, where: str) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, (str, int, float)):
        return str(value)
    # Not the value itself: a section that is not one of ours often holds a secret.
    shown = "{...}" if isinstance(value, dict) else repr(value)
    raise ConfigInvalid(f"{where} = {shown}: a string, number or boolean is allowed (write 's3.endpoint' in quotes)")


def _tables(given: Mapping[str, Any], reaper: Reaper) -> Mapping[str, Table]:
    found = {name: _table(name, value, reaper) for name, value in given.items()}
    letters = [letters_of(table) for table in found.values() if table.dead_letters]
    again = {item.name: _table(item.name, given[item.name], reaper, item) for item in letters if item.name in given}
    return with_letters(found | again)


def apart(tables: list[Table]) -> list[Table]:
    """
    These tables, of which a program works on all; raises ConfigInvalid where two sections are one table: each would
    apply its own retention, and know its own consumers.
    """
    names = dict[str, str]()
    for table in tables:
        other = names.setdefault(table.identifier, table.name)
        if other != table.name:
            raise ConfigInvalid(
                f"tables.{other} and tables.{table.name} are both the table {table.identifier}",
                hint="Give one of them its own `identifier`, or choose one with --table.",
            )
    return tables


def _table(name: str, value: Any, reaper: Reaper, base: Table | None = None) -> Table:
    where = f"tables.{name}"
    data = dict(_mapping(value, where))
    nested: dict[str, Any] = {
        "retention": _section(Retention, data.pop("retention", {}), f"{where}.retention"),
        "reaper": _section(Reaper, data.pop("reaper", {}), f"{where}.reaper", base=reaper),
        "compaction": _section(Compaction, data.pop("compaction", {}), f"{where}.compaction"),
        "evolve": _section(Evolve, data.pop("evolve", {}), f"{where}.evolve"),
        "fold": _section(Fold, data.pop("fold", {}), f"{where}.fold"),
        "service": _section(Service, data.pop("service", {}), f"{where}.service"),
    }
    table = _section(Table, data, where, hidden=("name", *nested), base=base)
    identifier = table.identifier or f"default.{name}"
    if not re.fullmatch(r"[^.\s]+(\.[^.\s]+)+", identifier):
        raise ConfigInvalid(f"{where}.identifier = {identifier!r}: namespace.table is allowed")
    for key, place in (("folder", table.folder), ("location", table.location)):
        if place is not None:
            _check_location(f"{where}.{key}", place)
    return maintained(replace(table, name=name, identifier=identifier, **nested))


def _check_location(where: str, value: str) -> None:
    try:
        normal(value)
    except PathRefused as exc:
        raise ConfigInvalid(f"{where} = {value!r}: an absolute path or URL, without \\ % ? #, is allowed") from exc


def _mapping(value: Any, where: str) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise ConfigInvalid(f"{where} = {value!r}: a section [{where}] is allowed")
    return value


def _refuse_unknown(data: Mapping[str, Any], known: typing.Iterable[str], where: str) -> None:
    known = sorted(known)
    for key in data:
        if key not in known:
            close = get_close_matches(key, known, n=1)
            raise ConfigInvalid(
                f"{f'{where}.{key}'.strip('.')} is not a known key; allowed here: {', '.join(known)}",
                hint=f"Did you mean {close[0]}?" if close else "",
            )


def _section(kind: type[T], data: Any, where: str, hidden: tuple[str, ...] = (), base: T | None = None) -> T:
    data = _mapping(data, where)
    known = {item.name.replace("_", "-"): item for item in fields(kind) if item.name not in hidden}  # type: ignore[arg-type]
    _refuse_unknown(data, [*known, *(name for name in hidden if name != "name")], where)
    values = {known[key].name: _value(known[key], value, f"{where}.{key}") for key, value in data.items()}
    return replace(base, **values) if base is not None else kind(**values)  # type: ignore[type-var]


def _value(item: "Field[Any]", value: Any, where: str) -> Any:
    try:
        converted = _convert(_plain_type(item.type), value, bool(item.metadata.get("size")))
        if isinstance(converted, tuple):
            _check_items(item.type, converted)
        if check := item.metadata.get("check"):
            check(converted)
    except ValueError as exc:
        raise ConfigInvalid(f"{where} = {value!r}: {exc} is allowed") from exc
    _check_limits(item, converted, value, where)
    return converted


def _plain_type(annotation: Any) -> Any:
    if isinstance(annotation, types.UnionType):
        return next(kind for kind in typing.get_args(annotation) if kind is not type(None))
    return typing.get_origin(annotation) or annotation


def _convert(kind: Any, value: Any, is_size: bool) -> Any:
    if kind is timedelta:
        return duration(value if isinstance(value, str) else "")
    if is_size and type(value) is not int:
        return size(value if isinstance(value, str) else "")
    if kind is tuple and isinstance(value, list):
        return tuple(value)
    if kind is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if type(value) is kind:
        return value
    raise ValueError(
        {bool: "true or false", int: "a whole number", float: "a number", tuple: "a list"}.get(kind, "a string")
    )


def _check_items(annotation: Any, values: tuple[Any, ...]) -> None:
    kind = typing.get_args(annotation)[0]
    plain, name = (str, "strings") if kind is str else (dict, "tables")
    if not all(isinstance(value, plain) for value in values):
        raise ValueError(f"a list of {name}")


def _check_limits(item: "Field[Any]", value: Any, shown: Any, where: str) -> None:
    least, most, choices = (item.metadata.get(key) for key in ("least", "most", "choices"))
    if choices and value not in choices:
        raise ConfigInvalid(f"{where} = {shown!r}: one of {', '.join(choices)} is allowed")
    if least is not None and not value >= least:  # so written, it refuses nan
        raise ConfigInvalid(f"{where} = {shown!r}: at least {_shown(least)} is allowed")
    if most is not None and not value <= most:
        raise ConfigInvalid(f"{where} = {shown!r}: at most {_shown(most)} is allowed")


def _shown(limit: Any) -> str:
    return format_duration(limit) if isinstance(limit, timedelta) else str(limit)


def defaults(kind: type[Any]) -> list[tuple[str, Any, str]]:
    """
    Key, default and help of every option of a section, for the docs and `--help`.
    """
    rows = []
    for item in fields(kind):
        if "help" in item.metadata:
            default = item.default_factory() if item.default_factory is not MISSING else item.default
            rows.append((item.name.replace("_", "-"), default, item.metadata["help"]))
    return rows
