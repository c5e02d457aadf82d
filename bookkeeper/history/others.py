"""
What programs of others need of the history: streams that write, the newest commit of each, which tells them what they
have committed; and staged snapshots (write-audit-publish), time until they are published.
"""

from datetime import datetime, timedelta

from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Snapshot

from bookkeeper.config.settings import Reaper
from bookkeeper.config.units import epoch_ms
from bookkeeper.history.consumer_state import hold_limit
from bookkeeper.history.main_history import MAIN, MainHistory, staged_as

#: Iceberg's history.expire.max-snapshot-age-ms
STAGED_FOR = timedelta(days=5)
#: in the summary of a snapshot that published a staged one
_PUBLISHED = "published-wap-id"
#: in the summaries of streams that write: of which query of Spark or job of Flink the commit is, and that it is one of
#: Kafka Connect's, whose offsets follow
_STREAMS = ("spark.sql.streaming.queryId", "flink.job-id")
_CONNECT, _CONNECT_OFFSETS = "kafka.connect.commit-id", "kafka.connect.offsets."


def newest_of_streams(history: MainHistory, settings: Reaper, now: datetime) -> list[int]:
    """
    The index on main of the newest commit of each stream that writes, of those within max-hold. Started again, the
    stream looks for it: where it is gone, what was committed last is committed once more.
    """
    newest = dict[tuple[str, str], int]()
    for index, snapshot in enumerate(history.snapshots):
        said = snapshot.summary.additional_properties if snapshot.summary else {}
        newest |= {(key, str(said[key])): index for key in _STREAMS if key in said}
        if _CONNECT in said:
            newest |= {(key, ""): index for key in said if key.startswith(_CONNECT_OFFSETS)}
    limit = hold_limit(history, settings, now) if newest else 0
    return [index for index in newest.values() if index >= limit]


def waiting(history: MainHistory) -> list[Snapshot]:
    """The snapshots beside main that are staged and not published."""
    summaries = [snapshot.summary.additional_properties for snapshot in history.snapshots if snapshot.summary]
    published = {said.get(_PUBLISHED, "") for said in summaries}
    return [snapshot for snapshot in history.beside() if staged_as(snapshot) not in {"", *published}]


def taken_by_main(metadata: TableMetadata, now: datetime) -> set[int]:
    """
    What Iceberg's expiry may take of main despite its arguments: older than main itself says of its snapshots (WITH
    SNAPSHOT RETENTION 1 DAYS). Where it says nothing of their number, commits that come meanwhile count to what stays.
    """
    main = metadata.refs.get(MAIN)
    if main is None or main.max_snapshot_age_ms is None:
        return set()
    oldest_ms = epoch_ms(now) - main.max_snapshot_age_ms
    older = MainHistory(metadata).snapshots[: -(main.min_snapshots_to_keep or 1)]
    return {item.snapshot_id for item in older if item.timestamp_ms < oldest_ms}
