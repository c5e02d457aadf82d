"""
A checkpoint as the query itself reaches it: through the Hadoop filesystems of its own JVM.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, TypeVar

from bookkeeper.errors import Missing, StorageUnavailable
from bookkeeper.stores.store import Listed

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

T = TypeVar("T")
_MISSING = "java.io.FileNotFoundException"


class HadoopCheckpointStore:
    """
    Reads objects below `url`, in any scheme that Spark can read. Raises StorageUnavailable.
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
        The whole object; raises Missing, StorageUnavailable.
        """

        def content() -> bytes:
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
