"""
Colour on a terminal: as --color says, else unless NO_COLOR is set (no-color.org), and only on a terminal.

Code that prints may always colour: click removes the codes where they are not wanted.
"""

import os
from collections.abc import Callable
from typing import Any

import click

RED, YELLOW, GREEN, FAINT, BOLD = "red", "yellow", "green", "faint", "bold"
#: columns whose words have a colour
_COLOURED = ("state", "outcome", "severity", "error", "verdict", "place", "trouble")
_TONES = {
    RED: ("halted", "cut off", "unreadable", "not ready", "hanging", "error", "failing", "aside"),
    YELLOW: (
        *("to mend", "stalled", "warning", "postponed", "lapsed", "standby"),
        *("starting", "dry run", "would be", "pending"),
    ),
    GREEN: ("ok", "live", "committed", "done", "fits", "ready", "put back", "mended", "dropped", "given up"),
}
_ORDINARY = ("nothing", "not started", "beginning", "info", "in the table", "another bookkeeper")


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
    Whether this terminal wants no colour, or has none.
    """
    facts = os.environ  # noqa: TID251 -- facts about the terminal, no setting of ours
    return bool(facts.get("NO_COLOR")) or facts.get("TERM") == "dumb"


def as_wanted(lines: list[str]) -> list[str]:
    """
    The lines for a terminal, without colour where none is wanted.
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
    if key not in _COLOURED or not isinstance(value, str) or value.startswith(_ORDINARY):
        return None
    found = next((tone for tone, words in _TONES.items() if value.startswith(words)), None)
    # An error is shown by its class name, which is in no list.
    return found or (RED if value[:1].isupper() or key in ("error", "trouble") else None)
