"""
Every error that a user can meet, as a tree by what the loop does next.

    BookkeeperError
    ├── Retry     leave the txlog; the next tick tries again (many ticks in a row: not ready)
    │   ├── StorageUnavailable
    │   ├── CatalogUnavailable ── CatalogMissing
    │   ├── CommitConflict ── FoldOutdated
    │   ├── CommitUnknown
    │   ├── SourceUnavailable      of a writer
    │   └── ClockBehind, ClockAhead
    ├── Reject    this txlog can never be committed; move it to rejected/ and go on
    │   ├── TxlogCorrupt, NoTxlogFile, TxlogTooLarge, NameMismatch      the txlog itself
    │   ├── WrongTable, UnknownSpec                                     it was written for something else
    │   ├── EntryInvalid, PathRefused, DuplicatePath, FileNameRefused   an entry of it
    │   ├── FileMissing, FileSizeDiffers, FileFormatDiffers, NoDataFile  a data file it names
    │   ├── DeleteFileDiffers                                           a delete file it names
    │   ├── PositionTaken, OutOfOrder, IncarnationPruned, FromTheFuture  its place in the order
    │   └── TooManyWriters, TooManyChannels, ChannelTaken               the room in the marks
    ├── RewriteRejected   this rewrite can never be committed; the compactor plans anew from the table
    │   ├── RewriteCorrupt, RewriteUnfit      the rewrite itself, or a new file of it
    │   ├── ReplacedFilesChanged              a file that it replaces is not live as it says
    │   ├── DeletesNotApplied                 a delete file that it did not apply, or that is gone
    │   └── RewriteOverlaps                   an earlier rewrite replaces the same file
    ├── ColumnRefused     this request for a column is not granted; its writers treat the field as unknown
    ├── Hold      leave the txlog pending and say so; a person must act
    │   └── NewerVersion, NotMoved, TooManyHoles
    ├── Halt      commit nothing to this table until a person decides; other tables go on
    │   ├── HistoryChanged, MarksLost, WrongFolder
    │   └── TableUnusable ── TableMissing
    ├── Refused   the command is not carried out
    │   ├── ConfigInvalid, ExtraMissing
    │   └── NotPossible ── PlaceRefused, PlaceExpired, RolledBack, Overwritten, FileGone: of a consumer
    ├── ManifestCorrupt   of the table: no file is dropped or deleted while it cannot be read
    ├── storage facts, caught where they are expected
    │   ├── Missing, AlreadyExists, Changed
    │   ├── CannotRead
    │   └── Unfit ── TooLarge, NotAFile
    └── of a writer
        ├── Fenced ── ConsumerFenced: the same of a consumer
        └── Backpressure, SchemaRefused, UnknownOutcome
"""

from datetime import timedelta
from typing import TypeVar

E = TypeVar("E", bound=BaseException)


class BookkeeperError(Exception):
    """
    Root of every error a user can meet; `hint` says what to do.
    """

    hint = ""

    def __init__(self, message: str = "", *, hint: str = "") -> None:
        super().__init__(message or (type(self).__doc__ or "").strip())
        self.hint = hint or type(self).hint


class Retry(BookkeeperError):
    """Transient trouble: nothing is lost, the next tick tries again, after `pause` where that is longer."""

    pause: timedelta | None = None


class StorageUnavailable(Retry):
    """The storage did not answer."""

    hint = "Check that the storage is reachable and that the credentials are valid. The daemons try again."


class CatalogUnavailable(Retry):
    """The catalog did not answer."""

    hint = "Check that the catalog is reachable, and what [catalog] says. The daemons try again."


class CatalogMissing(CatalogUnavailable):
    """The catalog's file is not there."""

    hint = (
        "Is its disk mounted? Was it moved? Put it back, and everything continues. If it is lost: "
        "`bookkeeper recover-catalog` registers the tables again from their own metadata files."
    )


class CommitConflict(Retry):
    """Another process committed to the table in between."""


class FoldOutdated(CommitConflict):
    """The table has changed since the fold was planned: it is planned anew."""


class CommitUnknown(Retry):
    """The catalog's answer to a commit was lost; the marks show whether it was applied."""


class SourceUnavailable(Retry):
    """The source that a writer reads did not answer."""

    hint = "Check that it is reachable and that the credentials are valid. A writer that runs tries again."


class ClockBehind(Retry):
    """
    This machine's clock is more than 30 s behind the table's last update, or differs from the storage's; or the machine
    slept for hours in a tick.
    """

    hint = (
        "Synchronise the clock (NTP); nothing is committed until it has caught up. If this clock is right, and the "
        "table was stamped by one that was ahead: bookkeeper accept-clock."
    )


class ClockAhead(Retry):
    """This machine's clock is more than an hour ahead of the storage's."""

    hint = "Synchronise the clock (NTP): a commit from the future would stop every other commit until then."


class Reject(BookkeeperError):
    """This txlog can never be committed."""


class TxlogCorrupt(Reject):
    """The txlog is not a complete Avro file of manifest entries."""

    hint = "The writer must write these rows again: new data files, and a txlog under a new sequence."


class NoTxlogFile(Reject):
    """The name of a txlog belongs to a symbolic link, a pipe, a socket or a device."""

    hint = "It was removed; the target of a link was not touched. The writer must publish a regular file."


class TxlogTooLarge(Reject):
    """The txlog is larger than max-txlog-bytes."""

    hint = "Publish fewer data files per txlog, or raise max-txlog-bytes."


class NameMismatch(Reject):
    """The header and the file name of the txlog disagree."""


class WrongTable(Reject):
    """The txlog was written for another table."""

    hint = "Point the writer at this table's folder and let it read card.json again."


class UnknownSpec(Reject):
    """The txlog names a schema or partition spec the table does not have."""


class EntryInvalid(Reject):
    """An entry of the txlog is not allowed in an append."""

    hint = "Correct the writer: it must write these rows again, into new files, with correct entries."


class PathRefused(Reject):
    """A data file lies outside the table's data path."""


class FileNameRefused(Reject):
    """The name of a data file does not say that it belongs to this txlog."""

    hint = (
        "A data file belongs to one txlog, and is called <writer>-<incarnation>-<sequence>-... after it. Write these "
        "rows again, into new files."
    )


class DuplicatePath(Reject):
    """A txlog names a data file twice; earlier versions also rejected what an earlier txlog named."""


class FileMissing(Reject):
    """A data file named by the txlog does not exist."""

    hint = "Put the file back if you have it, then replay the txlog; else the writer must write these rows again."


class NoDataFile(Reject):
    """A data file that the txlog names is a symbolic link, lies behind one, or is a pipe, a socket or a device."""

    hint = (
        "No link below a table's location is followed. Write these rows again, into regular files below the table's "
        "data path."
    )


class FileSizeDiffers(Reject):
    """A data file has another size than its entry in the txlog."""


class FileFormatDiffers(Reject):
    """A data file does not begin like a file of the format in the txlog."""

    hint = "The writer must write these rows again, into new files of the format that it names."


class DeleteFileDiffers(Reject):
    """A delete file has other columns, types or rows than its entry in the txlog and the keys of the table say."""

    hint = "The writer must publish these rows again: a delete file has the key columns alone, without nulls."


class PositionTaken(Reject):
    """The txlog continues from a position that is not the writer's committed position."""

    hint = "Another run of this writer got there first. Restart the writer: it continues from the committed position."


class OutOfOrder(Reject):
    """A later txlog of its writer is in the keyed table, so its rows would replace newer ones."""

    hint = "It cannot be replayed. If its rows are the newest of their keys, write them again with the running writer."


class IncarnationPruned(Reject):
    """The txlog is older than the marks that are kept, so it may be in the table already."""

    hint = "If `bookkeeper verify` shows that its files are not in the table: bookkeeper replay --force."
    #: of a keyed table: there a replay could bring old versions of rows back
    keyed_hint = (
        "Rows of it that are the newest of their keys must be written again. `bookkeeper discard` of its run, up to "
        "its sequence, lets later txlogs of its writer in."
    )


class TooManyWriters(Reject):
    """The marks of the table have no room for another writer, or for so long a position."""

    hint = (
        "Forget writers that will not come back: bookkeeper forget --idle 30d. Then replay the txlog. Give writers "
        "stable names, or raise max-writers."
    )


class TooManyChannels(Reject):
    """The marks of the table have no room for the offsets of another channel."""

    hint = (
        "Forget channels that will not come back: bookkeeper forget WRITER --channel CHANNEL. Then restart the slot. "
        "Or give some of its channels another table."
    )


class ChannelTaken(Reject):
    """Another slot of the table reads the channel: its rows would be in the table twice."""

    hint = (
        "All instances of a source have the same name and number of slots: bookkeeper rehash changes the number. Where "
        "the other slot has stopped for good: bookkeeper forget WRITER --channel CHANNEL."
    )


class FromTheFuture(Reject):
    """The txlog was created more than an hour ahead of the bookkeeper's clock."""

    hint = "Synchronise the writer's clock (NTP), then replay the txlog."


class ManifestCorrupt(BookkeeperError):
    """A manifest or a manifest list of the table does not decode."""

    hint = (
        "No file is dropped or deleted while it cannot be read. If other engines still read the table, Spark can write "
        "its manifests anew: CALL <catalog>.system.rewrite_manifests('<namespace>.<table>')."
    )


class RewriteRejected(BookkeeperError):
    """This rewrite can never be committed."""

    hint = "Nothing is lost: its files stay as they are, and the compactor plans anew from the table."


class RewriteCorrupt(RewriteRejected):
    """The rewrite is not a complete Avro file of ADDED and DELETED manifest entries of one partition."""


class RewriteUnfit(RewriteRejected):
    """The rewrite is not one of this table, or a new file of it is not one that the table takes."""


class ReplacedFilesChanged(RewriteRejected):
    """A file that the rewrite replaces is not live any more, or not as the rewrite says."""


class DeletesNotApplied(RewriteRejected):
    """Deleted rows would come back: the rewrite did not apply a delete file that applies to a file it replaces."""


class RewriteOverlaps(RewriteRejected):
    """An earlier rewrite replaces the same file."""


class ColumnRefused(BookkeeperError):
    """This request for a column is not granted."""

    hint = "Have the column added by hand (ALTER TABLE), or leave the field out; then load the bad lines again."


class Hold(BookkeeperError):
    """The txlog stays pending until a person acts."""


class NewerVersion(Hold):
    """The txlog has a newer format version than this bookkeeper knows."""

    hint = "Upgrade the bookkeeper first, then the writers; the txlog waits until then."


class NotMoved(Hold):
    """The txlog is refused, and too large for the storage to move it to rejected/."""

    hint = "Delete it, or move it out of pending/; until then it is not read."


class TooManyHoles(Hold):
    """An incarnation has more than 64 holes."""

    hint = "Replay its rejected txlogs, or put the missing ones back. To give them up: bookkeeper discard."


class Halt(BookkeeperError):
    """An invariant does not hold: this table is halted until a person decides."""


class HistoryChanged(Halt):
    """The snapshot that the marks came with is no ancestor of main: the table was rolled back."""

    hint = "If that was intended: bookkeeper accept-rollback. The rows of the abandoned snapshots are not in the table."


class MarksLost(Halt):
    """Snapshots show that marks were committed, but the table has no bookkeeper.marks property."""

    hint = "bookkeeper restore-marks puts it back from marks.json or from an older metadata file."


class WrongFolder(Halt):
    """The txlog folder belongs to another table."""

    hint = (
        "Was the table created anew after its catalog was lost? `bookkeeper recover-catalog` shows the table that the "
        "folder knows. Otherwise give this table a folder of its own (`folder` in its config), or move this one away "
        "and run init."
    )


class TableUnusable(Halt):
    """The table cannot be used as a queue."""


class TableMissing(TableUnusable):
    """The catalog does not know the table."""

    hint = "Was the catalog lost or replaced, or the table dropped? `bookkeeper status` says what to do."


class Refused(BookkeeperError):
    """The command was not carried out."""


class ConfigInvalid(Refused):
    """The configuration is not valid."""

    hint = "docs/configure.md lists every key with its default and the allowed values."


class NotPossible(Refused):
    """The command cannot be carried out in this state."""


class PlaceRefused(NotPossible):
    """The stored place is not one of this consumer and this table."""

    hint = "Give the consumer another name, or the output that belongs to this table."


class PlaceExpired(NotPossible):
    """Rows after the place may be gone: the snapshots that added them have expired."""

    hint = (
        "Before batches() call catch_up(): it reads what of these rows is live, if no rewrite mixed it with others. "
        "skip_lost() goes on with the oldest snapshot that is kept and says how many live rows it passes over; "
        "restart() reads all rows again. `tail` has --lost. Raise max-hold if the consumer must rest for longer."
    )


class RolledBack(NotPossible):
    """The place is not on main: rows were read that the table does not hold any more."""

    hint = (
        "Remove the rows of the abandoned snapshots from the output if they must not stay. Then call skip_lost() "
        "before batches(): it goes on after the newest snapshot that the place and main have in common."
    )


class Overwritten(NotPossible):
    """An overwrite snapshot took rows away and added others in one commit; no consumer can tell which are new."""

    hint = "Open the consumer with skip_overwrites=True to pass over it: the rows that it added are not read then."


class FileGone(NotPossible):
    """A file of a snapshot that is kept is not in the storage: its rows are lost."""

    hint = "Put the file back if there is a copy. `bookkeeper verify` tells what else is missing."


class ExtraMissing(Refused):
    """An optional dependency is not installed."""


class Missing(BookkeeperError):
    """The storage answered that there is nothing under this key."""


class AlreadyExists(BookkeeperError):
    """Another object has this key already."""


class Changed(BookkeeperError):
    """The object is not the version that was expected."""


class Unfit(BookkeeperError):
    """
    An object that must not be read, so its content is unknown; `tag` is the tag of this version of it.
    """

    def __init__(self, message: str, tag: str = "") -> None:
        super().__init__(message)
        self.tag = tag


class TooLarge(Unfit):
    """The object has more bytes than may be read."""


class NotAFile(Unfit):
    """A symbolic link, pipe, socket or device lies where a file is expected; it is neither followed nor opened."""


class CannotRead(BookkeeperError):
    """A Parquet file is damaged, too large for the memory, or of columns that are not understood."""


class Fenced(BookkeeperError):
    """Another run of this writer took over."""

    hint = "Stop this run; the other one continues from the committed position."
    #: the error for which a txlog of the run was rejected, such as PositionTaken; "" where none was
    rejected = ""
    #: the channels of that txlog, of a slot
    channels: frozenset[str] = frozenset()


class ConsumerFenced(Fenced):
    """Another run of this consumer has taken over, or has moved its place."""

    hint = "Stop this run; the other one goes on from the place. What this transaction wrote must be rolled back."


class Backpressure(BookkeeperError):
    """Too many txlogs are pending: the bookkeeper is behind or not running."""

    hint = "Check `bookkeeper status`; raise pending-limit only if the bookkeeper keeps up."


class SchemaRefused(BookkeeperError):
    """The rows do not fit the table's schema."""


class UnknownOutcome(BookkeeperError):
    """A publish may or may not have reached the storage; this run publishes nothing more."""

    hint = "Restart the writer: it finds out from pending/ and marks.json where to continue."


def without_frames(error: E) -> E:
    """
    The error without the stack frames of it and its causes, which would keep a whole txlog in memory.
    """
    one: BaseException | None = error
    while one is not None:
        one.__traceback__ = None
        one = one.__cause__ or one.__context__
    return error
