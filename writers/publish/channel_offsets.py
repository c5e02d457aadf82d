"""
The offsets of a run: what its channels have reached, and what its next txlog says of them.

A run becomes a slot with the first offsets that it is given. What a crash leaves: offsets that were not published are
lost together with their rows, and the source is read again from `reached`.
"""

from collections.abc import Mapping
from datetime import timedelta

from bookkeeper.contract import offsets as offsets_format
from bookkeeper.contract.card import Card
from bookkeeper.contract.marks import Marks
from bookkeeper.contract.names import TxlogName
from bookkeeper.contract.offsets import MOST_IN_TXLOG, Offsets, merged
from bookkeeper.contract.txlog import WITH_OFFSETS, version_of
from bookkeeper.contract.txlog_folder import Folder
from bookkeeper.errors import ChannelTaken, NotPossible, TooManyChannels
from writers.publish.card_follower import CardFollower
from writers.retries import retry
from writers.timing import Clock, Wait

#: offsets that moved over nothing wait this long for rows: each txlog without rows is a commit
ALONE = timedelta(hours=1)
NO_MARKS = Marks("")
_EACH = "Give offsets with each write; {} where their offset follows with later rows. publish() first what needs none."


class ChannelOffsets:
    """
    `reached` is what the channels have reached at the end of the writer's chain, `waiting` what the next txlog says.
    """

    def __init__(
        self,
        folder: Folder,
        cards: CardFollower,
        name: str,
        reached: Offsets,
        clock: Clock,
        wait: Wait,
        alone: timedelta | None = None,
    ) -> None:
        self.reached, self.waiting = reached, dict[str, str]()
        self._folder, self._cards, self._name, self._clock, self._wait = folder, cards, name, clock, wait
        #: whether this run was given offsets; whether rows came with none of them
        self.used = self.lacks_offsets = False
        self._alone, self._published_at = alone, clock()

    @property
    def due_alone(self) -> bool:
        """Whether offsets have waited for rows for so long that a txlog without rows may say them."""
        alone = ALONE if self._alone is None else self._alone
        return bool(self.waiting) and not timedelta(0) <= self._clock() - self._published_at < alone

    def check_write(self, given: Mapping[str, str] | None, position: bytes | None, unpublished: int) -> None:
        """
        Before rows are taken, with `unpublished` ones before them: raises ValueError for offsets out of bounds,
        NotPossible where the run cannot take these, StorageUnavailable.
        """
        if given is None and self.used:
            raise NotPossible("this run has offsets, and these rows come without", hint=_EACH)
        self._check(given, position, unpublished)
        if given and version_of(given) not in self._cards.card.txlog_versions:
            check_known(self._cards.newest(), given)  # the bookkeeper may have been upgraded

    def starts_publish(
        self, given: Mapping[str, str] | None, position: bytes | None, unpublished: int, alone: bool
    ) -> bool:
        """
        Takes the offsets that a publish was given; whether there is anything to publish, also offsets `alone`. Raises
        like `check_write`, also where `unpublished` rows lack their offsets: a source would bring them again.
        """
        self._check(given, position, unpublished)
        self.took(given, rows=False)
        if self.lacks_offsets and unpublished:
            hint = "publish(offsets=...) says what the channels have reached with them."
            raise NotPossible("the rows written last came without an offset", hint=hint)
        return unpublished > 0 or self.due_alone or (alone and bool(self.waiting))

    def _check(self, given: Mapping[str, str] | None, position: bytes | None, unpublished: int) -> None:
        if given is None and not self.used:
            return
        if position is not None:
            raise ValueError("offsets or a position: the position of a run with offsets is made by the writer")
        offsets_format.check(given or {}, forgets=True)
        if unpublished and not self.used:
            raise NotPossible(f"{unpublished} unpublished rows were written without offsets", hint=_EACH)
        if len({**self.waiting, **(given or {})}) > MOST_IN_TXLOG:
            hint = "publish() what was written so far, then go on."
            raise NotPossible(f"a txlog has offsets of at most {MOST_IN_TXLOG} channels", hint=hint)
        self._check_room(given or {})

    def _check_room(self, given: Mapping[str, str]) -> None:
        """Asks the marks where channels are new, as the bookkeeper will: one too many, or of another slot."""
        if given.keys() <= self.reached.keys() | self.waiting.keys():
            return
        copy = retry(self._folder.marks, self._wait)
        marks = NO_MARKS if copy is None else copy.marks
        try:
            marks.with_channels(self._name, {**self.reached, **self.waiting, **given}, {})
        except (ChannelTaken, TooManyChannels) as exc:
            raise NotPossible(str(exc), hint=exc.hint) from exc

    def took(self, given: Mapping[str, str] | None, rows: bool) -> None:
        """Rows were taken with these offsets; or no rows: they moved over nothing."""
        if given is None:
            return
        self.used = True
        self.waiting |= given
        self.lacks_offsets = not given and (rows or self.lacks_offsets)

    def position(self, name: TxlogName, given: bytes | None, card: Card) -> bytes | None:
        """
        The position of this txlog: of a slot its own name, which no other txlog of any run has.

        A counter would recur: where two runs fork, the second txlog of the one would fit behind the other's first.
        Raises NotPossible where the bookkeeper knows no offsets, by this card.
        """
        if not self.waiting:
            return given
        check_known(card, self.waiting)
        return f"{name.incarnation}.{name.sequence:010d}".encode()

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


def check_known(card: Card, offsets: Offsets) -> None:
    """
    Raises NotPossible where the bookkeeper of this table does not know txlogs with such offsets.
    """
    if (version := version_of(offsets)) not in card.txlog_versions:
        such = "with offsets" if version == WITH_OFFSETS else "that forget channels"
        known = f"the bookkeeper of {card.table} knows no txlogs {such} (version {version})"
        raise NotPossible(known, hint="Upgrade it; it then names the version in card.json.")
