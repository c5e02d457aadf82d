"""
A checkpoint as the query itself reaches it: through the Hadoop filesystems of its own JVM.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, TypeVar

from bookkeeper.errors import Missing, StorageUnavailable, Unfit
from bookkeeper.stores.store import Listed

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

T = TypeVar("T")
#: of an offset log; the others are smaller
MOST_BYTES = 2**24
_MISSING = "java.io.FileNotFoundException"


class HadoopCheckpointStore:
    """
    Reads and writes objects below `url`, in any scheme that Spark can. Raises StorageUnavailable.
    """

    def __init__(self, spark: SparkSession, url: str) -> None:
        context: Any = spark.sparkContext  # the gateway to the JVM has no types
        self._jvm = context._jvm
        self._root = self._jvm.org.apache.hadoop.fs.Path(url)
        conf = context._jsc.hadoopConfiguration()
        self._fs = self._translated(lambda: self._root.getFileSystem(conf), url)
        self.url = str(self._fs.makeQualified(self._root).toString()).rstrip("/")

    def read(self, key: str) -> bytes:
        """
        The whole object; raises Missing, StorageUnavailable, and Unfit for one that is larger than any of a checkpoint.
        """

        def content() -> bytes:
            size = self._fs.getFileStatus(self._path(key)).getLen()
            if size > MOST_BYTES:
                raise Unfit(f"{self.url}/{key} has {size:,} bytes")
            stream = self._fs.open(self._path(key))
            try:
                return bytes(self._jvm.org.apache.commons.io.IOUtils.toByteArray(stream))
            finally:
                stream.close()

        return self._translated(content, f"{self.url}/{key}")

    def list(self, prefix: str) -> Iterator[Listed]:
        """
        The objects in the folder `prefix`, none where there is no such folder; raises StorageUnavailable.
        """
        try:
            found = self._translated(lambda: list(self._fs.listStatus(self._path(prefix))), f"{self.url}/{prefix}")
        except Missing:
            return
        for status in found:
            modified = datetime.fromtimestamp(status.getModificationTime() / 1000, UTC)
            yield Listed(f"{prefix}{status.getPath().getName()}", status.getLen(), modified)

    def write(self, key: str, data: bytes) -> None:
        """
        The object, whole or not at all, in the place of one that is there.

        A crash leaves what was there, or nothing, and an object whose name begins with a dot, which Spark passes over.
        """
        folder, _, name = key.rpartition("/")
        draft, path = self._path(f"{folder}/.{name}.{uuid.uuid4().hex}.tmp".lstrip("/")), self._path(key)

        def written() -> bool:
            stream = self._fs.create(draft)
            try:
                stream.write(bytearray(data))
            finally:
                stream.close()
            # Many filesystems rename onto nothing only.
            self._fs.delete(path, False)
            return bool(self._fs.rename(draft, path))

        if not self._translated(written, f"{self.url}/{key}"):
            raise StorageUnavailable(f"{self.url}/{key} cannot be written")

    def delete(self, key: str) -> None:
        """
        Delete the object, if it is there.
        """
        self._translated(lambda: self._fs.delete(self._path(key), False), f"{self.url}/{key}")

    def _path(self, key: str) -> Any:
        return self._jvm.org.apache.hadoop.fs.Path(self._root, key)

    @staticmethod
    def _translated(ask: Callable[[], T], where: str) -> T:
        from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]

        try:
            return ask()
        except Py4JJavaError as exc:
            cause = exc.java_exception
            if cause.getClass().getName() == _MISSING:
                raise Missing(f"{where} is not there") from exc
            raise StorageUnavailable(f"{where}: {cause.getMessage()}") from exc
