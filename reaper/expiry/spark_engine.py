"""
Expiry by Iceberg's own procedure on Spark; the plan, with its consumers and refs, is the reaper's.

The procedure expires no more than the plan: it keeps what is not older than the oldest snapshot that stays on main, and
as many as the plan keeps. It deletes the files itself, so there is no journal.
"""

from collections.abc import Callable, Sequence
from datetime import UTC, datetime

from bookkeeper.errors import NotPossible, Retry
from bookkeeper.history.main_history import MainHistory
from reaper.context import ReaperContext
from reaper.expiry.expiry_plan import Plan
from reaper.spark_command import job_runner

#: expires what is older than the moment and not among so many newest
ExpireOnSpark = Callable[[datetime, int], None]
OWN, SPARK = "own", "spark"


def no_spark(before: datetime, retain_last: int) -> None:
    """
    Raises NotPossible: no command was given.
    """
    raise NotPossible('engine = "spark" needs a configuration file', hint="Run it as `reaper once --config FILE`.")


def expire_with_spark(context: ReaperContext, plan: Plan, expire_on_spark: ExpireOnSpark) -> int:
    """
    Lets Spark expire the plan's snapshots; returns how many went. Raises Retry, and the next run plans anew.
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
    expire_on_spark(datetime.fromtimestamp(staying[0].timestamp_ms / 1000, UTC), len(staying))
    after = {item.snapshot_id for item in context.load().metadata.snapshots}
    return len(before - after)


def by_command(command: Sequence[str], config: str | None, table: str) -> ExpireOnSpark:
    """
    Expires by the job `expire-snapshots`, which `command` starts.
    """
    run = job_runner(command, config, table)

    def expire(before: datetime, retain_last: int) -> None:
        run("expire-snapshots", "--before", before.isoformat(), "--retain-last", str(retain_last))

    return expire
