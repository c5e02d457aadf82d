"""
The floor: the same bytes read, written and fsynced, with no Iceberg at all. Nothing can be faster and as safe.
"""

import os
from collections.abc import Iterable, Sequence
from pathlib import Path

#: the kernel takes several times as long for many MB at once
_PIECE = 2**20


def sizes_in(*folders: Path) -> dict[Path, int]:
    """
    The files there are now, with their sizes.
    """
    return {item: item.stat().st_size for folder in folders if folder.is_dir() for item in folder.iterdir()}


def written_since(before: dict[Path, int], *folders: Path) -> list[int]:
    """
    Bytes of each file that came since.
    """
    return [size for path, size in sizes_in(*folders).items() if path not in before]


def write_all(folder: Path, sizes: Sequence[int]) -> None:
    """
    As many files of these sizes, each durable under its name.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for size in sizes:
        data = bytes(size)
        with open(folder / os.urandom(8).hex(), "xb") as out:
            for start in range(0, size, _PIECE):
                out.write(data[start : start + _PIECE])
            out.flush()
            os.fsync(out.fileno())
        handle = os.open(folder, os.O_RDONLY)
        os.fsync(handle)
        os.close(handle)


def read_all(paths: Iterable[Path]) -> int:
    """
    Bytes read.
    """
    return sum(len(path.read_bytes()) for path in paths)
