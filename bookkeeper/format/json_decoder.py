"""
A decoder of JSON lines that hides nothing: a key that is given twice, a number that is too big.
"""

import json
from collections.abc import Callable, Collection
from decimal import Decimal, InvalidOperation
from typing import Any

_MOST_DIGITS = 4000  # Python refuses a text of more than 4,300 as an int


class RepeatedKeys(dict[str, Any]):
    """A JSON object that names a key twice; `repeated` has those keys."""

    repeated: frozenset[str]


class OutOfRange:
    """A JSON number that Python does not read."""

    def __init__(self, text: str) -> None:
        self._text = text

    def __repr__(self) -> str:
        return self._text


def json_decoder(decimals: bool, ignore_unknown: bool = False) -> json.JSONDecoder:
    """
    A decoder whose objects may be RepeatedKeys.

    `decimals`: numbers with a fraction are not floats. With `ignore_unknown` a number that Python does not read is no
    error before it is known whether it is ignored.
    """
    return json.JSONDecoder(
        object_pairs_hook=_object,
        parse_float=_number if decimals or ignore_unknown else None,
        parse_int=_whole_number if ignore_unknown else None,
        # Decimals, so that an infinity that is written is no float that is too big.
        parse_constant=Decimal,
    )


def line_decoder(
    decimals: bool, ignore_unknown: bool = False, error: type[ValueError] = ValueError
) -> Callable[[bytes], Any]:
    """
    Reads the JSON value of one line by such a decoder; raises `error`.
    """
    decoder = json_decoder(decimals, ignore_unknown)

    def decode(line: bytes) -> Any:
        try:
            return decoder.decode(line.decode("utf-8").strip())
        except (ValueError, RecursionError) as exc:
            raise error(f"not JSON: {exc}") from exc

    return decode


def check_keys(value: dict[str, Any], known: Collection[str]) -> None:
    """
    Raises ValueError when an object gives one of these keys twice.
    """
    if isinstance(value, RepeatedKeys):
        twice = sorted(name for name in value.repeated if name in known)
        if twice:
            raise ValueError(f"{twice[0]!r} is given twice")


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) == len(pairs):
        return found
    names = [name for name, _ in pairs]
    twice = RepeatedKeys(found)
    twice.repeated = frozenset(name for name in names if names.count(name) > 1)
    return twice


def _number(text: str) -> Decimal | OutOfRange:
    try:
        return Decimal(text)
    except InvalidOperation:
        return OutOfRange(text)


def _whole_number(text: str) -> int | OutOfRange:
    return int(text) if len(text) <= _MOST_DIGITS else OutOfRange(text)
