"""
The card that a run writes by, and the newer one that it writes by after its next publish.
"""

import logging
from collections.abc import Callable, Mapping
from typing import Any

from bookkeeper.contract.card import Card
from bookkeeper.contract.txlog_folder import NO_CARD, Folder
from bookkeeper.errors import Missing, NotPossible, StorageUnavailable, WrongFolder
from bookkeeper.stores.local_roots import of_table
from bookkeeper.stores.locations import normal
from bookkeeper.stores.store import Store
from writers.files.write_spec import WriteSpec, check_same_table, may_share_txlog
from writers.retries import retry
from writers.timing import Wait

log = logging.getLogger(__name__)


class KeysChanged(NotPossible):
    """The table was append-only and is keyed now, or the reverse: another run can go on."""


class CardFollower:
    """
    Reads card.json, and says what follows for data files (`spec`) and where they go (`store`).

    `newer` is a card that was read and is not written by: unpublished rows cannot share a txlog with it, or the table
    has become keyed or append-only since.
    """

    def __init__(
        self, folder: Folder, stores: Callable[[str], Store], writer: str, wait: Wait, card: Card | None = None
    ) -> None:
        """`card` is what is written by first, where it was read before; it may be an old one."""
        self._folder, self._stores, self._writer, self._wait = folder, stores, writer, wait
        try:
            card = card or folder.card()
        except Missing as exc:
            hint = "Give the folder that `bookkeeper init` printed. If it was moved away: put it back, make no new one."
            raise NotPossible(f"there is no card.json in {folder.store.url}", hint=hint) from exc
        self._use(card)

    def _use(self, card: Card, before: WriteSpec | None = None) -> None:
        self.newer: Card | None = None
        self.spec = WriteSpec.of(card, before)
        normal(card.data_path)
        self.store = of_table(self._stores(card.data_path), card.location)

    @property
    def card(self) -> Card:
        """The card that is written by."""
        return self.spec.card

    def check_keys(self) -> None:
        """Raises KeysChanged where the table was append-only and is keyed now, or the reverse."""
        if self.newer is not None and (self.newer.keyed is None) != (self.card.keyed is None):
            hint = "publish() what was written so far, then open a new Writer."
            raise KeysChanged(f"{self.card.table} was append-only and has keys now, or the reverse", hint=hint)

    def newest(self) -> Card:
        """The card as it is now; the one that is written by where it cannot be read."""
        try:
            return self._folder.card()
        except (StorageUnavailable, Missing) as exc:
            log.warning("card not readable", extra={**self._facts("card"), "cause": str(exc)})
            return self.card

    def before_publish(self, rows: int) -> Card:
        """The card for a publish of `rows`: where there is no card, no bookkeeper would find the txlog."""
        url = self._folder.store.url
        try:
            card = retry(self._folder.card, self._wait)
        except Missing as exc:
            message = f"{url} has no card.json any more; {rows} rows are not published"
            hint = f"They are kept: put the folder back, then publish again. {NO_CARD}"
            raise WrongFolder(message, hint=hint) from exc
        check_same_table(self.card, card)
        return card

    def adopt(self, card: Card, rows: int) -> None:
        """Write by `card` from now on; after the next publish where unpublished `rows` cannot share a txlog with it."""
        self.newer = None
        if card == self.card:
            return
        check_same_table(self.card, card)
        rekeyed = (card.keyed is None) != (self.card.keyed is None)
        if rekeyed or (rows > 0 and not may_share_txlog(self.card, card)):
            self.newer = card
            return
        self._use(card, self.spec)
        log.info("card changed", extra={**self._facts("adopt"), "rows": rows})

    def _facts(self, action: str) -> Mapping[str, Any]:
        return {"action": action, "table": self.card.table, "writer": self._writer}
