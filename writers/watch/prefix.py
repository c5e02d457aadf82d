"""
What lies below a watched prefix: the objects of others, and beside them `_bookkeeper/`, `_rejected/` and `_done/`.

    _bookkeeper/watch.json            which writer of which table takes its objects: made at the first start
    _bookkeeper/plan-N-DIGEST.json    a plan (`plan.py`), create-only, from before its txlog is published
    _bookkeeper/done-N-DIGEST         the objects of this plan are gone; stays until the next plan is done
    _bookkeeper/lease, probe-ID       which instance works here; what was written to try a conditional delete
    _bookkeeper/spare                 on a local disk: the room for a plan where the disk is full
    _rejected/ID-NAME, ….reason.json  an object that is no rows, and why
    _done/N/KEY                       with `move`: an object of plan N; `empty/` are those without rows
"""

import hashlib
import json
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from secrets import token_hex

from bookkeeper.errors import AlreadyExists, Changed, Missing, NotPossible, StorageUnavailable, Unfit
from bookkeeper.format import json_text
from bookkeeper.stores.locations import local_path
from bookkeeper.stores.spare import Spare
from bookkeeper.stores.store import ASIDE, Listed, Store, check_deletes_by_tag, content_tag, create_once, is_full
from bookkeeper.stores.together import together
from writers.watch.plan import MOST_BYTES, NO_POSITION, Plan, Planned, WatchPosition, is_hidden, other_prefix

OWN, REJECTED, DONE = "_bookkeeper/", "_rejected/", "_done/"
LEASE = f"{OWN}lease"
_OURS = (OWN, REJECTED, DONE)
_WATCH = f"{OWN}watch.json"
_NAMED = re.compile(rf"{OWN}(plan|done)-([1-9][0-9]{{0,17}})-([0-9a-f]{{32}})(?:\.json)?")
_CLAIM_BYTES = 2**16
#: room for plans on a disk that is full: else what was dropped there could not be taken, and would keep it full
_SPARE, _SPARE_BYTES = f"{OWN}spare", 2**18
_MOST_REASON = 1000
#: objects that are in the table and do not go, before the others wait for them
MOST_STUCK = 100


class Undeletable(StorageUnavailable):
    """An object does not go: it is locked, or another's."""


class Prefix:
    """The prefix, as the holder of its lease sees it; `moves`: objects that are in the table go to `_done/`."""

    def __init__(self, store: Store, moves: bool) -> None:
        self.store, self._moves, self._probed = store, moves, False
        self._spare = Spare(store, _SPARE, _SPARE_BYTES)
        #: objects that are in the table and do not go, by key; each later plan has them too
        self.stuck = dict[str, Planned]()
        #: the plan that was committed last, while some of its objects do not go
        self._unfinished: Plan | None = None
        #: the number of that plan; the objects of later ones, None: not looked up yet
        self._last = 0
        self._open: set[Planned] | None = None

    def objects(self) -> Iterator[Listed]:
        """What others have dropped, in any order; raises StorageUnavailable."""
        return (item for item in self.store.list("") if not is_hidden(item.key))

    def begin(self, writer: str, table_uuid: str, backfill: bool) -> None:
        """
        Claims the prefix for this writer of this table.

        Raises NotPossible where it is another's, where objects lie there before the first start and `backfill` is not
        wanted, and where the storage ignores the condition of a delete.
        """
        claim = json.dumps({"version": 1, "writer": writer, "table-uuid": table_uuid}).encode()
        if not self._is_claimed(claim):
            first = None if backfill else next(self.objects(), None)
            if first is not None:
                why = f"objects lie below {self.store.url} before its first start, such as {first.key}"
                raise NotPossible(why, hint="--backfill takes them too; or move them away.")
            self._probe()
            create_once(self.store, _WATCH, claim)
        self._probe()
        self._put_back()
        self._spare.keep()

    def _probe(self) -> None:
        if not self._probed:
            self._spare.use(partial(check_deletes_by_tag, self.store, f"{OWN}probe-{token_hex(8)}"))
            self._probed = True

    def _is_claimed(self, claim: bytes) -> bool:
        try:
            there = self.store.read(_WATCH, _CLAIM_BYTES)
        except Missing:
            return False
        except Unfit:
            there = b""
        if there != claim:
            raise NotPossible(
                f"{self.store.url} is watched by another writer or for another table: {_about(there)}",
                hint=f"Two would take its objects twice. Where that one has ended for good: remove {_WATCH}.",
            )
        return True

    def _put_back(self) -> None:
        """On a local disk a crash may leave an object under a hidden name, and unfinished files of our own."""
        if local_path(self.store.url) is None:
            return
        listed = [item.key for item in self.store.list("")]
        self.store.delete_many([key for key in listed if key.endswith(".tmp") and key.startswith(_OURS)])
        for aside in filter(None, map(ASIDE.fullmatch, listed)):
            with suppress(Changed):
                self.store.delete_if("/".join(filter(None, (aside["folder"], aside["name"]))), "none has this tag")

    def write(self, plan: Plan) -> None:
        """Makes the plan durable; raises StorageUnavailable."""
        self._spare.use(partial(create_once, self.store, _plan_key(plan.position), plan.encoded()))

    def settle(self, last: WatchPosition | None, go_on: bool) -> int:
        """
        Finishes the plan that was committed `last`; returns the number behind which plans go on.

        Raises NotPossible where this is not the prefix that was read up to there, unless the prefix may `go_on` all
        the same; and StorageUnavailable.
        """
        self.stuck, self._unfinished, known = {}, None, self._known()
        highest = max((position.number for _, position in known.values()), default=0)
        # A plan that is done was in the table: another one than it says now.
        done = max((position.number for kind, position in known.values() if kind == "done"), default=0)
        self._open, self._last = None, 0 if last is None else last.number
        number = self._last
        found = {kind for kind, position in known.values() if position == last}
        try:
            if highest > number + 1 or done > number or (last is not None and not found):
                what = f"the last plan in the table is {last or NO_POSITION}, the newest here has the number {highest}"
                raise NotPossible(f"{self.store.url} is not what was read: {what}", hint=other_prefix(last))
            if last is not None and "done" not in found:
                self.finish(Plan.parse(self._plan(last), last))
        except NotPossible:
            if not go_on:
                raise
            return max(highest, number)
        return number

    def finish(self, plan: Plan) -> None:
        """
        The objects of a plan that is committed go, each only while it has the tag of the plan; then what is known of
        this plan and earlier ones. Raises StorageUnavailable: call it again.

        A few that do not go are `stuck`, and the plan stays until they are gone, or in the next one.

        A crash leaves the plan, and it is called again: what is gone is passed over.
        """
        stuck = dict[str, Planned]()
        acts = [partial(self._try, f"{DONE}{plan.number}/{item.key}", item, stuck) for item in plan.objects]
        together(acts, 1 if self._moves else self.store.at_once)
        self.stuck, self._unfinished, least = stuck, plan if stuck else None, plan.number
        self._open, self._last = None, plan.number
        done = f"{OWN}done-{plan.number}-{plan.position.digest}"
        if not stuck:
            self._spare.use(partial(create_once, self.store, done, b""))
            least += 1
        over = [key for key, (_, position) in self._known().items() if position.number < least and key != done]
        self.store.delete_many(over)
        self._spare.keep()

    def may_come(self, item: Planned) -> bool:
        """Whether a run that stands still may publish this version yet; raises StorageUnavailable."""
        if self._open is None:
            self._open = set()
            for kind, position in self._known().values():
                if kind == "plan" and position.number > self._last:
                    with suppress(NotPossible):
                        self._open.update(Plan.parse(self._plan(position), position).objects)
        return item in self._open

    def finish_stuck(self) -> None:
        """Tries again what is `stuck`; raises StorageUnavailable."""
        if self._unfinished is not None:
            self.finish(self._unfinished)

    def _try(self, to: str, item: Planned, stuck: dict[str, Planned]) -> None:
        try:
            self._finish(to, item)
        except Undeletable:
            if len(stuck) >= MOST_STUCK:
                raise
            stuck[item.key] = item

    def _finish(self, to: str, item: Planned) -> None:
        with suppress(Changed), _going():
            if self._moves:
                self._keep(to, item)
            self.store.delete_if(item.key, item.tag)

    def _keep(self, key: str, item: Planned) -> None:
        try:
            data, tag = self.store.read_tagged(item.key, item.size)
        except (Missing, Unfit):
            return
        if tag != item.tag:
            return
        try:
            create_once(self.store, key, data)
        except AlreadyExists:  # of a writer before, whose plans were removed: their numbers are given again
            create_once(self.store, f"{key}.{content_tag(data)[:12]}", data)

    def drop_empty(self, item: Planned) -> None:
        """An object without rows goes as one of a plan does; raises StorageUnavailable, Undeletable where it stays."""
        self._finish(f"{DONE}empty/{_version_of(item)}", item)

    def set_aside(self, item: Planned, data: bytes, reason: str) -> str:
        """
        Moves an object that is no rows to `_rejected/`, with the reason beside it; returns its key there.

        Both are there before the object goes, and only this version goes. Raises StorageUnavailable, Undeletable where
        it stays, as on a full disk until others make room.
        """
        key = f"{REJECTED}{_version_of(item)}"
        said = {"key": item.key, "tag": item.tag, "size": item.size, "reason": reason[:_MOST_REASON]}
        try:
            create_once(self.store, key, data)
            with suppress(AlreadyExists):  # an earlier run had another reason
                create_once(self.store, f"{key}.reason.json", json.dumps(said).encode())
        except StorageUnavailable as exc:
            if is_full(exc):
                raise Undeletable(str(exc)) from exc
            raise
        with suppress(Changed), _going():
            self.store.delete_if(item.key, item.tag)
        return key

    def _plan(self, position: WatchPosition) -> bytes:
        try:
            return self.store.read(_plan_key(position), MOST_BYTES)
        except (Missing, Unfit) as exc:
            raise NotPossible(f"the plan of {position} cannot be read: {exc}", hint=other_prefix(position)) from exc

    def _known(self) -> dict[str, tuple[str, WatchPosition]]:
        found = ((item.key, _NAMED.fullmatch(item.key)) for item in self.store.list(OWN))
        return {key: (name[1], WatchPosition(int(name[2]), name[3])) for key, name in found if name is not None}


@contextmanager
def _going() -> Iterator[None]:
    try:
        yield
    except StorageUnavailable as exc:
        raise Undeletable(str(exc)) from exc


def _version_of(item: Planned) -> str:
    """A name for this version of an object, the same after a crash."""
    digest = hashlib.sha256(f"{item.key}\n{item.tag}".encode("utf-8", "surrogateescape")).hexdigest()
    return f"{digest[:16]}-{item.key.rpartition('/')[2]}"


def _plan_key(position: WatchPosition) -> str:
    return f"{OWN}plan-{position.number}-{position.digest}.json"


def _about(claim: bytes) -> str:
    try:
        said = json_text.loads(claim)
        return f"{str(said['writer'])[:80]!r} of the table {str(said['table-uuid'])[:80]!r}"
    except (ValueError, LookupError, TypeError):
        return f"{_WATCH} is not readable"
