"""
Colour for people on a terminal: as --color says, else never with NO_COLOR (no-color.org), and nowhere but on one.

Whoever prints may always colour: click takes it away again where it is not wanted.
"""

import os
from collections.abc import Callable
from typing import Any

import click

RED, YELLOW, GREEN, FAINT, BOLD = "red", "yellow", "green", "faint", "bold"
#: what a word in one of these columns is to be
_SPEAKING = ("state", "outcome", "severity", "error", "verdict", "place", "trouble")
_TONES = {
    RED: ("halted", "cut off", "unreadable", "not ready", "hanging", "error", "failing", "aside"),
    YELLOW: (
        *("to mend", "stalled", "warning", "postponed", "lapsed", "standby"),
        *("starting", "dry run", "would be", "pending"),
    ),
    GREEN: ("ok", "live", "committed", "done", "fits", "ready", "put back", "mended", "dropped", "given up"),
}
_ORDINARY = ("nothing", "not started", "info", "in the table", "another bookkeeper")


def color_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """
    Add --color, which needs no argument.
    """
    text = "Colour; auto: on a terminal, unless NO_COLOR is set."
    kind = click.Choice(["auto", "always", "never"])
    return click.option("--color", type=kind, metavar="WHEN", callback=_choose, expose_value=False, help=text)(command)


def _choose(context: click.Context, _: click.Parameter, value: str | None) -> None:
    if value in ("always", "never"):
        context.color = value == "always"
    elif context.color is None and plain_terminal():
        context.color = False


def plain_terminal() -> bool:
    """
    Whether this terminal is to be, or can be, without colour.
    """
    facts = os.environ  # noqa: TID251 -- facts about the terminal, no setting of ours
    return bool(facts.get("NO_COLOR")) or facts.get("TERM") == "dumb"


def as_wanted(lines: list[str]) -> list[str]:
    """
    The lines of a terminal, without colour where that is not wanted.
    """
    context = click.get_current_context(silent=True)
    plain = plain_terminal() if context is None else context.color is False
    return [click.unstyle(line) for line in lines] if plain else lines


def painted(text: str, tone: str | None) -> str:
    """
    The text in a tone.
    """
    if tone in (FAINT, BOLD):
        return click.style(text, dim=tone == FAINT or None, bold=tone == BOLD or None)
    return click.style(text, fg=tone) if tone else text


def tone_of(key: str, value: Any) -> str | None:
    """
    The tone of a value in its column; None for the ordinary one.
    """
    if key == "rejected" and value:
        return YELLOW
    if key not in _SPEAKING or not isinstance(value, str) or value.startswith(_ORDINARY):
        return None
    found = next((tone for tone, words in _TONES.items() if value.startswith(words)), None)
    # An error goes by its name, which no list can know.
    return found or (RED if value[:1].isupper() or key in ("error", "trouble") else None)
