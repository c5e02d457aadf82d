"""
What the log says of txlogs that a tick did not commit, or did not like: each once for as long as the process lives.
"""

import logging
from collections.abc import Iterable, Mapping

from bookkeeper.contract.file_names import LOOSE
from bookkeeper.contract.names import TxlogName
from bookkeeper.contract.table_log import TableLog
from bookkeeper.errors import BookkeeperError

_MISSING = (
    "It was deleted from pending/ before it was committed, and its rows are not in the table. If there is a copy, put "
    "it back into pending/ under its own name: it gets in once. Nothing but the bookkeeper may delete there."
)
_RENAME = (
    "Two txlogs of its run may name one file, which readers then see twice. Upgrade the writer, or let it call files "
    '<writer>-<incarnation>-<sequence>-...; then set file-names = "strict".'
)


class Report:
    """Logs what one table's ticks found."""

    def __init__(self, table: str) -> None:
        self.log = TableLog(logging.getLogger("bookkeeper"), table, "tick")
        #: held txlogs and the causes that the log has named, and writers whose files it has named
        self.reported: set[tuple[str, str]] = set()

    def held(self, held: Mapping[TxlogName, BookkeeperError]) -> None:
        """Txlogs that wait for a person or another release."""
        for name, why in held.items():
            if self._is_new(str(name), str(why)):
                self.log.warning("txlog held", action="hold", txlog=str(name), cause=str(why), hint=why.hint)

    def missing(self, names: Iterable[TxlogName]) -> None:
        """Txlogs that were passed over: there is none, and later ones of their run are in."""
        for name in names:
            self.log.warning("txlog missing", action="gap", txlog=str(name), hint=_MISSING)

    def loose_names(self, names: Iterable[TxlogName], files: Mapping[TxlogName, str]) -> None:
        """Txlogs with data files that are not called after them, and such a file of each; once for each writer."""
        for name in names:
            if self._is_new(name.writer, LOOSE):
                about = {"txlog": str(name), "file": files[name][:300], "hint": _RENAME}
                text = "data files of a writer are not called after their txlog"
                self.log.warning(text, action="file-names", **about)

    def _is_new(self, what: str, why: str) -> bool:
        known = (what, why) in self.reported
        self.reported.add((what, why))
        return not known
