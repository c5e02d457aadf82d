"""
The one place where an error becomes an exit code and a line with its hint on stderr.

| exit code | meaning |
|---|---|
| 0 | done |
| 1 | refused: what was asked for is not possible, or the input is not acceptable |
| 2 | usage: an option or argument is wrong (click's own) |
| 3 | halted: a person has to decide or act first |
| 4 | unavailable for now: storage, catalog or bookkeeper do not keep up; the same command may work later |
| 5 | this run of a writer is over: start it again and it continues where it should |
"""

from collections.abc import Iterator
from contextlib import contextmanager
from errno import EPIPE
from typing import IO, Any

import click

from bookkeeper import errors
from bookkeeper.config.extras import EXTRAS, extra_missing
from bookkeeper.console import status_line
from bookkeeper.console.colour import BOLD, RED, painted
from bookkeeper.console.logs import catch_defects, fill_standard_streams
from bookkeeper.console.secrets import redacted

DONE, REFUSED, USAGE, HALTED, UNAVAILABLE, RESTART = range(6)

_CODES: tuple[tuple[type[errors.BookkeeperError], int], ...] = (
    (errors.Halt, HALTED),
    (errors.Hold, HALTED),
    (errors.Retry, UNAVAILABLE),
    (errors.Backpressure, UNAVAILABLE),
    (errors.Fenced, RESTART),
    (errors.UnknownOutcome, RESTART),
)


def exit_code(exc: errors.BookkeeperError) -> int:
    """
    The exit code that stands for this error.
    """
    return next((code for kind, code in _CODES if isinstance(exc, kind)), REFUSED)


class Failure(click.ClickException):
    """
    One of our errors on its way out of a command: `error: what happened`, then `hint: what to do`.
    """

    def __init__(self, cause: errors.BookkeeperError) -> None:
        super().__init__(str(cause))
        self.cause = cause
        # click declares a class variable but reads it from the instance.
        vars(self)["exit_code"] = exit_code(cause)

    def show(self, file: IO[Any] | None = None) -> None:
        """
        Print it on stderr.
        """
        say_error(redacted(self.message), redacted(self.cause.hint))


def say_error(message: str, hint: str = "") -> None:
    """
    Print an error and its hint on stderr.
    """
    status_line.release()
    click.echo(f"{painted('error:', RED)} {message}", err=True)
    if hint:
        click.echo(f"{painted('hint:', BOLD)} {hint}", err=True)


@contextmanager
def failing_politely() -> Iterator[None]:
    """
    Turns our errors, and the import error of an extra that is not installed, into a Failure.
    """
    try:
        yield
    except errors.BookkeeperError as exc:
        raise Failure(exc) from exc
    except ModuleNotFoundError as exc:
        raise Failure(missing_extra(exc)) from exc
    except OSError as exc:
        if exc.errno == EPIPE or exc.filename is None:
            raise  # EPIPE: click ends a command whose reader is gone; without a path it is a defect
        hint = "Check the path, the rights to write there, and the free space of the disk."
        raise Failure(errors.NotPossible(f"{exc.filename}: {exc.strerror}", hint=hint)) from exc


def missing_extra(exc: ModuleNotFoundError) -> errors.ExtraMissing:
    """
    The error that names the pip line for a module; raises `exc` again when no extra brings it.
    """
    if (exc.name or "").partition(".")[0] not in EXTRAS:
        raise exc
    return extra_missing(exc)


class _Polite(click.Command):
    """
    A command, or a group, whose errors end as one line, a hint and an exit code.
    """

    def invoke(self, ctx: click.Context) -> Any:
        """
        Run it, or what is below it.
        """
        with failing_politely():
            return super().invoke(ctx)

    def main(self, args: Any = None, *more: Any, **how: Any) -> Any:
        """
        Run it as the program of a process.
        """
        if args is None:
            fill_standard_streams()
            catch_defects()
        return super().main(args, *more, **how)


class Command(_Polite):
    """
    One command: `@click.command(cls=Command)`.
    """


class Commands(_Polite, click.Group):
    """
    A group of such commands: `@click.group(cls=Commands)`.
    """

    command_class = Command
    group_class = type
