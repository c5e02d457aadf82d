"""
Reads a block of shell as far as documents go: its simple commands, without running any.
"""

import re
import shlex
from collections.abc import Iterator

_HEREDOC = re.compile(r"<<-?\s*'?(\w+)'?(.*?)\n.*?^\1$", re.MULTILINE | re.DOTALL)
_INNER = re.compile(r"""\$\(((?:'[^']*'|"[^"]*"|[^()'"])*)\)""")
_ASSIGNED = re.compile(r"^[A-Za-z_]\w*=")
_BETWEEN = {"|", "||", "&&", "&", ";"}
_REDIRECTS = {">", ">>", "<", "2>", "&>"}


def commands(text: str) -> Iterator[list[str]]:
    """
    The words of each simple command, those inside $( ) too; raises ValueError for quotes that do not end.
    """
    text = _HEREDOC.sub(r"\2", text).replace("\\\n", " ")
    while inner := _INNER.search(text):
        yield from commands(inner[1])
        text = f"{text[: inner.start()]}INNER{text[inner.end() :]}"
    for line in text.split("\n"):
        yield from _simple(line)


def _simple(line: str) -> Iterator[list[str]]:
    lexer = shlex.shlex(line, posix=True, punctuation_chars=True)
    lexer.wordchars += "$@%{}[]!,:"
    words: list[str] = []
    for token in [*lexer, ";"]:
        if token not in _BETWEEN:
            words.append(token)
            continue
        words = _without_redirects(words)
        while words and (_ASSIGNED.match(words[0]) or words[0] == "export"):
            words = words[1:]
        if words:
            yield words
        words = []


def _without_redirects(words: list[str]) -> list[str]:
    kept, skip = [], False
    for word in words:
        if not skip and word not in _REDIRECTS:
            kept.append(word)
        skip = word in _REDIRECTS
    return kept
