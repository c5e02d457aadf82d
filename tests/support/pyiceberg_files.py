"""
What the lakes share: a catalog on SQLite and local disk, and data files as pyiceberg's own types describe them.
"""

import os
from pathlib import Path
from typing import Any

from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.typedef import Record

from bookkeeper.config.settings import Catalog


def sqlite_catalog(root: Path, name: str = "lake", **properties: str) -> Catalog:
    """
    The settings of a catalog in `root`, with its warehouse there too.
    """
    kind = {} if "py-catalog-impl" in properties else {"type": "sql"}
    where = {"uri": f"sqlite:///{root}/catalog.db", "warehouse": f"file://{root}"}
    return Catalog(name, {**kind, **where, **properties})


def parquet_file(location: str, spec_id: int = 0, partition: tuple[Any, ...] = (), **described: Any) -> DataFile:
    """
    A Parquet file for pyiceberg's own appends; its size is that on the disk, unless given.
    """
    size = described.pop("file_size_in_bytes", None) or os.path.getsize(location.removeprefix("file://"))
    file = DataFile.from_args(
        content=DataFileContent.DATA,
        file_path=location,
        file_format=FileFormat.PARQUET,
        partition=Record(*partition),
        file_size_in_bytes=size,
        **described,
    )
    file.spec_id = spec_id
    return file
