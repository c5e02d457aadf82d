"""
Keeps secrets out of output: account keys, SAS tokens, AWS secrets, connection strings, passwords in URLs.

They are recognised by the name before them, and by value where the configuration or the environment holds them. A
value that only looks like a secret is hidden too.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any
from urllib.parse import quote

HIDDEN = "***"
#: a shorter value alone would hide half of the log; it is still found by the name before it
_SHORTEST = 8
_LONGEST = 2**14
_WORDS = (
    r"pass(?:word|wd|phrase)|pwd|secret|credential|token|signature|api[-_]?key|authorization|connection[-_ ]?string"
    r"|(?:account|shared|master|private|encryption|subscription)[-_ ]?key|access[-_]?key(?![-_]?id)"
    r"|sharedaccess(?:key|signature)|(?<![a-z])(?:sas|sig)(?![a-z])"
)
_NAMED = re.compile(_WORDS, re.IGNORECASE)
_QUOTED = r"""b?"(?:[^"\\]|\\.)*"|b?'(?:[^'\\]|\\.)*'"""
_BETWEEN = r"""(?:\\?["']?\s*(?:=>|%3d|[:=])\s*|["']\s*,\s*)"""
_BARE = r"""\\?["']?(?!(?:None|null|true|false)\b)(?:(?!%26)[^\s,;&"'()\[\]{}<>])+"""
_RULES: tuple[tuple[re.Pattern[str], str], ...] = (
    (re.compile(r"(-----BEGIN [A-Z ]*PRIVATE KEY-----).+?(?=-----END|\Z)", re.DOTALL), rf"\1{HIDDEN}"),
    # Greedy: a password may hold an @ that is not percent-encoded.
    (re.compile(r"""([a-z][a-z0-9+.-]{0,30}://[^\s:/@"']*):[^\s"'<>]+@""", re.IGNORECASE), rf"\1:{HIDDEN}@"),
    (re.compile(rf"(authorization{_BETWEEN})(?:{_QUOTED}|[^\n\"'{{}}]+)", re.IGNORECASE), rf"\1{HIDDEN}"),
    (re.compile(r"\b(SharedKey(?:Lite)? [^\s:]+:|Bearer |Basic )[\w.~+/=-]{6,}", re.IGNORECASE), rf"\1{HIDDEN}"),
    (re.compile(r"\beyJ[\w-]{8,}\.[\w-]+\.[\w-]*"), HIDDEN),
    (re.compile(rf"((?:{_WORDS})[\w.-]{{0,40}}{_BETWEEN})(?:{_QUOTED}|{_BARE})", re.IGNORECASE), rf"\1{HIDDEN}"),
)
_INNER = re.compile(r"://[^\s:/@]*:(.+)@|(?:AccountKey|SharedAccess(?:Key|Signature)|password|sig)=([^;&\s]+)")

#: variables of a shell that are named like a password
_FOLDERS = ("PWD", "OLDPWD")

_known: set[str] = set()


def redacted(text: str) -> str:
    """
    `text` with `***` for every secret in it; what is longer than 16 KiB is cut.
    """
    # The rules' time grows with the square of the length, and a writer may choose the text.
    text = text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."
    for value in sorted(_known, key=len, reverse=True):
        text = text.replace(value, HIDDEN)
    for pattern, instead in _RULES:
        text = pattern.sub(instead, text)
    return text


def scrubbed(value: Any, key: str = "") -> Any:
    """
    Data for JSON without secrets: the whole value under a telling key, and in texts what `redacted` finds.
    """
    if isinstance(value, Mapping):
        return {str(name): scrubbed(item, str(name)) for name, item in value.items()}
    if value is None or isinstance(value, bool | int | float):
        return value
    if _NAMED.search(key):
        return HIDDEN
    if isinstance(value, list | tuple | set | frozenset):
        return [scrubbed(item) for item in value]
    return redacted(str(value))


def hide(*sources: Mapping[str, str]) -> None:
    """
    Hides the secrets in these settings or environments from now on, wherever they occur.
    """
    _known.update(value for source in sources for value in _variants(_values(source)))


def forget() -> None:
    """
    Forgets the values of `hide`.
    """
    _known.clear()


def _values(source: Mapping[str, str]) -> Iterator[str]:
    for name, value in source.items():
        if name in _FOLDERS:
            continue
        inner = [part for found in _INNER.findall(value) for part in found if part]
        if inner:
            yield from inner
        elif _NAMED.search(name):
            yield from (value, *value.split(":"))


def _variants(values: Iterable[str]) -> Iterator[str]:
    """Each value as it is, percent-encoded, and escaped as in JSON or Python source."""
    for value in values:
        if len(value) >= _SHORTEST:
            yield from (value, quote(value, safe=""), value.replace("\\", "\\\\").replace('"', '\\"'))
