"""
What a run must have met to prove anything: each fault, each error, each recovery. What it never met is said.
"""

from collections import Counter
from collections.abc import Callable
from typing import Any
from unittest import mock

from bookkeeper.errors import BookkeeperError
from tests.simulation.schedule import FAULTS

#: errors that parts raise, of whatever catches them
ERRORS = (
    "AlreadyExists",
    "CannotRewrite",
    "CatalogUnavailable",
    "Changed",
    "ClockBehind",
    "ClockDiffers",
    "CommitConflict",
    "CommitUnknown",
    "Fenced",
    "FoldOutdated",
    "HistoryChanged",
    "Missing",
    "PlaceExpired",
    "RolledBack",
    "StorageUnavailable",
    "UnknownOutcome",
)
#: why txlogs and rewrites lie in rejected/
REJECTED = (
    "FileNameRefused",
    "IncarnationPruned",
    "OutOfOrder",
    "PositionTaken",
    "ReplacedFilesChanged",
    "RewriteUnfit",
)
#: errors of bookkeeper/errors.py that no simulated world meets, by the reason; other tests meet them
LEFT_OUT = {
    "but for the forger writers are sound: their txlogs have no defect, and name files that are there": (
        "DeleteFileDiffers",
        "DuplicatePath",
        "EntryInvalid",
        "FileFormatDiffers",
        "FileMissing",
        "FileSizeDiffers",
        "NameMismatch",
        "NoDataFile",
        "NoTxlogFile",
        "PathRefused",
        "TooManyChannels",
        "ChannelTaken",
        "TooManyHoles",
        "TooManyWriters",
        "TxlogCorrupt",
        "TxlogTooLarge",
        "UnknownSpec",
        "WrongTable",
    ),
    "compactors are sound, have a lease, and leave alone what has delete files": (
        "DeletesNotApplied",
        "RewriteCorrupt",
        "RewriteOverlaps",
    ),
    "writers have the clock of the world": ("FromTheFuture",),
    "no program has another version": ("NewerVersion",),
    "nothing is large, and nothing is a link or a pipe": ("NotAFile", "NotMoved", "TooLarge", "Unfit"),
    "the table, its properties, its folder and its files stay; others add no overwrite": (
        "CannotRead",
        "CatalogMissing",
        "FileGone",
        "ManifestCorrupt",
        "MarksLost",
        "Overwritten",
        "PlaceRefused",
        "TableMissing",
        "TableUnusable",
        "WrongFolder",
    ),
    "writers ask for no columns, and never send so much that they must wait": (
        "Backpressure",
        "ColumnRefused",
        "SchemaRefused",
    ),
    "a consumer has one run at a time": ("ConsumerFenced",),
    "this machine's clock is the virtual one; only the storage's differs": ("ClockAhead",),
    "no source is copied": ("SourceUnavailable",),
    "no command line is tried": ("ConfigInvalid", "ExtraMissing", "NotPossible"),
}
#: what the log says of recoveries and refusals
LOGS = (
    "a planned deletion is given up",
    "clocks differ",
    "commit not confirmed",
    "consumed txlogs not deleted",
    "files are left alone for a while",
    "fold postponed",
    "fold given up",
    "marks.json is behind the table",
    "retention held back",
    "retention postponed",
    "rewrite rejected",
    "rewrites postponed",
    "storage clock unknown",
    "sweep postponed",
    "txlog rejected",
)
#: why snapshots are made; `replace` are rewrites of other programs
REASONS = (
    "append",
    "accept-rollback",
    "discard",
    "fold",
    "merge",
    "offsets",
    "replace",
    "replay",
    "retention",
    "rewrite",
    "upserts",
)
#: what other programs did
FOREIGN = (
    "append",
    "column",
    "delete",
    "expire",
    "move",
    "pin",
    "property",
    "rename",
    "retag",
    "rewrite",
    "rollback",
    "tag",
    "untag",
)


def wanted() -> list[str]:
    """What is counted under these names must not be 0."""
    return [
        *(f"fault {fault}" for fault in FAULTS),
        "fault disk full",
        "fault catalog refuses",
        *(f"met {name}" for name in ERRORS),
        *(f"rejected {name}" for name in REJECTED),
        *(f"log {text}" for text in LOGS),
        "late arrivals",
        *(f"snapshots: {reason}" for reason in REASONS),
        *(f"foreign {what}" for what in FOREIGN),
        "refs taken off by an expiry",
        "snapshots restored",
        "snapshots expired",
        "orphans",
        "rewrites published",
        "replayed",
        "rows consumed",
        "rows refused for good",
    ]


def report(counts: Counter[str]) -> str:
    """What was counted, and what was never met."""
    lines = [f"  {name:58} {count}" for name, count in sorted(counts.items()) if count]
    never = [name for name in wanted() if not counts[name]]
    lines.append(f"never met: {', '.join(never) or 'nothing of what is wanted'}")
    return "\n".join(lines)


def errors_counted(counts: Counter[str]) -> Any:
    """A patch that counts each error of ours when it is made, whatever becomes of it."""
    made: Callable[..., None] = BookkeeperError.__init__

    def init(error: BookkeeperError, *given: Any, **named: Any) -> None:
        counts[f"met {type(error).__name__}"] += 1
        made(error, *given, **named)

    return mock.patch.object(BookkeeperError, "__init__", init)
