"""
The offsets of a run: what its channels have reached, and what its next txlog says of them.

A run becomes a slot with the first offsets that it is given. What a crash leaves: offsets that were not published are
lost together with their rows, and the source is read again from `reached`.
"""

from collections.abc import Mapping
from datetime import datetime, timedelta

from bookkeeper.contract import offsets as offsets_format
from bookkeeper.contract.card import Card
from bookkeeper.contract.committed_txlogs import merged
from bookkeeper.contract.names import TxlogName
from bookkeeper.contract.offsets import MOST_CHANNELS, MOST_IN_TXLOG, Offsets
from bookkeeper.contract.txlog import WITH_OFFSETS
from bookkeeper.contract.txlog_folder import Folder
from bookkeeper.errors import NotPossible, TooManyChannels
from writers.timing import Clock, Wait, retry

#: offsets that moved over nothing wait this long for rows: each txlog without rows is a commit
ALONE = timedelta(hours=1)
_EACH = "Give offsets with each write; {} where the offset of these rows follows. publish() first what needs none."


class Slot:
    """
    `reached` is what the channels have reached at the end of the writer's chain, `waiting` what the next txlog says.
    """

    def __init__(self, folder: Folder, name: str, reached: Offsets, clock: Clock, wait: Wait) -> None:
        self.reached, self.waiting = reached, dict[str, str]()
        self._folder, self._name, self._clock, self._wait = folder, name, clock, wait
        #: whether this run was given offsets; whether rows came with none of them
        self.used = self.lacks_offsets = False
        self._published_at: datetime = clock()

    @property
    def due_alone(self) -> bool:
        """Whether offsets have waited for rows for so long that a txlog without rows may say them."""
        return bool(self.waiting) and self._clock() - self._published_at >= ALONE

    def check(self, given: Mapping[str, str] | None, position: bytes | None, rows: int) -> None:
        """
        Before rows are taken, or published: raises ValueError for offsets out of bounds, NotPossible where the run
        cannot take these now. `rows` are unpublished ones.
        """
        if given is None and not self.used:
            return
        if position is not None:
            raise ValueError("offsets or a position: the position of a run with offsets is made by the writer")
        offsets_format.check(given or {})
        if rows and not self.used:
            raise NotPossible(f"{rows} unpublished rows were written without offsets", hint=_EACH)
        if len({**self.waiting, **(given or {})}) > MOST_IN_TXLOG:
            hint = "publish() what was written so far, then go on."
            raise NotPossible(f"a txlog has offsets of at most {MOST_IN_TXLOG} channels", hint=hint)
        self._check_room(given or {})

    def check_rows(self, given: Mapping[str, str] | None) -> None:
        """Before rows are taken: raises NotPossible for rows without offsets in a run that has them."""
        if given is None and self.used:
            raise NotPossible("this run has offsets, and these rows come without", hint=_EACH)

    def _check_room(self, given: Mapping[str, str]) -> None:
        """Asks the marks where channels are new, as the bookkeeper will: a txlog with one too many is rejected."""
        if given.keys() <= self.reached.keys() | self.waiting.keys():
            return
        copy = retry(self._folder.marks, self._wait)
        slots = {} if copy is None else {name: {*known.offsets} for name, known in copy.marks.writers.items()}
        slots.setdefault(self._name, set()).update(self.reached, self.waiting, given)
        if (count := sum(map(len, slots.values()))) > MOST_CHANNELS:
            more = f"the table would have offsets of {count} channels, it has room for {MOST_CHANNELS}"
            raise NotPossible(more, hint=TooManyChannels.hint)

    def took(self, given: Mapping[str, str] | None, rows: bool) -> None:
        """Rows were taken with these offsets; or no rows: they moved over nothing."""
        if given is None:
            return
        self.used = True
        self.waiting |= given
        self.lacks_offsets = not given and (rows or self.lacks_offsets)

    def check_publish(self, rows: int) -> None:
        """Raises NotPossible where rows lack their offsets: a source would bring them again."""
        if self.lacks_offsets and rows:
            hint = "publish(offsets=...) says what the channels have reached with them."
            raise NotPossible("the rows written last came without an offset", hint=hint)

    def position(self, name: TxlogName, given: bytes | None) -> bytes | None:
        """
        The position of this txlog: its own name, which no other txlog of any run has.

        A counter would recur: where two runs fork, the second txlog of the one would fit behind the other's first.
        """
        return f"{name.incarnation}.{name.sequence:010d}".encode() if self.waiting else given

    def published(self) -> None:
        """What was waiting is in a txlog."""
        if self.waiting:
            self.reached, self.waiting = merged(self.reached, self.waiting), {}
            self._published_at = self._clock()

    def committed(self, table_uuid: str) -> Offsets:
        """The offsets that are in the table, as far as marks.json says: only these may be acknowledged."""
        copy = retry(self._folder.marks, self._wait)
        if copy is None or copy.table_uuid != table_uuid:
            return {}
        return dict(copy.marks.writer(self._name).offsets)


def check_known(card: Card) -> None:
    """
    Raises NotPossible where the bookkeeper of this table does not know txlogs with offsets.
    """
    if WITH_OFFSETS not in card.txlog_versions:
        known = f"the bookkeeper of {card.table} knows no txlogs with offsets (version {WITH_OFFSETS})"
        raise NotPossible(known, hint="Upgrade it; it then names the version in card.json.")
