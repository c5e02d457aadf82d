"""
Options that commands share, and the kinds of values they take.
"""

import difflib
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import click

from bookkeeper.config.units import duration, size
from bookkeeper.console import completing
from bookkeeper.console.colour import color_option
from bookkeeper.console.logs import FORMATS
from bookkeeper.console.secrets import hide

Command = Callable[..., Any]


def config_option(command: Command) -> Command:
    """
    Add --config (argument `config`).
    """
    text = "Configuration file; default: $BOOKKEEPER_CONFIG, then ./bookkeeper.toml."
    return click.option("--config", "config", metavar="FILE", type=click.Path(), help=text)(command)


def table_option(command: Command) -> Command:
    """
    Add --table (argument `table`).
    """
    text = "Name of the [tables.NAME] section; default: the only one."
    return click.option("--table", "table", help=text, metavar="NAME", shell_complete=completing.tables)(command)


def tables_option(command: Command) -> Command:
    """
    Add --table, as often as wanted (argument `tables`).
    """
    text = "Name of a [tables.NAME] section, repeatable; default: all."
    named = click.option(
        "--table", "tables", multiple=True, help=text, metavar="NAME", shell_complete=completing.tables
    )
    return named(command)


def json_option(command: Command) -> Command:
    """
    Add --json (argument `as_json`), and --color.
    """
    text = "JSON for programs instead of text for people."
    return color_option(click.option("--json", "as_json", is_flag=True, help=text)(command))


def log_options_from(level: str, log_format: str = "auto") -> Callable[[Command], Command]:
    """
    Add --log-format and --log-level (arguments `log_format`, `log_level`) for `logs.set_up`, with these defaults.
    """
    levels = click.option(
        "--log-level",
        default=level,
        type=click.Choice(["debug", "info", "warning", "error"]),
        envvar="BOOKKEEPER_LOG_LEVEL",
        show_default=True,
        show_envvar=True,
        help="Least level shown.",
    )
    formats = click.option(
        "--log-format",
        default=log_format,
        type=click.Choice(FORMATS),
        envvar="BOOKKEEPER_LOG_FORMAT",
        show_default=True,
        show_envvar=True,
        help="Log lines for people (human) or programs (json); auto: human on a terminal, else json.",
    )
    return lambda command: formats(levels(command))


log_options = log_options_from("info")


def listen_option(program: str, text: str) -> Callable[[Command], Command]:
    """
    Add --listen and --allowed-host (arguments `listen`, `allowed_hosts`); the environment may give them as
    `<program>_LISTEN` and `<program>_ALLOWED_HOSTS`.
    """
    named = "Answer there to this host name too, beside localhost and the address itself; may be repeated."
    listen = click.option("--listen", envvar=f"{program}_LISTEN", show_envvar=True, metavar="HOST:PORT", help=text)
    allowed = click.option(
        "--allowed-host", "allowed_hosts", envvar=f"{program}_ALLOWED_HOSTS", show_envvar=True, multiple=True,
        metavar="NAME", callback=_host_names, help=named,
    )  # fmt: skip
    return lambda command: listen(allowed(command))


def _host_names(context: click.Context, parameter: click.Parameter, names: tuple[str, ...]) -> tuple[str, ...]:
    from bookkeeper.config.hosts import check_names

    try:
        check_names(names)
    except ValueError as exc:
        raise click.BadParameter(f"{' '.join(names)}: {exc} is allowed") from exc
    return names


def common(command: Command) -> Command:
    """
    Add --config, --table and --json.
    """
    return config_option(table_option(json_option(command)))


def load_settings(config: str | None, environ: Mapping[str, str]) -> Any:
    """
    The Settings of the file that --config or the environment names; raises ConfigInvalid.
    """
    from bookkeeper.config.load import load

    settings = load(config, environ)
    hide(settings.storage, settings.catalog.properties, environ)
    return settings


def pick_table(settings: Any, name: str | None) -> Any:
    """
    The Table section that --table names, or the only one; raises ConfigInvalid.
    """
    from bookkeeper.config.dead_letters import only
    from bookkeeper.errors import ConfigInvalid

    known = ", ".join(sorted(settings.tables)) or "none"
    if name is None and (single := only(settings.tables)) is not None:
        return single
    if name is None:
        raise ConfigInvalid(f"{settings.source} has the tables {known}", hint="Say which of them.")
    if name not in settings.tables:
        raise ConfigInvalid(f"table {name} is not in {settings.source}", hint=similar(name, sorted(settings.tables)))
    return settings.tables[name]


def similar(name: str, known: Sequence[str]) -> str:
    """
    A hint with the known name that is most alike, or all of them.
    """
    close = difflib.get_close_matches(name, known, n=1)
    if close:
        return f"Did you mean {close[0]}?"
    return f"There is: {', '.join(known)}." if known else "There is none."


class _Parsed(click.ParamType[Any]):
    def __init__(self, name: str, parse: Callable[[str], Any]) -> None:
        self.name, self._parse = name, parse

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if not isinstance(value, str):
            return value
        try:
            return self._parse(value)
        except ValueError as exc:
            self.fail(f"{value!r}: {exc} is allowed", param, ctx)


DURATION = _Parsed("duration", duration)
SIZE = _Parsed("size", size)


def instant(text: str) -> datetime:
    """
    The aware time in ISO 8601, UTC when it names no zone; raises ValueError.
    """
    try:
        parsed = datetime.fromisoformat(text)
    except ValueError as exc:
        raise ValueError("a time such as 2026-01-31T12:00:00Z") from exc
    return parsed if parsed.tzinfo else parsed.replace(tzinfo=UTC)


class Instant(click.ParamType[datetime]):
    """
    An ISO 8601 time; UTC when it names no zone.
    """

    name = "iso-time"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> datetime:
        """
        The aware datetime; fails as a usage error.
        """
        try:
            return value if isinstance(value, datetime) else instant(value)
        except ValueError as exc:
            self.fail(f"{value!r}: {exc} is allowed", param, ctx)


def delimiter(context: click.Context, option: click.Parameter, given: str | None) -> str | None:
    """One character, or `tab`."""
    found = "\t" if given in ("\\t", "tab") else given
    if found is not None and (len(found) != 1 or found in '"\r\n'):
        raise click.BadParameter("one character, such as ';', or 'tab'")
    return found
