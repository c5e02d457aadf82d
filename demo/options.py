"""
The demo's options, read from the environment.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from bookkeeper.errors import ConfigInvalid

_ON = ("1", "yes", "true", "on")
_OFF = ("", "0", "no", "false", "off")


@dataclass(frozen=True, slots=True)
class DemoOptions:
    """Seconds that the writers write, how many there are, whether and by which seed to kill processes, and where."""

    seconds: int = 40
    writers: int = 5
    chaos: bool = False
    seed: int = 0
    folder: Path = Path(".demo")

    @property
    def names(self) -> list[str]:
        """The writers' names."""
        return [f"writer-{number}" for number in range(1, self.writers + 1)]


def read_options(environ: Mapping[str, str], seed: int) -> DemoOptions:
    """
    The options in `environ`; `seed` is used where it has no SEED. Raises ConfigInvalid.
    """
    return DemoOptions(
        seconds=_number(environ, "DEMO_SECONDS", 40, least=5, most=3600),
        writers=_number(environ, "WRITERS", 5, least=1, most=50),
        chaos=_switch(environ, "CHAOS"),
        seed=_number(environ, "SEED", seed, least=0, most=2**32),
        folder=Path(environ.get("DEMO_FOLDER") or ".demo"),
    )


def _number(environ: Mapping[str, str], key: str, default: int, least: int, most: int) -> int:
    text = environ.get(key, "").strip()
    if not text:
        return default
    if not text.isascii() or not text.isdigit() or not least <= int(text) <= most:
        raise ConfigInvalid(f"{key}={text}: a whole number from {least} to {most} is allowed")
    return int(text)


def _switch(environ: Mapping[str, str], key: str) -> bool:
    text = environ.get(key, "").strip().lower()
    if text not in (*_ON, *_OFF):
        raise ConfigInvalid(f"{key}={text}: 1 or 0 is allowed")
    return text in _ON
