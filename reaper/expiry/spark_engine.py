"""
Expiry by Iceberg's own procedure on Spark; the plan, with its consumers and refs, is the reaper's.

The procedure expires no more than the plan: it keeps what is not older than the oldest snapshot that stays, on main or
beside it, and as many of main as the plan keeps. It deletes the files itself, so there is no journal.
"""

from collections.abc import Callable, Sequence
from datetime import UTC, datetime

from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Snapshot

from bookkeeper.errors import NotPossible, Retry
from bookkeeper.history.main_history import MainHistory
from bookkeeper.history.others import taken_by_main
from reaper.context import ReaperContext
from reaper.expiry.expiry_plan import LAST, YOUNG, Plan
from reaper.spark_command import job_runner

#: expires what is older than the moment and not among so many newest
ExpireOnSpark = Callable[[datetime, int], None]
OWN, SPARK = "own", "spark"


def no_spark(before: datetime, retain_last: int) -> None:
    """
    Raises NotPossible: no command was given.
    """
    raise NotPossible('engine = "spark" needs a configuration file', hint="Run it as `reaper once --config FILE`.")


def expire_with_spark(context: ReaperContext, plan: Plan, now: datetime, expire_on_spark: ExpireOnSpark) -> int:
    """
    Lets Spark expire the plan's snapshots; returns how many went. Raises Retry, and the next run plans anew; and
    NotPossible where main says that Iceberg takes more.
    """
    if not plan.expire:
        return 0
    before = {item.snapshot_id for item in context.load().metadata.snapshots}
    main = MainHistory(context.load().metadata).snapshots
    staying = [item for item in main if item.snapshot_id not in plan.expire]
    # Asked as late as possible: a consumer may have gone back since the plan.
    table = context.load()
    for hold in context.guard.holds(table, context.guard.read()):
        if hold.snapshot is None or hold.snapshot in plan.expire:
            raise Retry(f"{hold.reason} needs an older snapshot than when the expiry was planned")
    _check_main(table.metadata, plan, now)
    expire_on_spark(_before(table.metadata, plan, staying), max(1, len(staying)))
    after = {item.snapshot_id for item in context.load().metadata.snapshots}
    return len(before - after)


def _check_main(metadata: TableMetadata, plan: Plan, now: datetime) -> None:
    taken = taken_by_main(metadata, now)
    for group in plan.kept:
        # Main decides of age and number, and snapshots get older.
        needed = [why for why in group.reasons if not why.startswith((YOUNG, LAST))]
        if needed and not taken.isdisjoint(group.snapshots):
            raise NotPossible(
                f"Spark would expire what stays ({needed[0]}): by what main says of the age of its snapshots",
                hint="ALTER TABLE ... REPLACE BRANCH main without SNAPSHOT RETENTION, and `older-than` and "
                '`retain-last` in [reaper] instead; or engine = "own".',
            )


def _before(metadata: TableMetadata, plan: Plan, on_main: Sequence[Snapshot]) -> datetime:
    """What is older goes; what a ref names stays by itself, however old it is."""
    named = {ref.snapshot_id for ref in metadata.refs.values()}
    kept = {number for group in plan.kept for number in group.snapshots} - named
    index = MainHistory(metadata).index
    beside = [item for item in metadata.snapshots if item.snapshot_id in kept and item.snapshot_id not in index]
    going = max((item.timestamp_ms for item in metadata.snapshots if item.snapshot_id in plan.expire), default=0)
    oldest = min((item.timestamp_ms for item in (*on_main[:1], *beside)), default=going + 1)
    return datetime.fromtimestamp(oldest / 1000, UTC)


def by_command(command: Sequence[str], config: str | None, table: str) -> ExpireOnSpark:
    """
    Expires by the job `expire-snapshots`, which `command` starts.
    """
    run = job_runner(command, config, table)

    def expire(before: datetime, retain_last: int) -> None:
        run("expire-snapshots", "--before", before.isoformat(), "--retain-last", str(retain_last))

    return expire
