"""
A data file belongs to one txlog, by its name (docs/maintain/txlog-format.md, "Names"): pure.

A last segment that parses as `<writer>-<incarnation>-<sequence>-...` belongs to that txlog and to no other. The writer
is as long as it can be: the writer `a-<uuid>-0000000001` is valid, and its files begin like those of writer `a`.
"""

import re
from collections.abc import Iterable, Sequence

from bookkeeper.contract.names import UUID, WRITER, TxlogName
from bookkeeper.errors import DuplicatePath, FileNameRefused

#: how a card or a setting says that every name must parse; else a name that does not must hold the incarnation
STRICT, LOOSE = "strict", "loose"
_OWNED = re.compile(rf"({WRITER.pattern})-({UUID})-([0-9]{{10}})-")
#: characters of `<uuid>-<sequence>-`: fewer behind a txlog's own prefix, which ends in a dash, hide no other one's
_SHORTEST = 36 + 1 + 10 + 1


def owner_of(segment: str) -> tuple[str, str, int] | None:
    """The writer, incarnation and sequence that the last segment of a location begins with; None where it does not."""
    match = _OWNED.match(segment)
    return (match[1], match[2], int(match[3])) if match else None


def check_names(name: TxlogName, paths: Sequence[str], strict: bool) -> str | None:
    """
    Raises FileNameRefused where a location is another txlog's, or may be, and DuplicatePath where two last segments are
    one but for upper and lower case.

    Returns the first location that does not begin with `<writer>-<incarnation>-<sequence>-`: no other run has it, but
    another txlog of this run may. With `strict` there is none.
    """
    segments = [path[path.rindex("/") + 1 :] for path in paths]
    if len(segments) > 1 and len({segment.casefold() for segment in segments}) < len(segments):
        raise DuplicatePath(f"{_repeated(segments)[:300]} is named twice")
    prefix = f"{name.writer}-{name.incarnation}-{name.sequence:010d}-"
    most = len(prefix) + _SHORTEST
    others = [at for at, one in enumerate(segments) if len(one) >= most or not one.startswith(prefix)]
    if not others:
        return None
    loose = [at for at in others if not _is_own(name, segments[at], paths[at], strict)]
    return paths[loose[0]] if loose else None


def _is_own(name: TxlogName, segment: str, path: str, strict: bool) -> bool:
    """Whether it is named after this txlog; raises FileNameRefused where it must be and is not."""
    owner = owner_of(segment)
    if owner is not None and owner == tuple(name):
        return True
    if owner is not None and (strict or owner[:2] != name.incarnation_key):
        raise FileNameRefused(f"{path[:300]} belongs to txlog {TxlogName(*owner)}, by its name")
    if strict:
        raise FileNameRefused(f"{path[:300]} must begin with {name.writer}-{name.incarnation}-{name.sequence:010d}-")
    if not _holds(segment, name.incarnation):
        raise FileNameRefused(f"{path[:300]} must hold the incarnation {name.incarnation}")
    return False


def _holds(segment: str, incarnation: str) -> bool:
    """Whether it holds the incarnation as a whole token, not as a part of a longer one."""
    return re.search(rf"(?<![0-9A-Za-z]){incarnation}(?![0-9A-Za-z])", segment) is not None


def _repeated(segments: Iterable[str]) -> str:
    seen = set[str]()
    for segment in segments:
        if (folded := segment.casefold()) in seen:
            return segment
        seen.add(folded)
    raise AssertionError("no segment is repeated")
