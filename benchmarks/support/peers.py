"""
The peers: a bookkeeper in Iceberg Java (any script that speaks the verbs below), and stock pyiceberg.

The script is `SCRIPT VERB --dir D [--option value ...]` and prints one JSON line: write, drain, loop, retention,
expire, writers, each with --catalog hadoop|jdbc and --cols N.
"""

import json
import subprocess
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bookkeeper.format.entries import DataFile

HADOOP_CATALOG, JDBC_CATALOG = "hadoop", "jdbc"


@dataclass(frozen=True, slots=True)
class Peer:
    """The Java peer."""

    script: str

    def run(self, verb: str, folder: Path, catalog: str, **options: object) -> Any:
        """What it says about one verb; raises CalledProcessError."""
        given = {"dir": folder, "catalog": catalog, **{key.replace("_", "-"): value for key, value in options.items()}}
        words = [word for key, value in given.items() for word in (f"--{key}", str(value))]
        done = subprocess.run([self.script, verb, *words], stdout=subprocess.PIPE, text=True, check=True)
        return json.loads(done.stdout.splitlines()[-1])


def open_peer(script: str | None) -> Peer | None:
    """
    The peer, or None without a script.
    """
    return Peer(str(Path(script).resolve())) if script else None


def stock_append(table: Any, files: Iterable[Any]) -> None:
    """
    pyiceberg's own fast append.
    """
    with table.transaction() as change, change.update_snapshot().fast_append() as append:
        for file in files:
            append.append_data_file(file)


def stock_file(file: DataFile) -> Any:
    """
    Our DataFile as pyiceberg's.
    """
    from pyiceberg.manifest import DataFile as StockFile
    from pyiceberg.manifest import DataFileContent, FileFormat
    from pyiceberg.typedef import Record

    made = StockFile.from_args(
        content=DataFileContent.DATA,
        file_path=file.path,
        file_format=FileFormat.PARQUET,
        partition=Record(*file.partition),
        record_count=file.record_count,
        file_size_in_bytes=file.size_bytes,
        column_sizes=file.column_sizes,
        value_counts=file.value_counts,
        null_value_counts=file.null_value_counts,
        nan_value_counts=file.nan_value_counts,
        lower_bounds=file.lower_bounds,
        upper_bounds=file.upper_bounds,
        split_offsets=[4],
        sort_order_id=0,
        equality_ids=None,
        key_metadata=None,
    )
    made.spec_id = 0
    return made
