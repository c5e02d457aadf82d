"""
Which whole files are dropped: pure, from their upper bound of the timestamp column and the time of their commit.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import IdentityTransform, TimeTransform

from bookkeeper.config.settings import Retention
from bookkeeper.config.units import epoch_ms
from bookkeeper.contract.retention_column import retention_column
from bookkeeper.format.entries import DataFile
from bookkeeper.format.manifest_list import ListedManifest
from bookkeeper.manifests.stats import Range

_EPOCH_MS = timedelta(milliseconds=1)
_TIMES = 64
#: transforms of a time that keep its order
_IN_ORDER = (IdentityTransform, TimeTransform)

Times = tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class Rule:
    """
    A file goes when its newest row is older than `cutoff` (in the column's own units), or when it was committed with a
    sequence number up to `sequence`. A file that may have null timestamps, or has no bound of `width` bytes, goes by
    its commit only.
    """

    column: int | None
    cutoff: int | None
    sequence: int
    width: int = 8
    required: bool = False

    def drops(self, nulls: int | None, upper: bytes | None, sequence: int) -> bool:
        """
        Whether a file goes that was committed with this sequence number; `nulls` and `upper` are the column's null
        count and upper bound in it (None: unknown).
        """
        if sequence <= self.sequence:
            return True
        if self.cutoff is None or upper is None or nulls or (nulls is None and not self.required):
            return False
        return len(upper) == self.width and _number(upper) < self.cutoff

    @property
    def idle(self) -> bool:
        """Whether it can drop nothing at all."""
        return self.cutoff is None and self.sequence < 0

    def up_to(self, sequence: int) -> "Rule":
        """This rule, which also drops what was committed up to this sequence number."""
        return replace(self, sequence=max(self.sequence, sequence))

    def goes_by_commit_only(self, file: DataFile) -> bool:
        """Whether the file shows no age of its rows: it may have null timestamps, or has no usable bound."""
        if self.column is None:
            return False
        nulls, upper = file.null_value_counts.get(self.column), file.upper_bounds.get(self.column)
        return not replace(self, cutoff=2**63).drops(nulls, upper, self.sequence + 1)

    def reaches(self, manifest: ListedManifest, spec: PartitionSpec, schema: Schema) -> bool:
        """
        Whether a manifest can hold a file that goes, by its partitions: not if they all begin after the cutoff.
        """
        if self.cutoff is None or manifest.min_sequence_number <= self.sequence:
            return manifest.min_sequence_number <= self.sequence
        for field, found in zip(spec.fields, manifest.partitions or (), strict=False):
            if field.source_id == self.column and isinstance(field.transform, _IN_ORDER) and found.lower_bound:
                cutoff = field.transform.transform(schema.find_type(field.source_id))(self.cutoff)
                if cutoff is not None and _number(found.lower_bound) > cutoff:
                    return False
        return True

    def may_drop(self, found: Range) -> bool:
        """Whether a manifest with this range can hold a file that goes."""
        by_time = self.cutoff is not None and found.least_upper is not None and _number(found.least_upper) < self.cutoff
        return by_time or found.least_sequence <= self.sequence


def _number(bound: bytes) -> int:
    return int.from_bytes(bound, "little", signed=True)


def rule(
    settings: Retention, schema: Schema, times: Times, now: datetime, schemas: Iterable[Schema] = ()
) -> Rule | None:
    """
    The rule at `now`, or None when nothing is to be dropped; raises ConfigInvalid for a column that cannot serve.
    `schemas` are all that the table has.
    """
    if settings.keep is None and settings.max_age is None and settings.keep_bytes is None:
        return None
    sequence = -1
    if settings.max_age is not None:
        limit_ms = epoch_ms(now - settings.max_age)
        sequence = max((sequence for sequence, at_ms in times if at_ms < limit_ms), default=-1)
    if settings.keep is None:
        return Rule(None, None, sequence)
    column = retention_column(settings, schema, schemas)
    cutoff = (now - settings.keep - datetime.fromtimestamp(0, now.tzinfo)) // column.unit
    return Rule(column.field_id, cutoff, sequence, column.width, column.required)


def with_commit(times: Times, sequence: int, at_ms: int, max_age: timedelta | None) -> Times:
    """
    `times` with this commit, about 64 points per max-age, and what is long past left out.

    A file is known to be committed at the time of the first point at or after its sequence number, so it lives
    at most max-age / 64 longer than it should.
    """
    if max_age is None:
        return ()
    span_ms = max_age // _EPOCH_MS
    past = [point for point in times if point[1] < at_ms - 2 * span_ms]
    # The last of those stays: after a long pause only this point shows that older commits are past max-age.
    kept = [*past[-1:], *(point for point in times if point not in past)]
    # The newest point is always the latest commit; it replaces the one before until the distance is large enough.
    if len(kept) > 1 and kept[-1][1] - kept[-2][1] < span_ms // _TIMES:
        kept.pop()
    return (*kept, (sequence, at_ms))


def braked(dropped: int, live: int, brake: float) -> bool:
    """
    Whether one step would drop a larger share of the live files, or of their rows, than a person allowed.
    """
    return brake < 1.0 and dropped > brake * live
