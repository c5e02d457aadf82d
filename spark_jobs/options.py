"""
What the jobs' command lines share beyond the console's manners: Spark confs and moments.
"""

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import click

from bookkeeper.console.options import config_option, table_option
from bookkeeper.core.errors import ConfigInvalid

Command = Callable[..., Any]


def common(command: Command) -> Command:
    """
    Add --config, --table and --conf to a command.
    """
    text = "A Spark conf; may be repeated."
    command = click.option("--conf", "conf", multiple=True, metavar="KEY=VALUE", help=text)(command)
    return config_option(table_option(command))


def confs(pairs: tuple[str, ...]) -> dict[str, str]:
    """
    `KEY=VALUE` options as a mapping; raises ConfigInvalid.
    """
    for pair in pairs:
        if "=" not in pair:
            raise ConfigInvalid(f"--conf {pair}: KEY=VALUE is allowed")
    return dict(pair.split("=", 1) for pair in pairs)


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
            parsed = value if isinstance(value, datetime) else datetime.fromisoformat(value)
        except ValueError:
            self.fail(f"{value!r}: a time such as 2026-01-31T12:00:00Z is allowed", param, ctx)
        return parsed if parsed.tzinfo else parsed.replace(tzinfo=UTC)
