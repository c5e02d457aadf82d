"""
Applies retention: the rule at this moment, the files that it drops, the brake, and the commit that drops them.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from pyiceberg.manifest import ManifestContent

from bookkeeper.config.settings import Retention
from bookkeeper.config.units import epoch_ms
from bookkeeper.contract.marks import Marks
from bookkeeper.errors import ConfigInvalid
from bookkeeper.format.manifest_list import ListedManifest
from bookkeeper.format.records import LARGEST
from bookkeeper.format.skim import EntrySummary
from bookkeeper.ledger.ledger import Ledger
from bookkeeper.ledger.view import View
from bookkeeper.manifests.blocks import ManifestDelete
from bookkeeper.manifests.reader import with_live_files
from bookkeeper.retention import rule as rules
from bookkeeper.retention.scan import find, live_bytes, warm_cache
from bookkeeper.retention.size_cutoff import size_cutoff

UNRELIABLE_CLOCK = "the clock cannot be relied on: see action=clock in the log"


@dataclass(frozen=True, slots=True)
class RetentionResult:
    """What retention found: how many live files go, why they stay, or the view after the commit that dropped them."""

    files: int = 0
    live: int = 0
    held_back: str = ""
    #: what goes; empty when the brake holds it back
    drops: Sequence[ManifestDelete] = ()
    after: View | None = None
    #: nothing is decided yet: some manifests were not read
    unread: bool = False


def apply_retention(
    ledger: Ledger,
    view: View,
    settings: Retention,
    now: datetime,
    most: int | None = None,
    clock_agrees: Callable[[], bool] = lambda: True,
    sizes: dict[str, int] | None = None,
) -> RetentionResult:
    """
    Drops the files past retention in one commit, unless the brake or the clock holds it back; see `past_retention`.

    `clock_agrees` is asked only when files would go. Raises Retry.
    """
    found = past_retention(ledger, view, settings, now, most, sizes)
    if found.drops and not clock_agrees():
        return replace(found, drops=(), held_back=UNRELIABLE_CLOCK)
    return replace(found, after=ledger.drop(view, found.drops)) if found.drops else found


def past_retention(
    ledger: Ledger,
    view: View,
    settings: Retention,
    now: datetime,
    most: int | None = None,
    sizes: dict[str, int] | None = None,
) -> RetentionResult:
    """
    The files past retention, and whether the brake holds them back; changes nothing. Raises Retry.

    With `most`, about so many entries of manifests that were never read are read; no file goes before all were,
    because the brake weighs what goes against what stays. `sizes` keeps the bytes of each manifest's files for later
    calls.
    """
    try:
        rule = _rule(view, settings, now)
    except ConfigInvalid as error:
        return RetentionResult(held_back=str(error))
    if rule is None or view.head is None:
        return RetentionResult()
    if settings.keep_bytes is not None:
        size = _size(ledger, view, settings.keep_bytes, most, {} if sizes is None else sizes)
        if size is None:
            return RetentionResult(unread=True)
        if settings.keep_bytes < size < LARGEST:  # LARGEST: the sum is unknown
            rule = rule.up_to(size_cutoff(ledger, view, rule.column, size - settings.keep_bytes))
    if rule.idle:
        return RetentionResult(live=_live_count(ledger, view))

    def reaches(manifest: ListedManifest) -> bool:
        schema = view.schema_for(manifest.partition_spec_id)
        return schema is None or rule.reaches(manifest, view.specs[manifest.partition_spec_id], schema)

    if most is not None and not warm_cache(ledger, view, rule.column, reaches, most):
        return RetentionResult(unread=True)
    drops = find(
        ledger, view, rule.column, rule.may_drop, lambda row, at: rule.drops(row.nulls, row.upper, at), reaches
    )
    gone, live = [row for item in drops for row in item.dropped], _live_count(ledger, view)
    why = _over_brake(gone, live, _live_rows(ledger, view), settings.brake)
    return RetentionResult(len(gone), live, why, drops=() if why else drops)


def _size(ledger: Ledger, view: View, keep: int, most: int | None, sizes: dict[str, int]) -> int | None:
    """
    The bytes of all files, by the summary where that is no more than `keep`; None where manifests are left to be read.

    Files are dropped by what manifests say only: a total that another program got wrong is continued by each commit.
    """
    stated = view.total("total-files-size")
    return stated if 0 < stated <= keep or stated >= LARGEST else live_bytes(ledger, view, most, sizes)


def _rule(view: View, settings: Retention, now: datetime) -> rules.Rule | None:
    metadata = view.metadata
    return rules.rule(settings, metadata.schema(), view.marks.times, now, metadata.schemas)


def _over_brake(gone: Sequence[EntrySummary], live: int, live_rows: int | None, brake: float) -> str:
    """What would go that is more than the brake allows, or ""; the larger share counts, of files or of their rows."""
    if rules.braked(len(gone), live, brake):
        return f"{len(gone)} of {live} live files would go, more than retention.brake allows"
    # Two compacted files may hold nearly all rows.
    rows = sum(row.record_count for row in gone)
    if live_rows is not None and rules.braked(rows, live_rows, brake):
        return f"{rows} of {live_rows} rows would go, more than retention.brake allows"
    return ""


def _live_count(ledger: Ledger, view: View) -> int:
    return sum(item.live_files for item in ledger.manifests(view) if item.content == ManifestContent.DATA)


def _live_rows(ledger: Ledger, view: View) -> int | None:
    """Rows of all live data files; None where an entry lies about them."""
    data = with_live_files(ledger.manifests(view), ManifestContent.DATA)
    total = sum(item.added_rows_count + item.existing_rows_count for item in data)
    return None if total >= LARGEST else total


def without_bounds(ledger: Ledger, view: View, settings: Retention, now: datetime) -> int:
    """
    How many live files `keep` cannot judge. Decodes every manifest: for a command, not for the tick.
    """
    try:
        rule = _rule(view, settings, now)
    except ConfigInvalid:
        return 0
    return sum(rule.goes_by_commit_only(file) for file in ledger.live_files(view)) if rule else 0


def with_commit_time(marks: Marks, sequence: int, settings: Retention, at: datetime) -> Marks:
    """
    `marks` with the time of the commit up to this sequence number: max-age counts from it.
    """
    return replace(marks, times=rules.with_commit(marks.times, sequence, epoch_ms(at), settings.max_age))
