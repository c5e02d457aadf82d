"""
What a run must have met to prove anything: each fault, each error, each recovery. What it never met is said.
"""

from collections import Counter

from tests.simulation.schedule import FAULTS

#: errors that actors meet, by class
ERRORS = (
    "CatalogUnavailable",
    "ClockBehind",
    "ClockDiffers",
    "CommitConflict",
    "Fenced",
    "HistoryChanged",
    "StorageUnavailable",
    "UnknownOutcome",
)
#: what the log says of recoveries and refusals
LOGS = (
    "a planned deletion is given up",
    "commit not confirmed",
    "consumed txlogs not deleted",
    "marks.json is behind the table",
    "retention held back",
    "rewrite rejected",
    "txlog rejected",
)
#: why snapshots are made
REASONS = ("append", "accept-rollback", "fold", "merge", "replay", "retention", "rewrite", "upserts")


def wanted() -> list[str]:
    """What is counted under these names must not be 0."""
    return [
        *(f"fault {fault}" for fault in FAULTS),
        "fault disk full",
        *(f"error {name}" for name in ERRORS),
        *(f"log {text}" for text in LOGS),
        "late arrivals",
        *(f"snapshots: {reason}" for reason in REASONS),
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
