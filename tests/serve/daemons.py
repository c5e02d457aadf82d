"""
Tables of one catalog, each with a writer, for real daemons.
"""

from datetime import UTC, datetime
from pathlib import Path

from tests.support.configured import configured
from tests.support.lake import Lake, Writes


class Tables:
    """Tables of one catalog, each with a writer, and the configuration of daemons."""

    def __init__(self, root: Path, *names: str) -> None:
        self.root = root
        self.lakes = {name: Lake(root, name=name, identifier=f"demo.{name}") for name in names}
        self.writers = {name: Writes(lake) for name, lake in self.lakes.items()}

    def configure(self, *names: str, file: str = "bookkeeper.toml", **daemon: str) -> Path:
        """A configuration file with these tables, all of them when none is named."""
        chosen = [self.lakes[name] for name in names or self.lakes]
        return configured(*chosen, file=file, bookkeeper={"every": "20ms", "stop-patience": "1s", **daemon})

    def publish(self, name: str, key: str) -> None:
        lake = self.lakes[name]
        lake.clock.now = datetime.now(UTC)
        self.writers[name].publish(key)
