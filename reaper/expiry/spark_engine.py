"""
Hands expiry to Iceberg's own procedure on Spark: the plan, with its consumers and refs, stays ours.

What is asked is no more than the plan: Iceberg keeps what is not older than the oldest snapshot that stays on main,
and as many as the plan keeps. It deletes the files itself; there is no journal, for nothing of ours can be left over.
"""

import subprocess
import sys
from collections.abc import Callable, Sequence
from datetime import UTC, datetime

from bookkeeper.errors import NotPossible, Retry
from reaper.context import ReaperContext
from reaper.files.expired import Reaped
from reaper.plan import History, Plan

#: expires what is older than the first and not among so many newest
Hand = Callable[[datetime, int], None]
OWN, SPARK = "own", "spark"


def nobody(before: datetime, retain_last: int) -> None:
    """
    There is nobody to hand it to; raises NotPossible.
    """
    raise NotPossible('engine = "spark" needs a configuration file', hint="Run it as `reaper once --config FILE`.")


def hand_over(site: ReaperContext, plan: Plan, hand: Hand) -> Reaped:
    """
    Lets Spark expire what the plan says; raises Retry when it could not, and the next run plans anew.
    """
    if not plan.expire:
        return Reaped()
    before = {item.snapshot_id for item in site.load().metadata.snapshots}
    staying = [item for item in History(site.load().metadata).main if item.snapshot_id not in plan.expire]
    # A consumer that went back since the plan: asked once more, as late as we can.
    table = site.load()
    for hold in site.guard.holds(table, site.guard.read()):
        if hold.snapshot is None or hold.snapshot in plan.expire:
            raise Retry(f"{hold.reason} needs an older snapshot than when the expiry was planned")
    hand(datetime.fromtimestamp(staying[0].timestamp_ms / 1000, UTC), len(staying))
    after = {item.snapshot_id for item in site.load().metadata.snapshots}
    return Reaped(snapshots=len(before - after))


def by_command(command: Sequence[str], config: str | None, table: str) -> Hand:
    """
    A hand that starts `command` (default: this Python's `spark_jobs.maintain`) with the job's arguments.
    """
    words = [*(command or (sys.executable, "-m", "spark_jobs.maintain")), "expire-snapshots", "--table", table]
    words += ["--config", config] if config else []

    def hand(before: datetime, retain_last: int) -> None:
        asked = [*words, "--before", before.isoformat(), "--retain-last", str(retain_last)]
        try:
            done = subprocess.run(asked, capture_output=True, text=True)
        except OSError as exc:
            raise Retry(f"{words[0]} could not be started: {exc}", hint="Check reaper.spark-command.") from exc
        if done.returncode:
            said = [line for line in done.stderr.splitlines() if line.strip()]
            raise Retry(f"the Spark job ended with {done.returncode}: {(said or ['nothing said'])[-1][:500]}")

    return hand
