"""Every command of every program there is, and the examples in its help."""

import configparser
import importlib
import pkgutil
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import click

import spark_jobs

ROOT = Path(__file__).parents[2]
Typed = tuple[str, ...]
#: their examples need a broker, or a table of dead letters: tests/kafka/test_page.py runs them
KAFKA: tuple[Typed, ...] = (
    ("writer", "kafka"),
    ("writer", "kafka-group"),
    ("writer", "kafka-replay"),
    ("bookkeeper", "rejected-rows"),
)
#: its examples need a file and a port: tests/http/test_page.py runs them
HTTP: tuple[Typed, ...] = (("writer", "serve"),)
#: its examples need a prefix: tests/watch/test_page.py runs them
WATCH: tuple[Typed, ...] = (("writer", "watch"),)


def programs() -> dict[str, click.Command]:
    """Name and command of each console script, and of each Spark job, which runs as a module."""
    config = configparser.ConfigParser()
    config.read(ROOT / "setup.cfg")
    found: dict[str, click.Command] = {}
    for line in config["options.entry_points"]["console_scripts"].strip().splitlines():
        name, _, place = line.partition(" = ")
        module, _, attribute = place.partition(":")
        found[name] = getattr(importlib.import_module(module), attribute)
    for item in pkgutil.iter_modules(spark_jobs.__path__):
        if "@click." not in (ROOT / "spark_jobs" / f"{item.name}.py").read_text("utf-8"):
            continue  # no job: a library that a session imports may be of classes of Spark's
        job = getattr(importlib.import_module(f"spark_jobs.{item.name}"), "main", None)
        if isinstance(job, click.Command):
            found[f"python -m spark_jobs.{item.name}"] = job
    return found


def commands() -> Iterator[tuple[Typed, click.Command]]:
    """Every command below every program, by what a person types for it."""
    for name, program in programs().items():
        yield from _below((name,), program)


def _below(path: Typed, command: click.Command) -> Iterator[tuple[Typed, click.Command]]:
    yield path, command
    if isinstance(command, click.Group):
        for name, child in command.commands.items():
            yield from _below((*path, name), child)


def examples(command: click.Command) -> list[str]:
    """The lines after the last `Example:` of its help, in which nothing else may follow."""
    text = command.help or ""
    found = re.search(r"Examples?:((?:(?!Examples?:).)*)\Z", text, re.DOTALL)
    return [line.strip() for line in found[1].splitlines() if line.strip()] if found else []


def words(example: str) -> list[str]:
    """Program and arguments of an example; a pipe's last program, what is in $( ), without comment and redirection."""
    plain = example.partition("  #")[0].strip()
    inner = re.search(r"\$\((.+)\)", plain)
    plain = (inner[1] if inner else plain).rpartition(" | ")[2].partition(" > ")[0]
    return shlex.split(plain.removeprefix("python -m "))
