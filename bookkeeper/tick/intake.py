"""
Reads, decodes and checks pending txlogs: each becomes good, bad, held, or stays unknown in this tick.

Each is read and decoded once per tick. Storage trouble never condemns one: it stays unknown.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pyiceberg.types import NestedField

from bookkeeper.contract import txlog as txlog_format
from bookkeeper.contract.names import TxlogName
from bookkeeper.contract.txlog import Txlog
from bookkeeper.contract.txlog_folder import REJECTED, Folder, Found
from bookkeeper.errors import (
    FileFormatDiffers,
    FileMissing,
    FileSizeDiffers,
    Hold,
    Missing,
    NoDataFile,
    NotAFile,
    NoTxlogFile,
    Reject,
    StorageUnavailable,
    TooLarge,
    TxlogCorrupt,
    Unfit,
    without_frames,
)
from bookkeeper.format.skim import EntrySummary
from bookkeeper.stores.locations import normal
from bookkeeper.stores.store import Head, Store
from bookkeeper.stores.together import together
from bookkeeper.tick.check_delete_files import Footer, footer_error, read_footers
from bookkeeper.tick.check_txlog import Rules, check, is_format


@dataclass
class Intake:
    """What is known of this tick's txlogs; a name in none of the three is unknown."""

    folder: Folder
    most_bytes: int
    #: the column whose upper bounds the commit will want to know of
    column: int | None = None
    #: bytes of each, as it was listed; of others at most `most_bytes` are read
    sizes: Mapping[TxlogName, int] = field(default_factory=dict)
    #: bytes of txlogs that were read before any listing showed them
    unlisted: dict[TxlogName, bytes] = field(default_factory=dict)
    decoded: dict[TxlogName, Txlog] = field(default_factory=dict)
    bad: dict[TxlogName, Reject] = field(default_factory=dict)
    held: dict[TxlogName, Hold] = field(default_factory=dict)
    #: txlogs that could not be read, or whose data files could not be looked up: storage trouble, by name
    troubles: dict[TxlogName, StorageUnavailable] = field(default_factory=dict)
    #: a data file of each txlog that has one which is not called after it
    loose: dict[TxlogName, str] = field(default_factory=dict)
    #: txlogs whose data files were looked up: None where nothing is wrong with them
    looked_up: dict[TxlogName, Reject | None] = field(default_factory=dict)
    #: of a keyed table, as the last check had them
    key_columns: Sequence[NestedField] = ()

    def read_unlisted(
        self, names: Sequence[TxlogName], most: int
    ) -> Mapping[TxlogName, Found | Missing | Unfit | StorageUnavailable]:
        """What is pending of names that no listing has shown; keeps the bytes, at most `most` of each, for `read`."""
        answers: dict[TxlogName, Any] = {}
        for name, answer in self.folder.read_unlisted(names, most).items():
            answers[name] = answer
            if isinstance(answer, tuple):
                answers[name], self.unlisted[name] = answer
        return answers

    def read(self, names: Sequence[TxlogName]) -> None:
        """Reads and decodes what was not yet, no more of each than was found; a storage error leaves a name unknown."""
        todo = [name for name in names if name not in self.decoded and name not in self.bad]
        known = {name: self.unlisted[name] for name in todo if name in self.unlisted} if self.unlisted else {}
        self.unlisted = {}  # what is not read in this tick is read again, when its turn comes
        rest = [name for name in todo if name not in known] if known else todo
        read = self.folder.read(rest, self.sizes, self.most_bytes)
        for name, data in [*known.items(), *read.items()]:
            if isinstance(data, bytes):
                self.troubles.pop(name, None)
                self._decode(name, data)
            elif isinstance(data, StorageUnavailable):
                self.troubles[name] = data
            elif isinstance(data, TooLarge):
                # What grows may take any memory; a published txlog is whole and never grows.
                self.bad[name] = TxlogCorrupt(f"it grew after it was found: a txlog is published whole ({data})")
            elif isinstance(data, NotAFile):
                self.bad[name] = NoTxlogFile(str(data))

    def _decode(self, name: TxlogName, data: bytes) -> None:
        try:
            self.decoded[name] = txlog_format.decode(name, data, self.most_bytes, self.column)
        except Exception as error:  # noqa: BLE001 - any error of one txlog: the others go on
            self._note(name, error)

    def check(self, rules: Rules, now_ms: int) -> None:
        """Moves what the table cannot take from good to bad; called again whenever the table was loaded again."""
        # What is wrong with its files no newer schema mends.
        of_files = {name: error for name, error in self.looked_up.items() if error is not None}
        self.bad = {name: error for name, error in self.bad.items() if name not in self.decoded} | of_files
        self.key_columns = rules.key_columns
        for name, txlog in self.decoded.items():
            try:
                if (loose := check(txlog, rules, now_ms)) is not None:
                    self.loose[name] = loose
            except Exception as error:  # noqa: BLE001 - as above
                self._note(name, error)

    def _note(self, name: TxlogName, error: Exception) -> None:
        if isinstance(error, Reject):
            self.bad[name] = without_frames(error)
        elif isinstance(error, Hold):
            self.held[name] = without_frames(error)
        else:
            self.held[name] = defect(error)

    def check_files(self, store: Store, names: Iterable[TxlogName]) -> None:
        """
        Checks that each data file and delete file of these is there, of the size and format its txlog says, and that
        each delete file has the keys it says; each once.
        """
        against = self.bad.keys() | self.held.keys() | self.looked_up.keys()
        todo = [self.decoded[name] for name in names if name in self.decoded and name not in against]
        keys = {txlog.name: _keys(store, txlog) for txlog in todo}
        heads: dict[str, Head | Missing | Unfit | StorageUnavailable] = {}
        footers: dict[str, Footer] = {}
        deletes = {key: row.size_bytes for txlog in todo for key, row in _deletes(txlog, keys[txlog.name])}
        # Both at once: a look at footers takes no round trip of its own.
        tasks: list[Callable[[], None]] = [
            lambda: heads.update(store.heads([key for named in keys.values() for key in named]))
        ]
        if deletes:
            tasks.append(lambda: footers.update(read_footers(store, deletes)))
        together(tasks, store.at_once)
        for txlog in todo:
            self._compare(txlog, keys[txlog.name], heads, footers)

    def _compare(
        self,
        txlog: Txlog,
        keys: Sequence[str],
        heads: Mapping[str, Head | Missing | Unfit | StorageUnavailable],
        footers: Mapping[str, Footer],
    ) -> None:
        for file, key in zip(txlog.every_row, keys, strict=True):
            error = self._wrong_with(file, heads[key], footers.get(key))
            if isinstance(error, StorageUnavailable):
                self.troubles[txlog.name] = error
                return
            if error is not None:
                self.looked_up[txlog.name] = self.bad[txlog.name] = error
                return
        self.looked_up[txlog.name] = None
        self.troubles.pop(txlog.name, None)

    def _wrong_with(
        self, file: EntrySummary, head: Head | Missing | Unfit | StorageUnavailable, footer: Footer | None
    ) -> Reject | StorageUnavailable | None:
        if isinstance(head, StorageUnavailable):
            return head
        wrong = file_error(file, head, "the txlog")
        if wrong is not None or footer is None or not isinstance(head, Head) or head.start is None:
            return wrong  # without the right to read, nothing is known of what is in a file
        if isinstance(footer, StorageUnavailable):
            return footer
        assert file.entry is not None
        return footer_error(file.entry, footer, self.key_columns)

    def look_for(self, names: Iterable[TxlogName]) -> tuple[frozenset[TxlogName], frozenset[TxlogName]]:
        """Of names that a listing did not show: those that are missing (a definite 404), and those in rejected/."""
        missing, rejected = set[TxlogName](), set[TxlogName]()
        for name in names:
            try:
                if not self.folder.exists(name):
                    (rejected if self.folder.exists(name, REJECTED) else missing).add(name)
            except StorageUnavailable as error:
                self.troubles[name] = error
        return frozenset(missing), frozenset(rejected)

    @property
    def good(self) -> Mapping[TxlogName, Txlog]:
        """Txlogs with nothing known against them."""
        against = self.bad.keys() | self.troubles.keys() | self.held.keys()
        return {name: txlog for name, txlog in self.decoded.items() if name not in against}


def file_error(file: EntrySummary, head: Head | Missing | Unfit, named_by: str) -> Reject | None:
    """
    What is wrong with a data file as the storage has it: missing, no file, or of another size or format than it is said
    to be.
    """
    if isinstance(head, Missing):
        return FileMissing(f"{file.path[:300]} does not exist")
    if isinstance(head, Unfit):
        return NoDataFile(str(head)[:700])
    if head.size != file.size_bytes:
        return FileSizeDiffers(f"{file.path[:300]} has {head.size} bytes, {named_by} says {file.size_bytes}")
    if not is_format(file.file_format, head.start):
        wrong = f"{file.path[:300]} begins with {head.start!r}, which no {file.file_format} file does"
        return FileFormatDiffers(wrong)
    return None


def files_error(store: Store, txlog: Txlog) -> Reject | StorageUnavailable | None:
    """
    What is wrong with the first file of a txlog that is not as it says.
    """
    keys = _keys(store, txlog)
    heads = store.heads(keys)
    for file, key in zip(txlog.every_row, keys, strict=True):
        head = heads[key]
        wrong = head if isinstance(head, StorageUnavailable) else file_error(file, head, "the txlog")
        if wrong is not None:
            return wrong
    return None


def defect(error: Exception) -> Hold:
    """
    Why a txlog that makes our code fail is held: its writer cannot mend that, and the other txlogs go on.
    """
    held = Hold(f"a defect of the bookkeeper: {error!r}", hint="Report it, or move the txlog away.")
    held.__cause__ = error
    return held


def _deletes(txlog: Txlog, keys: Sequence[str]) -> Iterable[tuple[str, EntrySummary]]:
    """Its delete files, each with its key, given the keys of all of its files."""
    return zip(keys[len(txlog.rows) :], txlog.every_row[len(txlog.rows) :], strict=True)


def _keys(store: Store, txlog: Txlog) -> list[str]:
    root = normal(store.url).rstrip("/") + "/"
    paths = txlog.every_path
    if not all(path.startswith(root) for path in paths):
        raise AssertionError("paths are checked before they are looked up")
    return [path[len(root) :] for path in paths]
