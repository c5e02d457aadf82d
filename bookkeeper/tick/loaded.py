"""
The table as a tick knows it: as it was loaded last, or as our last commit left it.
"""

import logging
from datetime import datetime, timedelta

from bookkeeper.config.maintained import refuse_keys
from bookkeeper.config.settings import Table
from bookkeeper.contract.keyed import PROPERTY as KEYED
from bookkeeper.contract.table_log import TableLog
from bookkeeper.contract.txlog_folder import Folder
from bookkeeper.ledger.ledger import Ledger
from bookkeeper.ledger.load import load
from bookkeeper.ledger.make_keyed import mend_delete_spec
from bookkeeper.ledger.marks_publisher import MarksPublisher
from bookkeeper.ledger.view import View
from bookkeeper.tick.card import card_of, is_strict
from bookkeeper.tick.check_txlog import Rules, rules_of


class LoadedTable:
    """Loads one table, with its card and marks.json; a view is kept for `reload`, since others may commit too."""

    def __init__(
        self, settings: Table, folder: Folder, ledger: Ledger, publisher: MarksPublisher, reload: timedelta
    ) -> None:
        self.settings, self.folder, self.ledger = settings, folder, ledger
        self.publisher, self.reload = publisher, reload
        self.log = TableLog(logging.getLogger("bookkeeper"), settings.name, "tick")
        #: None: not known, as after a commit whose outcome is unknown
        self.view: View | None = None
        self.loaded_at: datetime | None = None
        #: whether each data file must be called after its txlog
        self.strict_names = False

    def forget(self) -> None:
        """The table is loaded again before anything else is planned."""
        self.view = None

    def rules(self, view: View) -> Rules:
        """What a txlog must be like for the table of `view` to take it."""
        return rules_of(view, self.strict_names)

    def refresh(self, now: datetime) -> tuple[View, bool]:
        """
        The view, and whether it was loaded just now. Raises Retry, Halt.

        When it was forgotten, what the folder remembers of card.json and marks.json is forgotten as well.
        """
        known = self.view
        if known is None:
            self.folder.forget()
        elif self.loaded_at is not None and abs(now - self.loaded_at) < self.reload:
            return known, False
        self.view = None  # until the load has been seen through
        view, card, marks_copy = load(self.ledger, self.folder, known=known)
        if KEYED in view.metadata.properties:
            refuse_keys(self.settings)
        if mend_delete_spec(view.table):
            self.log.warning("the delete spec was gone or does not fit; another is used", action="keys")
            view, card, marks_copy = load(self.ledger, self.folder, known=known)
        self.publisher.compare(view, marks_copy)
        if self.folder.write_card(card_of(view, self.settings, card.folder, card.file_names)):
            self.log.info("card changed", action="card")
        self.strict_names = is_strict(self.settings, card)
        self.view, self.loaded_at = view, now
        return view, True
