"""
Whether a command line in a document or a manifest is one of ours and spelled right, without running it.
"""

import importlib
from collections.abc import Sequence

import click

from tests.packaging.project import console_scripts


def check(words: Sequence[str]) -> None:
    """
    Raises click.UsageError where a word is no command, option or value; ValueError where it is no command of ours.
    """
    command, arguments = _command(words)
    context = click.Context(command)
    while isinstance(command, click.Group) and _subcommand(command, arguments):
        name, *arguments = arguments
        found = command.get_command(context, name)
        if found is None:
            raise click.UsageError(f"{command.name} has no command {name}")
        command = found
    if {"--help", "--version"} & set(arguments):
        return
    if isinstance(command, click.Group) and not command.invoke_without_command:
        raise click.UsageError(f"{words[0]} wants a command")
    command.make_context(words[0], list(arguments))


def is_ours(words: Sequence[str]) -> bool:
    """
    Whether it starts a program of this project.
    """
    return words[0] in console_scripts() or (list(words[:2]) == ["python", "-m"] and words[2].startswith("spark_jobs."))


def _command(words: Sequence[str]) -> tuple[click.Command, list[str]]:
    if not is_ours(words):
        raise ValueError(f"{words[0]} is no command of ours")
    if words[0] == "python":
        return importlib.import_module(words[2]).main, list(words[3:])
    module, _, name = console_scripts()[words[0]].partition(":")
    return getattr(importlib.import_module(module), name), list(words[1:])


def _subcommand(group: click.Group, arguments: Sequence[str]) -> bool:
    return bool(arguments) and not arguments[0].startswith("-")
