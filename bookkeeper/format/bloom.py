"""
Bloom filters of Parquet files, by Iceberg's table properties `write.parquet.bloom-filter-...`.
"""

import logging
import math
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any

from bookkeeper.format.bounds import Leaf

log = logging.getLogger(__name__)
PREFIX = "write.parquet.bloom-filter-"
_ENABLED, _FPP, _NDV = (f"{PREFIX}{name}.column." for name in ("enabled", "fpp", "ndv"))
_MAX_BYTES = f"{PREFIX}max-bytes"
_LEAST, _DEFAULT, _MOST = 32, 2**20, 2**27


def bloom_filters(leaves: Iterable[Leaf], properties: Mapping[str, str]) -> dict[str, Any]:
    """
    pyarrow's `bloom_filter_options`. A column or value that it cannot take is left out, with one warning in the log.

    A filter takes at most `max-bytes` (1 MiB) of memory for each row group while it is filled; in the file it is as
    small as its values allow.
    """
    columns = {".".join(leaf.path): leaf for leaf in leaves}
    found = dict[str, Any]()
    for key, text in properties.items():
        name = key.removeprefix(_ENABLED)
        if not key.startswith(_ENABLED) or text.strip().lower() != "true":
            continue
        try:
            found[name] = _options(columns.get(name), name, properties)
        except ValueError as exc:
            _warn(name, str(exc))
    return found


@lru_cache(maxsize=1000)
def _warn(name: str, why: str) -> None:
    log.warning("no bloom filter for a column", extra={"action": "bloom-filter", "column": name, "cause": why})


def _options(leaf: Leaf | None, name: str, properties: Mapping[str, str]) -> dict[str, Any]:
    if leaf is None:
        raise ValueError("the table has no such column")
    if leaf.repeated or str(leaf.kind) == "boolean":
        raise ValueError("it is of booleans, or inside a list or map")
    fpp = float(properties.get(_FPP + name, 0.01))
    if not 0 < fpp < 1:
        raise ValueError(f"a false-positive probability of {fpp}: it lies between 0 and 1")
    most = int(properties.get(_MAX_BYTES, _DEFAULT))
    distinct = _distinct(min(max(most, _LEAST), _MOST), fpp)
    if distinct < 1:
        raise ValueError(f"a filter of {most} bytes takes no value at a false-positive probability of {fpp}")
    return {"ndv": max(1, min(int(properties.get(_NDV + name, distinct)), distinct)), "fpp": fpp}


def _distinct(most_bytes: int, fpp: float) -> int:
    """The values that a filter of at most so many bytes takes: pyarrow makes it a power of two large."""
    bits = 8 * 2 ** int(math.log2(most_bytes))
    return int(-bits * math.log(1 - fpp ** (1 / 8)) / 8)
