"""
`bookkeeper rejected-rows`: the dead letters of a table.
"""

from datetime import datetime

import click

from bookkeeper.cli.context import opened, settings_of
from bookkeeper.console.errors import Command
from bookkeeper.console.options import Instant, common, pick_table
from bookkeeper.console.output import say, show_record, show_rows


@click.command("rejected-rows", cls=Command, short_help="List dead letters: messages that are no rows.")
@common
@click.option("--source", metavar="NAME", help="Only those of this source, the --name of its `writer kafka`.")
@click.option("--topic", metavar="TOPIC", help="Only those of this topic.")
@click.option("--since", type=Instant(), metavar="TIME", help="Only those that were put aside since then.")
@click.option("--limit", type=click.IntRange(1, 100_000), default=50, show_default=True, help="So many are listed.")
@click.option("--by-reason", is_flag=True, help="How many there are of each source, topic and reason.")
@click.option("--export", metavar="FILE", help="Write whole letters there, for `writer kafka-replay`.")
def rejected_rows(
    config: str | None,
    table: str | None,
    as_json: bool,
    source: str | None,
    topic: str | None,
    since: datetime | None,
    limit: int,
    by_reason: bool,
    export: str | None,
) -> None:
    """
    List the dead letters of a table: messages that are no rows of it, the newest first, with the start of their values.

    It reads TABLE__rejected. With --export all of them are written to a file, whole, and none is listed: mend the
    table, then `writer kafka-replay FILE` puts those into it that are rows now.

    \b
    Example:
      bookkeeper rejected-rows --table orders --by-reason
      bookkeeper rejected-rows --table orders --topic orders --since 2026-01-31T12:00:00Z --limit 10
      bookkeeper rejected-rows --table orders --export orders.letters
    """
    from bookkeeper.commands.rejected_rows import RejectedRows, Wanted

    if by_reason and export:
        raise click.UsageError("--by-reason lists, --export writes a file: give one of them")
    there = opened(config, _letters(config, table))
    found = RejectedRows(there.ledger, there.view(), Wanted(source, topic, since))
    if export:
        record = {"table": there.table.name, "file": export, "letters": found.export(export)}
        show_record(record, as_json)
        return
    total, rows = found.by_reason() if by_reason else found.newest(limit)
    show_rows(rows, as_json, nothing="there are no dead letters")
    if len(rows) < total and not by_reason:
        say(f"{len(rows)} of {total} are listed: --limit lists more, --by-reason counts them")


def _letters(config: str | None, table: str | None) -> str:
    """The section of the table's dead letters."""
    from bookkeeper.config.dead_letters import SUFFIX, letters_of
    from bookkeeper.errors import ConfigInvalid

    settings = settings_of(config)
    section = pick_table(settings, table)
    name: str = section.name if section.name.endswith(SUFFIX) else letters_of(section).name
    if name not in settings.tables:
        hint = "`dead-letters = true` in its section, and `bookkeeper init`, make a table for them."
        raise ConfigInvalid(f"tables.{section.name} has no dead letters", hint=hint)
    return name


COMMANDS = (rejected_rows,)
