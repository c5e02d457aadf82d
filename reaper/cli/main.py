"""
The `reaper` command: `reaper run | once | plan | orphans | compaction`.
"""

import click

from bookkeeper.console.errors import Commands
from reaper.cli.compaction import compaction
from reaper.cli.reap import once, orphans, plan, run


@click.group(cls=Commands)
@click.version_option(package_name="iceberg-bookkeeper")
def main() -> None:
    """
    Expires old snapshots, deletes unreferenced files, and compacts small files.

    \b
    Example:
      reaper plan --config bookkeeper.toml
      reaper run --config bookkeeper.toml
    """


for command in (run, once, plan, orphans, compaction):
    main.add_command(command)
