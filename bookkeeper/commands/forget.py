"""
Forgets writers: their positions and offsets at once, and the marks of their runs that are idle, in one commit. Or the
offset of one channel of a slot.

A crash before the commit leaves everything, after it marks.json is mended by the next load. The commit holds only
against the view whose marks were read: a writer that commits in between makes it a conflict.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from fnmatch import fnmatchcase

from bookkeeper.config.settings import Table
from bookkeeper.config.units import epoch_ms, format_duration
from bookkeeper.contract import txlog
from bookkeeper.contract.marks import Marks
from bookkeeper.contract.names import TxlogName
from bookkeeper.contract.txlog_folder import PENDING, REJECTED, Folder
from bookkeeper.errors import BookkeeperError, Missing, NotPossible, Retry

_GLOB = frozenset("*?[")
_LISTED = "`bookkeeper writers` lists them."


@dataclass(frozen=True, slots=True)
class Forgetting:
    """The marks without what is `forgotten`, and why other writers are `kept`."""

    marks: Marks
    forgotten: Sequence[str]
    kept: Mapping[str, str]


def forget(
    marks: Marks, folder: Folder, table: Table, patterns: Sequence[str], idle: timedelta | None, now: datetime
) -> Forgetting:
    """
    `marks` without the writers that these names and globs say, all of them where there are none; of these with `idle`
    only those whose last commit is that long ago.

    `marks` are read before: what was pending then and is not now was committed meanwhile, and the commit conflicts.
    Raises NotPossible when a writer that is named cannot be forgotten, or none can.
    """
    pending = [item.name for item in folder.pending()]
    rejected = [item.name for item in folder.rejected()]
    chosen = _chosen(marks, patterns)
    if idle is not None:
        before = epoch_ms(now - idle)
        chosen = [writer for writer in chosen if marks.seen_ms(writer) < before]
        if not chosen:
            raise NotPossible(f"no such writer was idle for {format_duration(idle)}", hint=_LISTED)
    kept = dict[str, str]()
    waiting, aside = {name.writer for name in pending}, {name.writer for name in rejected}
    for writer in chosen:
        if writer in waiting:
            kept[writer] = "it has pending txlogs: stop it, let them drain"
        elif writer in aside and marks.writer(writer).position is not None:
            kept[writer] = "it has rejected txlogs, which fit no other position: replay them, or delete them there"
        elif writer not in patterns and (count := len(marks.writer(writer).offsets)):
            kept[writer] = f"it is a slot, and would read its {count} channels from their beginning: name it"
    forgotten = [writer for writer in chosen if writer not in kept]
    after = marks.forgotten(forgotten, epoch_ms(now))
    # A rejected txlog may be replayed: then the marks say what came after it.
    dropped = {writer for writer in forgotten if writer not in aside}
    after = after.pruned(epoch_ms(now - table.marks_keep), rejected, pending, dropped)
    for writer in forgotten:
        if after.writers.get(writer) == marks.writers[writer]:
            kept[writer] = (
                "it has no position to forget, and no mark of a run from the future; its marks go "
                f"{format_duration(table.marks_keep)} after its last commit"
            )
    named = [writer for writer in patterns if writer in kept]
    gone = [writer for writer in forgotten if writer not in kept]
    if named or not gone:
        what = "; ".join(f"writer {writer}: {kept[writer]}" for writer in (named or list(kept))[:10])
        raise NotPossible(f"nothing is forgotten: {what or 'no writer is known'}", hint=_LISTED)
    return Forgetting(after, gone, kept)


def forget_channel(marks: Marks, folder: Folder, table: Table, writer: str, channel: str) -> Marks:
    """
    `marks` without the offset of this channel: a slot that reads it again begins anew.

    Refused while a txlog of the writer in pending/ or rejected/ names the channel, or cannot be read: once it is in,
    the offset would be back. `marks` are read before, as for `forget`. Raises NotPossible, StorageUnavailable.
    """
    if writer not in marks.writers:
        raise NotPossible(f"writer {writer} is not known", hint=_LISTED)
    if channel not in marks.writer(writer).offsets:
        shown = f"{writer} has no offset of channel {channel[:200]}"
        raise NotPossible(shown, hint="marks.json in the txlog folder has all offsets.")
    for place, listed in ((PENDING, folder.pending()), (REJECTED, folder.rejected())):
        for name in [item.name for item in listed if item.name.writer == writer]:
            if (why := _names(folder, table, place, name, channel)) is not None:
                hint = "Stop the slot and let its txlogs drain; replay what is rejected, or delete it there."
                raise NotPossible(f"nothing is forgotten: {place}{name} {why}", hint=hint)
    return marks.without_channel(writer, channel)


def _names(folder: Folder, table: Table, place: str, name: TxlogName, channel: str) -> str | None:
    """Why the txlog may bring the offset of the channel back; None where it does not."""
    try:
        data = folder.store.read(f"{place}{name}", table.max_txlog_bytes)
        found = txlog.decode(name, data, table.max_txlog_bytes)
    except Missing:
        return None
    except Retry:
        raise
    except BookkeeperError as error:
        return f"cannot be read, so it may name {channel}: {error}"
    return f"names {channel}" if channel in found.offsets else None


def _chosen(marks: Marks, patterns: Sequence[str]) -> list[str]:
    unknown = [name for name in patterns if not _GLOB & {*name} and name not in marks.writers]
    if unknown:
        raise NotPossible(f"writer {', '.join(unknown[:10])} is not known", hint=_LISTED)
    globs = [name for name in patterns if _GLOB & {*name}]
    exact = frozenset(patterns)
    found = [
        name
        for name in sorted(marks.writers)
        if not patterns or name in exact or any(fnmatchcase(name, glob) for glob in globs)
    ]
    if not found:
        raise NotPossible(f"no writer is named like {', '.join(globs[:10]) or 'that'}", hint=_LISTED)
    return found


def reason(forgotten: Sequence[str]) -> str:
    """
    What the summary of the commit says: at most ten names.
    """
    more = f" and {len(forgotten) - 10} more" if len(forgotten) > 10 else ""
    return f"forget {', '.join(forgotten[:10])}{more}"
