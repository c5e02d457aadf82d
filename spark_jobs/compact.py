"""
Compaction on Spark for what outgrows one machine. It commits nothing: each group of files becomes a rewrite, and
the bookkeeper commits that (docs/maintain/rewrite-format.md). So it loses no race against appends, and expiry may take
its snapshot.

A job that dies before it publishes a group leaves new files that nothing names: orphans, swept by age. One that dies
afterwards leaves a rewrite, which the bookkeeper takes without it. New files are never deleted here.
"""

from __future__ import annotations

import os
import time
import uuid
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import click

from bookkeeper.config.units import format_duration, spoken_size
from bookkeeper.console.errors import Command
from bookkeeper.console.options import DURATION, SIZE, load_settings, pick_table
from bookkeeper.errors import BookkeeperError, Hold, Missing, NotPossible, Retry, RewriteRejected, Unfit
from spark_jobs import job, procedures, session
from spark_jobs.rewrite_groups import (
    DELETE_FILES,
    EVERYTHING,
    LEAST_FILES,
    MOST_FILES,
    TARGET_SIZE,
    Group,
    Source,
    cause,
    make_durable,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from bookkeeper.config.settings import Table
    from bookkeeper.contract.card import Card
    from bookkeeper.contract.txlog_folder import Folder

#: of new files, where neither the command line nor the table says it
TARGET_BYTES = 2**28
TARGET = "write.target-file-size-bytes"
#: of one group, and what an entry of a rewrite takes at most: a tick of the bookkeeper takes 20,000 files
MOST_GROUP_FILES, ENTRY_BYTES = 10_000, 1024
_LOOK_EVERY_SECONDS = 1
_PLANS = 3


@dataclass(frozen=True, slots=True)
class Options:
    """What is rewritten, and how. Sizes in bytes."""

    older_than: timedelta | None = timedelta(hours=1)
    where: str | None = None
    target_file_size: int | None = None
    min_input_files: int = 5
    sort: bool = False
    in_flight: int = 4
    wait: timedelta | None = None
    #: a data file to which so many delete files apply is rewritten for these alone
    delete_files: int | None = None
    #: every data file is rewritten, whatever its size
    everything: bool = False


def options(command: job.Command) -> job.Command:
    """
    Add the options of a compaction: the fields of `Options`.
    """
    given = (
        click.option("--older-than", type=DURATION, default="1h", help="Leave hours with younger rows alone (1h)."),
        click.option("--where", metavar="SQL", help="Only files that may hold such rows, as \"key >= 'm'\"."),
        click.option(
            "--target-file-size", type=SIZE, help=f"Of new files; default: the table's {TARGET}, else 256MiB."
        ),
        click.option(
            "--min-input-files", type=click.IntRange(2), default=5, show_default=True,
            help="Fewer small files of a partition than this are left alone.",
        ),
        click.option(
            "--delete-files", type=click.IntRange(1),
            help="Rewrite also each file to which so many delete files apply; default: none for these alone.",
        ),
        click.option(
            "--all", "everything", is_flag=True,
            help="Rewrite every data file, whatever its size: after a change of how files are written.",
        ),
        click.option("--sort", is_flag=True, help="Sort the rows by the table's sort order."),
        click.option(
            "--in-flight", type=click.IntRange(1, 64), default=4, show_default=True,
            help="Groups of files that are rewritten at the same time.",
        ),
        click.option(
            "--wait", type=DURATION, help="Wait so long for the bookkeeper to commit them, and say what it did."
        ),
    )  # fmt: skip
    for option in reversed(given):
        command = option(command)
    return command


@dataclass
class Outcome:
    """What a run did: ids of rewrites, and how many groups it left out because of an error."""

    published: list[str] = field(default_factory=list)
    left_out: int = 0
    rejected: dict[str, str] = field(default_factory=dict)
    pending: list[str] = field(default_factory=list)
    waited: bool = False

    def __str__(self) -> str:
        said = f"{len(self.published)} rewrites published"
        if self.waited:
            committed = len(self.published) - len(self.rejected) - len(self.pending)
            said += f": {committed} committed, {len(self.rejected)} rejected, {len(self.pending)} pending"
        return said + (f"; {self.left_out} groups left out" if self.left_out else "")


@dataclass(frozen=True)
class Compaction:
    """One run over one table."""

    spark: SparkSession
    name: str
    settings: Table
    folder: Folder
    options: Options

    def run(self, now: datetime, *, dry_run: bool = False) -> Outcome:
        """
        Publishes a rewrite of each group that Iceberg's planner finds; a dry run only says which.

        Raises NotPossible, StorageUnavailable, and Retry where something was left out, rejected or not taken yet.
        """
        from bookkeeper.contract.fold_pause import pausing

        card, outcome = self._card(), Outcome()
        if dry_run or card.keyed is None:
            return self._run(card, now, outcome, dry_run)
        # Published and not waited for: the bookkeeper takes them before its next fold.
        left = lambda: bool(outcome.published) and not outcome.waited  # noqa: E731
        with pausing(self.folder.store, f"compact-{uuid.uuid4().hex[:12]}", now, lapses=left):
            return self._run(card, now, outcome, dry_run)

    def _run(self, card: Card, now: datetime, outcome: Outcome, dry_run: bool) -> Outcome:
        # The folder before the table: what was committed in between is in the table then, and not planned again.
        taken = self._taken()
        source, planned = self._planned(card, now)
        for location in sorted(source.listed_twice):
            click.echo(f"-- left alone: {location}: the table lists it more than once")
        groups = [group for group in planned if not self._is_taken(group, taken)]
        for group in groups:
            about = f"{group}, {spoken_size(group.bytes)}"
            click.echo(f"-- {'would rewrite' if dry_run else 'found'}: {about} -> {group.new_files} files")
        if not dry_run:
            self._rewrite_all(source, card, groups, outcome)
            click.echo(f"-- {outcome}")
            _check(self.name, outcome)
        return outcome

    def _card(self) -> Card:
        try:
            return self.folder.card()
        except Missing as exc:
            raise NotPossible(
                f"{self.folder.store.url} has no card.json: no bookkeeper commits rewrites of {self.name}",
                hint="`bookkeeper init` makes it; --call lets Iceberg commit (maintain rewrite-data-files).",
            ) from exc

    def _load(self, card: Card) -> Source:
        source = Source.load(self.spark, self.name)
        if str(source.table.uuid()) != card.table_uuid:
            raise NotPossible(f"{self.folder.store.url} belongs to table {card.table_uuid}, not to {self.name}")
        if self.options.sort and not source.is_sorted():
            hint = f"Leave --sort out, or run: ALTER TABLE {self.name} WRITE ORDERED BY ..."
            raise NotPossible(f"{self.name} has no sort order", hint=hint)
        return source

    def _planned(self, card: Card, now: datetime) -> tuple[Source, list[Group]]:
        """Of a newer snapshot where that fails: an eager expiry may take the manifests while they are read."""
        for tries_left in reversed(range(_PLANS)):
            source = self._load(card)
            try:
                return source, self._plan(source, now)
            except Retry:
                if not tries_left:
                    raise
        raise AssertionError("the last try returns or raises")

    def _plan(self, source: Source, now: datetime) -> list[Group]:
        size = self.options.target_file_size or source.table.properties().get(TARGET) or TARGET_BYTES
        most = min(MOST_GROUP_FILES, self.settings.max_txlog_bytes // ENTRY_BYTES)
        wanted = {TARGET_SIZE: str(size), LEAST_FILES: str(self.options.min_input_files), MOST_FILES: str(most)}
        if self.options.delete_files is not None:
            wanted[DELETE_FILES] = str(self.options.delete_files)
        if self.options.everything:
            wanted[EVERYTHING] = "true"
        try:
            return source.plan(self._conditions(source, now), wanted)
        except BookkeeperError:
            raise
        except Exception as exc:
            raise Retry(f"{self.name} cannot be planned: {cause(exc)}", hint="Run it again.") from exc

    def _conditions(self, source: Source, now: datetime) -> list[Any]:
        column = self.settings.retention.column or procedures.time_column(self.spark.table(self.name).schema)
        age = self.options.older_than
        closed = [source.older(column, procedures.closed(now - age))] if column and age is not None else []
        return closed + [source.where(condition) for condition in (self.options.where,) if condition]

    def _taken(self) -> set[str]:
        """What pending rewrites replace: planned again, one of the two would be rejected."""
        from bookkeeper.contract.pending_rewrites import pending_rewrites
        from bookkeeper.contract.rewrite import REWRITES, decode, parse_key

        taken, most = set[str](), self.settings.max_txlog_bytes
        for item in pending_rewrites(self.folder):
            try:
                data = self.folder.store.read(f"{REWRITES}{item.name}", most)
                taken |= decode(parse_key(item.name), data, most).replaced.keys()
            except (RewriteRejected, Hold, Missing, Unfit):
                continue  # the bookkeeper's affair
        return taken

    def _is_taken(self, group: Group, taken: set[str]) -> bool:
        from bookkeeper.contract.rewrite import file_key

        if not taken or taken.isdisjoint(file_key(file.location()) for file in group.data_files()):
            return False
        click.echo(f"-- left alone: {group}: a pending rewrite replaces one of them")
        return True

    def _rewrite_all(self, source: Source, card: Card, groups: Iterable[Group], outcome: Outcome) -> None:
        with ThreadPoolExecutor(self.options.in_flight, "group") as pool:
            running = {pool.submit(self._rewrite, source, card, group): group for group in groups}
            try:
                for done in as_completed(running):
                    self._note(running[done], done.result, outcome)
            finally:
                pool.shutdown(cancel_futures=True)
        if self.options.wait is not None and outcome.published:
            self._watch(outcome, self.options.wait)

    def _note(self, group: Group, result: Callable[[], str], outcome: Outcome) -> None:
        try:
            outcome.published.append(result())
        except Exception as exc:  # noqa: BLE001 - the trouble of one group, as a file that is gone, stops no other
            outcome.left_out += 1
            click.echo(f"-- left out: {group}: {cause(exc)}", err=True)

    def _rewrite(self, source: Source, card: Card, group: Group) -> str:
        """Writes and publishes; a crash before the last line leaves orphans, one in or after it a rewrite."""
        from bookkeeper.contract.pending_rewrites import publish

        if "%" in group.partition:  # the bookkeeper rejects such locations: storages do not agree on what they are
            raise NotPossible(f"the folder {group.partition} has characters that storage could interpret")
        began, oldest = time.monotonic(), timedelta(milliseconds=card.orphan_age_ms) / 2
        new = source.write(group, sort=self.options.sort)
        rewrite_id, data = source.encode(group, new, self.settings.max_txlog_bytes)
        make_durable([file.location() for file in new], card.data_path)
        took = timedelta(seconds=time.monotonic() - began)
        if took >= oldest:  # the bookkeeper rejects it: the orphan sweep may be at its first files
            raise NotPossible(f"it took {format_duration(took)}, at most half of orphan-age is allowed")
        publish(self.folder, rewrite_id, data)
        size = spoken_size(sum(file.fileSizeInBytes() for file in new))
        click.echo(f"-- rewrite {rewrite_id}: {group} -> {len(new)} files, {size}")
        return rewrite_id

    def _watch(self, outcome: Outcome, most: timedelta) -> None:
        until, outcome.waited = time.monotonic() + most.total_seconds(), True
        outcome.pending = outcome.published
        while True:
            outcome.pending = still_pending(self.folder, outcome.pending)
            if not outcome.pending or time.monotonic() >= until:
                break
            time.sleep(_LOOK_EVERY_SECONDS)
        outcome.rejected = rejected_of(self.folder, outcome.published)
        for rewrite_id, reason in outcome.rejected.items():
            click.echo(f"-- rejected: {rewrite_id}: {reason}", err=True)


def still_pending(folder: Folder, ids: Iterable[str]) -> list[str]:
    """
    Those of the rewrites that lie in rewrites/: the bookkeeper takes one out when it is committed or rejected.
    """
    from bookkeeper.contract.pending_rewrites import pending_rewrites
    from bookkeeper.contract.rewrite import REWRITES, key_of

    listed = {item.name for item in pending_rewrites(folder)}
    return [rewrite_id for rewrite_id in ids if key_of(rewrite_id).removeprefix(REWRITES) in listed]


def rejected_of(folder: Folder, ids: Iterable[str]) -> dict[str, str]:
    """
    The rejected ones of these rewrites, each with its reason.
    """
    from bookkeeper.contract.pending_rewrites import rejected_rewrites
    from bookkeeper.contract.rewrite import parse_key

    names = {parse_key(item.name): item.name for item in rejected_rewrites(folder)}
    return {key: _reason(folder.reason(names[key])) for key in ids if key in names}


def _reason(found: Mapping[str, Any]) -> str:
    return f"{found.get('error', 'no reason is stored')}: {found.get('reason', '')}".removesuffix(": ")


def _check(name: str, outcome: Outcome) -> None:
    if outcome.left_out or outcome.rejected:
        raise Retry(
            f"not every group of {name} was rewritten: {outcome}",
            hint="No row is lost. What was left is as it was; run it again, it is planned anew.",
        )
    if outcome.pending:
        raise Retry(
            f"the bookkeeper has not taken every rewrite of {name} yet: {outcome}",
            hint="Is it running? They stay valid, and need no job to wait for them.",
        )


def compact(
    spark: SparkSession,
    name: str,
    table: Table,
    storage: Mapping[str, str],
    now: datetime,
    chosen: Options,
    *,
    dry_run: bool = False,
) -> Outcome:
    """
    Compacts `table`, which Spark knows as `name`, by rewrites; raises like `Compaction.run`.
    """
    from bookkeeper.contract.txlog_folder import Folder, folder_url
    from bookkeeper.stores.open import open_store
    from spark_jobs.table import location

    folder = Folder(open_store(folder_url(table, location(spark, name)), storage))
    return Compaction(spark, name, table, folder, chosen).run(now, dry_run=dry_run)


@click.command(cls=Command)
@job.options
@click.option("--dry-run", is_flag=True, help="Say which files would be rewritten; write nothing.")
@options
def main(config: str | None, table: str | None, conf: tuple[str, ...], dry_run: bool, **given: Any) -> None:
    """
    Rewrite many small files as few, through the bookkeeper.

    Iceberg plans, reads and writes; the bookkeeper commits. So appends and expiry go on and nothing conflicts. Deleted
    rows are left out. Each group of files is a rewrite of its own: a file that is gone costs its group only.

    The exit code is 4 when a group was left out, and with --wait when a rewrite was rejected or is still pending.

    \b
    Example: python -m spark_jobs.compact --config bookkeeper.toml --older-than 2h --wait 5m
    """
    settings = load_settings(config, os.environ)
    name = session.table_name(settings, table)
    spark = job.begin(settings, f"compact {name}", conf)
    about = pick_table(settings, table)
    compact(spark, name, about, settings.storage, datetime.now(UTC), Options(**given), dry_run=dry_run)


if __name__ == "__main__":
    main()
