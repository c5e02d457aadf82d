"""
Whether a command line in a document or a manifest is one of ours and spelled right, without running it.
"""

import importlib
import re
from collections.abc import Sequence

import click

from tests.packaging.project import ROOT, console_scripts

#: files that a reader has, and we do not
_FILES = re.compile(r"[\w./-]+\.(ndjson|csv|txt)$")


def check(words: Sequence[str]) -> None:
    """
    Raises click.UsageError where a word is no command, option or value; ValueError where it is no command of ours.
    """
    command, arguments = _found(words)
    if {"--help", "--version"} & set(arguments):
        return
    if isinstance(command, click.Group) and not command.invoke_without_command:
        raise click.UsageError(f"{' '.join(words)}: it wants a command")
    given = [
        word
        for before, word in zip(["", *arguments], arguments, strict=False)
        if not _FILES.fullmatch(word) or before == "--like" or command.name == "load"
    ]
    command.make_context(words[0], given)


def check_mention(words: Sequence[str]) -> None:
    """
    Like `check` for prose, which need not say everything: commands and options must exist.
    """
    command, arguments = _found(words)
    options = {text for parameter in command.params for text in (*parameter.opts, *parameter.secondary_opts)}
    unknown = {word.partition("=")[0] for word in arguments if word.startswith("--")} - options - {"--help"}
    if unknown:
        raise click.UsageError(f"{' '.join(words)}: no option {unknown}")


def is_ours(words: Sequence[str]) -> bool:
    """
    Whether it starts a program of this project.
    """
    return words[0] in console_scripts() or _module(words).startswith("spark_jobs.")


def make_targets() -> set[str]:
    """
    What `make` can be told to make.
    """
    return set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE))


def _module(words: Sequence[str]) -> str:
    return words[2] if len(words) > 2 and words[0] in ("python", "python3") and words[1] == "-m" else ""


def _found(words: Sequence[str]) -> tuple[click.Command, list[str]]:
    command, arguments = _program(words)
    context = click.Context(command)
    while isinstance(command, click.Group) and arguments and not arguments[0].startswith("-"):
        found = command.get_command(context, arguments[0])
        if found is None:
            raise click.UsageError(f"{' '.join(words)}: no command {arguments[0]}")
        command, arguments = found, arguments[1:]
    return command, arguments


def _program(words: Sequence[str]) -> tuple[click.Command, list[str]]:
    if _module(words).startswith("spark_jobs."):
        return importlib.import_module(words[2]).main, list(words[3:])
    if words[0] not in console_scripts():
        raise ValueError(f"{words[0]} is no command of ours")
    module, _, name = console_scripts()[words[0]].partition(":")
    return getattr(importlib.import_module(module), name), list(words[1:])
