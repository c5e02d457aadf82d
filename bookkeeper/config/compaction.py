"""
What rewrites a table's small files, and to which size: settings, table properties and defaults.
"""

from collections.abc import Mapping

from bookkeeper.config.settings import Compaction
from bookkeeper.errors import TableUnusable

#: of a table; `init` sets it in a table that it makes, so an adopted one has to say that it wants compaction
PROPERTY = "bookkeeper.compaction"
OWN, SPARK, OFF = ENGINES = ("own", "spark", "off")
TARGET = "write.target-file-size-bytes"
TARGET_BYTES = 2**28


def engine_of(settings: Compaction, properties: Mapping[str, str]) -> str:
    """
    OWN, SPARK or OFF: settings, else the table's property, else OFF; raises TableUnusable for a bad property.
    """
    if settings.engine is not None:
        return settings.engine
    found = properties.get(PROPERTY, OFF).strip().lower()
    if found not in ENGINES:
        raise TableUnusable(f"table property {PROPERTY} is {found[:60]!r}, not {', '.join(ENGINES)}", hint=_HINT)
    return found


def target_of(settings: Compaction, properties: Mapping[str, str]) -> int:
    """
    Bytes of a rewritten file: settings, else the table's property, else 256 MiB; raises TableUnusable for a bad one.
    """
    if settings.target_file_size is not None:
        return settings.target_file_size
    found = properties.get(TARGET, str(TARGET_BYTES)).strip()
    if not (found.isascii() and found.isdigit() and len(found) < 19 and int(found)):
        raise TableUnusable(f"table property {TARGET} is {found[:60]!r}, not a number of bytes", hint=_HINT)
    return int(found)


_HINT = "Correct or unset it."
