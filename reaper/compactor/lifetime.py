"""
How long retention keeps a file: files are rewritten together only when they would go at about the same time.

A file goes when its *newest* row is past retention, so a file that mixes old and new rows keeps the old ones. Time is
therefore cut into spans of a sixteenth of what retention keeps, and no rewrite crosses spans: a row lives at most a
sixteenth longer than it would have. Spans are fixed, not counted from now: a file that is rewritten again and again
stays in its span. What goes within the next span is not worth rewriting.
"""

from bisect import bisect_left
from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from bookkeeper.config.settings import Retention
from bookkeeper.contract.retention_column import RetentionColumn
from reaper.compactor.choose_files import LiveFile

#: of what retention keeps
SHARE = 16
_MS = timedelta(milliseconds=1)
_EPOCH = datetime.fromtimestamp(0, UTC)

Times = tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class _Span:
    """Spans of `step`, and the value below which a file goes before the next span is over."""

    step: int
    ends: int


@dataclass(frozen=True, slots=True)
class Lifetime:
    """
    The spans of each rule of retention; None for a rule that is not set.

    `newest` are spans of the retention column, `commit` of the time of commits in milliseconds, `sequence` of sequence
    numbers, for keep-bytes.
    """

    newest: _Span | None = None
    commit: _Span | None = None
    sequence: _Span | None = None
    times: Times = ()

    def span(self, file: LiveFile) -> Hashable:
        """Equal for files that may be rewritten together."""
        # Of a file without a bound keep says nothing: one that mixes it with others would never go by keep.
        newest = file.newest // self.newest.step if self.newest and file.newest is not None else None
        commit = self._committed(file) // self.commit.step if self.commit else None
        return newest, commit, file.sequence_number // self.sequence.step if self.sequence else None

    def ends_soon(self, file: LiveFile) -> bool:
        """Whether retention drops the file within about one span."""
        if self.newest and file.newest is not None and file.newest < self.newest.ends:
            return True
        if self.commit and self._committed(file) < self.commit.ends:
            return True
        return self.sequence is not None and file.sequence_number < self.sequence.ends

    def _committed(self, file: LiveFile) -> int:
        # As retention has it: the time of the first point at or after its sequence number.
        at = bisect_left(self.times, (file.sequence_number,))
        return self.times[min(at, len(self.times) - 1)][1]


def lifetime(
    settings: Retention,
    column: RetentionColumn | None,
    times: Times,
    bytes_by_sequence: Mapping[int, int],
    now: datetime,
) -> Lifetime:
    """
    The spans of these settings; `times` are those of the marks, `bytes_by_sequence` those of all live files.
    """
    newest = commit = sequence = None
    if settings.keep is not None and column is not None:
        step = max(1, settings.keep // SHARE // column.unit)
        newest = _Span(step, (now - settings.keep - _EPOCH) // column.unit + step)
    if settings.max_age is not None and times:
        step = max(1, settings.max_age // SHARE // _MS)
        commit = _Span(step, (now - settings.max_age - _EPOCH) // _MS + step)
    if settings.keep_bytes is not None and bytes_by_sequence:
        sequence = _by_bytes(settings.keep_bytes, bytes_by_sequence)
    return Lifetime(newest, commit, sequence, times)


def _by_bytes(keep_bytes: int, bytes_by_sequence: Mapping[int, int]) -> _Span:
    """
    Spans of a power of two of sequence numbers, which hold about a sixteenth of keep-bytes: powers of two stay apart
    when the table grows and the step doubles.
    """
    least, most = min(bytes_by_sequence), max(bytes_by_sequence)
    wanted = (most - least + 1) * keep_bytes // max(1, SHARE * sum(bytes_by_sequence.values()))
    step = 1 << max(0, wanted.bit_length() - 1)
    left = keep_bytes - keep_bytes // SHARE
    for number in sorted(bytes_by_sequence, reverse=True):
        left -= bytes_by_sequence[number]
        if left < 0:
            return _Span(step, number + 1)
    return _Span(step, 0)
