"""
Faults: every operation of storage and catalog goes through one place, is recorded there, and can be broken there.

An operation is a text such as `create folder/pending/w1…` or `commit_table`. A rule breaks those that it matches:
before they are done (nothing happened), after (done, but the answer is lost), in the middle, or later: an operation
may be done twice at once, arrive late though it was said to have failed, or arrive once more long after it was done.
"""

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeVar

from bookkeeper.stores.store import bound_of
from tests.support.wrapped import WrappedCatalog

T = TypeVar("T")
BEFORE, MIDDLE, AFTER = "before", "middle", "after"
TWICE, LATE, ECHO = "twice", "late", "echo"


class Crash(BaseException):
    """The process ends here: no code may catch it, and every object is thrown away after it."""


class HalfDone(Exception):
    """Tells an operation to do half of its work and then to raise `error`."""

    def __init__(self, error: BaseException) -> None:
        self.error = error


@dataclass
class Rule:
    """Breaks operations that `matches` accepts: the first `times` of them, `when`, with what `error` makes."""

    matches: Callable[[int, str], bool]
    when: str
    error: Callable[[str], BaseException]
    times: int = 1_000_000
    #: how many operations later what is late arrives; by default when a test calls `arrive`
    delay: int = 1_000_000


@dataclass
class Faults:
    """What happened so far, and what is to go wrong; `hooks` run before an operation, to let others in between."""

    rules: list[Rule] = field(default_factory=list)
    seen: list[str] = field(default_factory=list)
    hooks: list[tuple[Callable[[str], bool], Callable[[], None]]] = field(default_factory=list)
    #: what is still under way: the number of the operation before which it arrives, and how
    under_way: list[tuple[int, Callable[[], Any]]] = field(default_factory=list)

    def around(self, operation: str, act: Callable[[], T]) -> T:
        """Does `act` as one operation, unless a rule says otherwise."""
        number = len(self.seen)
        self.seen.append(operation)
        self._let_others_in(operation)
        self.arrive(number)
        self._break(number, operation, BEFORE)
        rule = self._rule(number, operation, MIDDLE)
        if rule is not None:
            raise HalfDone(rule.error(operation))
        self._send_later(number, operation, act)
        result = self._done(number, operation, act)
        if self._rule(number, operation, TWICE):
            result = act()  # the client sent it again by itself, and hands on what the second one met
        self._break(number, operation, AFTER)
        return result

    def _done(self, number: int, operation: str, act: Callable[[], T]) -> T:
        try:
            return act()
        except Exception:
            # A process may end right after an operation that was refused by itself, as a commit that lost a race.
            for rule in self.rules:
                if rule.when == AFTER and rule.error is crash and rule.matches(number, operation):
                    raise crash(operation) from None
            raise

    def _send_later(self, number: int, operation: str, act: Callable[[], Any]) -> None:
        late, echo = self._rule(number, operation, LATE), self._rule(number, operation, ECHO)
        for rule in (late, echo):
            if rule is not None:
                self.under_way.append((number + rule.delay, act))
        if late is not None:
            raise late.error(operation)

    def arrive(self, number: int = 1_000_000_000) -> None:
        """What is under way and due before this operation arrives; its answer is not waited for."""
        due = [item for item in self.under_way if item[0] <= number]
        self.under_way = [item for item in self.under_way if item[0] > number]
        for _, act in due:
            with suppress(Exception):
                act()

    def _let_others_in(self, operation: str) -> None:
        for hook in [hook for hook in self.hooks if hook[0](operation)]:
            self.hooks.remove(hook)
            hook[1]()

    def _break(self, number: int, operation: str, when: str) -> None:
        rule = self._rule(number, operation, when)
        if rule is not None:
            raise rule.error(operation)

    def _rule(self, number: int, operation: str, when: str) -> Rule | None:
        for rule in self.rules:
            if rule.when == when and rule.times > 0 and rule.matches(number, operation):
                rule.times -= 1
                return rule
        return None

    def at(self, number: int, when: str, error: Callable[[str], BaseException], delay: int = 1_000_000) -> "Faults":
        """Breaks the operation with this number, once."""
        self.rules.append(Rule(lambda count, _: count == number, when, error, times=1, delay=delay))
        return self

    def on(self, part: str, when: str, error: Callable[[str], BaseException], times: int = 1_000_000) -> "Faults":
        """Breaks operations whose text holds `part`."""
        self.rules.append(Rule(lambda _, operation: part in operation, when, error, times))
        return self

    def between(self, part: str, act: Callable[[], None]) -> "Faults":
        """Runs `act` once, just before the next operation whose text holds `part`."""
        self.hooks.append((lambda operation: part in operation, act))
        return self

    def clear(self) -> None:
        """Everything works again; what was seen is kept."""
        self.rules.clear()
        self.hooks.clear()


def crash(operation: str) -> BaseException:
    """
    The error that ends the process at `operation`.
    """
    return Crash(operation)


class FaultyStore:
    """A Store whose every operation goes through `faults`; `label` names it there."""

    #: operations are numbered, so they come one after another
    at_once = 1

    def __init__(self, store: Any, faults: Faults, label: str) -> None:
        self.store, self.faults, self.label, self.url = store, faults, label, store.url

    def _do(self, verb: str, key: str, act: Callable[[], T]) -> T:
        try:
            return self.faults.around(f"{verb} {self.label}/{key}", act)
        except HalfDone as half:
            raise half.error from None

    def _do_one(self, verb: str, key: str, answer: Callable[[], Any]) -> Any:
        """Of a request for many, the answer for one; an error in it is raised."""

        def act() -> Any:
            found = answer()
            if isinstance(found, Exception):
                raise found
            return found

        return self._do(verb, key, act)

    def read(self, key: str, most: int | None = None) -> bytes:
        return self._do("read", key, lambda: self.store.read(key, most))

    def read_tagged(self, key: str, most: int | None = None) -> tuple[bytes, str]:
        return self._do("read", key, lambda: self.store.read_tagged(key, most))

    def read_many(self, keys: list[str], most: Any = None) -> dict[str, Any]:
        return {key: self._outcome(lambda key: self.read(key, bound_of(key, most)), key) for key in keys}

    def read_ranges(self, ranges: list[Any]) -> dict[Any, Any]:
        return {wanted: self._outcome(self._range, wanted) for wanted in ranges}

    def _range(self, wanted: Any) -> Any:
        return self._do_one("read", wanted.key, lambda: self.store.read_ranges([wanted])[wanted])

    def read_versions(self, known: dict[str, str], most: Any = None) -> dict[str, Any]:
        return {key: self._outcome(partial(self._version, known, most), key) for key in known}

    def _version(self, known: dict[str, str], most: Any, key: str) -> Any:
        return self._do_one("read", key, lambda: self.store.read_versions({key: known[key]}, bound_of(key, most))[key])

    def move(self, key: str, to: str) -> None:
        self._do("move", key, lambda: self.store.move(key, to))

    def size(self, key: str) -> int:
        return self._do("size", key, lambda: self.store.size(key))

    def modified(self, key: str) -> Any:
        return self._do("size", key, lambda: self.store.modified(key))

    def sizes(self, keys: list[str]) -> dict[str, Any]:
        return {key: self._outcome(self.size, key) for key in keys}

    def heads(self, keys: list[str]) -> dict[str, Any]:
        return {key: self._outcome(self._head, key) for key in keys}

    def _head(self, key: str) -> Any:
        return self._do_one("size", key, lambda: self.store.heads([key])[key])

    def _outcome(self, act: Callable[[str], Any], key: str) -> Any:
        from bookkeeper.errors import Missing, StorageUnavailable, Unfit

        try:
            return act(key)
        except (Missing, Unfit, StorageUnavailable) as error:
            return error

    def create(self, key: str, data: bytes) -> None:
        self._write("create", key, data, lambda: self.store.create(key, data))

    def replace(self, key: str, data: bytes, if_match: str | None = None) -> Any:
        return self._write("replace", key, data, lambda: self.store.replace(key, data, if_match))

    def upload(self, key: str, data: Any) -> None:
        self._write("upload", key, data, lambda: self.store.upload(key, data))

    def _write(self, verb: str, key: str, data: Any, act: Callable[[], T]) -> T:
        try:
            return self.faults.around(f"{verb} {self.label}/{key}", act)
        except HalfDone as half:
            # Torn: an upload under its own name, else an unfinished temporary file beside it.
            torn = key if verb == "upload" else f"{key}.0123456789ab.tmp"
            self.store.upload(torn, bytes(data)[: len(data) // 2])
            raise half.error from None

    def list(self, prefix: str) -> Iterator[Any]:
        yield from self._do("list", prefix, lambda: list(self.store.list(prefix)))

    def delete_if(self, key: str, tag: str) -> None:
        self._do("delete", key, lambda: self.store.delete_if(key, tag))

    def delete_many(self, keys: Any) -> int:
        listed = list(keys)
        try:
            return self.faults.around(
                f"delete {self.label}/{','.join(listed)}", lambda: int(self.store.delete_many(listed))
            )
        except HalfDone as half:
            self.store.delete_many(listed[: (len(listed) + 1) // 2])
            raise half.error from None


class FaultyCatalog(WrappedCatalog):
    """A catalog whose loads and changes go through `faults`; the tables it gives commit through it too."""

    def __init__(self, catalog: Any, faults: Faults) -> None:
        def around(name: str, act: Callable[..., Any], *given: Any, **named: Any) -> Any:
            try:
                return faults.around(name, lambda: act(*given, **named))
            except HalfDone as half:
                raise half.error from None

        super().__init__(catalog, around)
