"""
What the jobs' command lines share beyond the console's manners: Spark confs.
"""

from collections.abc import Callable
from typing import Any

import click

from bookkeeper.console.options import config_option, table_option
from bookkeeper.errors import ConfigInvalid

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
