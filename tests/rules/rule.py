"""
What a rule is: a sentence, a mutant that breaks it, and the systems that must turn red.
"""

import inspect
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import wraps
from pkgutil import resolve_name
from types import TracebackType
from typing import Any, NamedTuple, Protocol

import pytest

Patch = pytest.MonkeyPatch
Mutant = Callable[[Patch], None]

#: errors by which a mutant fails that does not fit the product any more
MISFITS = (AttributeError, ImportError, KeyError, NameError, TypeError)


class Found(NamedTuple):
    """What a system says is wrong, and after how many of what it counts by."""

    says: str
    after: str = ""


class Outcome(NamedTuple):
    """
    What came of a look: what was found, if anything, in how many seconds of a core.

    `unfit`: why that proves nothing; `skipped`: what the system lacks, or that it took too long.
    """

    found: Found | None
    seconds: float = 0.0
    unfit: str = ""
    skipped: str = ""

    @property
    def red(self) -> bool:
        """Whether it proves that the rule is needed, or cannot be asked here."""
        return bool(self.skipped) or (self.found is not None and not self.unfit)


class Red(Protocol):
    """A system, and the bounds within which it must find what is wrong."""

    @property
    def system(self) -> str:
        """The system's name."""

    @property
    def where(self) -> str:
        """What of it: with the system's name the same for ever, for figures are kept by it."""

    @property
    def timed(self) -> bool:
        """Whether it may see nothing on a slow machine: CI looks at no such part."""

    def find(self, rule: "Rule") -> Found | None:
        """What it says of the product without the rule; None where it sees nothing wrong."""


@dataclass(frozen=True)
class Rule:
    """`holds` in the protocol; `mutant` breaks it, as `without` says; one of `reds` turns red for each system."""

    name: str
    holds: str
    without: str
    mutant: Mutant
    reds: tuple[Red, ...] = ()
    #: errors of a mutant that does not fit the product any more: what it makes red proves nothing
    misfits: list[str] = field(default_factory=list, compare=False)

    @contextmanager
    def broken(self) -> Iterator[None]:
        """The product without the rule; raises AssertionError where the mutant does not fit the product."""
        self.misfits.clear()
        with pytest.MonkeyPatch.context() as patch, _noting(self.misfits):
            self.mutant(patch)
            yield
        if self.misfits:
            raise AssertionError(f"the mutant {self.name} does not fit the product: {self.misfits[0]}")


class Chapter:
    """The rules of a chapter, in their order; called, it makes one of the mutant below it."""

    def __init__(self) -> None:
        self.rules: list[Rule] = []

    def __call__(self, holds: str, *reds: Red) -> Callable[[Mutant], Mutant]:
        def named(mutant: Mutant) -> Mutant:
            without = " ".join((mutant.__doc__ or "").split())
            self.rules.append(Rule(mutant.__name__, holds, without, mutant, reds))
            return mutant

        return named


def breaks(*places: str) -> Callable[[Callable[..., Any]], Mutant]:
    """
    Makes a mutant of a function that is called in these places: with what was there, and then as that was called.
    """

    def made(new: Callable[..., Any]) -> Mutant:
        @wraps(new)
        def mutant(patch: Patch) -> None:
            for where in places:
                put(patch, where, new)

        return mutant

    return made


def put(patch: Patch, where: str, new: Callable[..., Any]) -> None:
    """
    Calls `new` in the place of the function, method, property or class at `where`: with that, and as that was called.

    Raises AssertionError where `new` cannot be called so.
    """
    at, _, name = where.rpartition(".")
    owner = resolve_name(at)
    rightly = inspect.getattr_static(owner, name)
    patch.setattr(owner, name, _instead(rightly, new, where))


def set_value(patch: Patch, where: str, new: object, raising: bool = True) -> None:
    """
    Puts a value in the place of the one at `where`; its module is found also where another test imported it anew.
    """
    at, _, name = where.rpartition(".")
    patch.setattr(resolve_name(at), name, new, raising=raising)


def _instead(rightly: Any, new: Callable[..., Any], where: str) -> Any:
    if isinstance(rightly, property):
        return property(_called(rightly.fget, new, where))
    if isinstance(rightly, staticmethod | classmethod):
        return type(rightly)(_called(rightly.__func__, new, where))
    return _called(rightly, new, where)


def _called(rightly: Any, new: Callable[..., Any], where: str) -> Callable[..., Any]:
    _check_fits(rightly, new, where)

    def instead(*given: Any, **named: Any) -> Any:
        try:
            return new(rightly, *given, **named)
        except MISFITS as error:
            _note(error, new)
            raise

    if isinstance(rightly, type):
        instead.__doc__ = new.__doc__
        return instead
    return wraps(rightly)(instead)


def _check_fits(rightly: Any, new: Callable[..., Any], where: str) -> None:
    """Whether it can be called with all that the other takes, and with no more than that needs."""
    taken = [item for item in inspect.signature(rightly).parameters.values() if item.kind not in _REST]
    for wanted in (taken, [item for item in taken if item.default is item.empty]):
        by_name = {item.name: None for item in wanted if item.kind is item.KEYWORD_ONLY}
        by_place = [None for item in wanted if item.kind is not item.KEYWORD_ONLY]
        try:
            inspect.signature(new).bind(rightly, *by_place, **by_name)
        except TypeError as error:
            raise AssertionError(f"{new.__name__} does not fit {where}: {error}") from error


_REST = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
#: where misfits of the mutants that are in their places are noted
_noted: list[list[str]] = []


@contextmanager
def _noting(misfits: list[str]) -> Iterator[None]:
    _noted.append(misfits)
    try:
        yield
    finally:
        _noted.remove(misfits)


def _note(error: Exception, new: Callable[..., Any]) -> None:
    """Notes an error that the mutant's own code raised; one that the product raised in it is the product's answer."""
    at: TracebackType | None = error.__traceback__
    while at is not None and at.tb_next is not None:
        at = at.tb_next
    if at is not None and at.tb_frame.f_code.co_filename == inspect.unwrap(new).__code__.co_filename:
        for misfits in _noted:
            misfits.append(repr(error))


def cpu_seconds() -> float:
    """
    Seconds of a core that this process and its ended children have taken.
    """
    return sum(os.times()[:4])


def pairs(rules: Sequence[Rule]) -> list[tuple[Rule, Red]]:
    """
    Each rule with each system that must turn red without it.
    """
    return [(rule, red) for rule in rules for red in rule.reds]
