"""
The tables of docs/configure.md, made from the settings: `python -m tests.support.reference` writes them.
"""

from collections.abc import Mapping
from dataclasses import fields
from datetime import timedelta
from pathlib import Path
from typing import Any

from bookkeeper.config.load import defaults
from bookkeeper.config.settings import Compaction, Daemon, Evolve, Fold, Reaper, Retention, Service, Table

DOC = Path(__file__).parents[2] / "docs" / "configure.md"
SECTIONS = {
    "[bookkeeper]": Daemon,
    "[reaper]": Reaper,
    "[tables.NAME]": Table,
    "[tables.NAME.retention]": Retention,
    "[tables.NAME.compaction]": Compaction,
    "[tables.NAME.evolve]": Evolve,
    "[tables.NAME.fold]": Fold,
    "[tables.NAME.service]": Service,
}
BEGIN = "<!-- {section}: made by `python -m tests.support.reference` -->\n"
END = "<!-- end -->\n"
_SPANS = {"d": 86_400_000, "h": 3_600_000, "m": 60_000, "s": 1000, "ms": 1}
_SIZES = {"TiB": 2**40, "GiB": 2**30, "MiB": 2**20, "KiB": 2**10}


def written(value: Any, size: bool = False) -> str:
    """
    A value as one writes it in TOML.
    """
    if value is None:
        return ""
    if isinstance(value, timedelta):
        whole = value // timedelta(milliseconds=1)
        return f'"{_in_units(whole, _SPANS)}"' if whole else '"0s"'
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, tuple):
        return "[" + ", ".join(written(item) for item in value) + "]"
    if size:
        return f'"{_in_units(value, _SIZES)}"'
    return f'"{value}"' if isinstance(value, str) else str(value)


def _in_units(count: int, units: Mapping[str, int]) -> str:
    return next((f"{count // worth}{unit}" for unit, worth in units.items() if count % worth == 0), str(count))


def allowed(limits: Mapping[str, Any]) -> str:
    """
    The limits of an option in words.
    """
    size = bool(limits.get("size"))
    parts = [f"{name.replace('_', ' ')} {written(limits[key], size)}" for key, name in _LIMITS if key in limits]
    return ", ".join(parts) or ", ".join(f"`{choice}`" for choice in limits.get("choices", ()))


_LIMITS = (("least", "at least"), ("most", "at most"))


def table(kind: type) -> str:
    """
    One section's options as a Markdown table.
    """
    limits = {item.name.replace("_", "-"): item.metadata for item in fields(kind)}
    rows = ["| key | default | meaning | allowed |", "|---|---|---|---|"]
    for key, default, help in defaults(kind):
        shown = written(default, bool(limits[key].get("size"))) if default not in ("", ()) else ""
        meaning = help.replace("<", "&lt;")
        rows.append(f"| `{key}` | {f'`{shown}`' if shown else ''} | {meaning} | {allowed(limits[key])} |")
    return "\n".join(rows) + "\n"


def renewed(text: str) -> str:
    """
    `text` with every generated table as the settings are now.
    """
    for section, kind in SECTIONS.items():
        begin = BEGIN.format(section=section)
        before, found, rest = text.partition(begin)
        assert found, f"{section} is not in {DOC.name}"
        text = before + begin + "\n" + table(kind) + "\n" + END + rest.partition(END)[2]
    return text


if __name__ == "__main__":
    DOC.write_text(renewed(DOC.read_text("utf-8")), "utf-8")
