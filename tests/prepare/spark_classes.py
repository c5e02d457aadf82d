"""
Makes the archive of classes that Spark's JVMs in tests start with: a process of its own, for its JVM ends with it.
"""

import os
from pathlib import Path
from tempfile import TemporaryDirectory

from spark_jobs import session
from tests.servers import spark as prepared
from tests.support.spark_lake import name_of, new_lake, rows

#: until the JVM has written it: seconds, and more on a busy machine
_LONGEST_SECONDS = 600


def main() -> None:
    """
    Reads and streams a small table, and has the JVM write down what it loaded.
    """
    prepared.ready(os.environ)
    made = prepared.archive(os.environ)
    assert made is not None
    unfinished = made.with_suffix(f".{os.getpid()}")
    try:
        with TemporaryDirectory() as folder:
            _write(unfinished, Path(folder))
        unfinished.rename(made)
    finally:
        unfinished.unlink(missing_ok=True)


def _write(archive: Path, folder: Path) -> None:
    os.environ["SPARK_SUBMIT_OPTS"] = f"-XX:ArchiveClassesAtExit={archive} -Xlog:cds*=off {prepared.QUICK}"
    lake = new_lake(folder / "lake")
    table = lake.append(lake.new_table(), rows("ab"), rows("cde"))
    spark = session.build(lake.settings, app="classes")
    jvm = spark.sparkContext._gateway.proc
    try:
        spark.table(name_of(table)).groupBy("key").count().collect()
        stream = spark.readStream.table(name_of(table)).writeStream.format("noop")
        stream.option("checkpointLocation", f"{folder}/checkpoint").trigger(
            availableNow=True
        ).start().awaitTermination()
        spark.stop()
        jvm.stdin.close()
        jvm.wait(_LONGEST_SECONDS)
    finally:
        jvm.kill()


if __name__ == "__main__":
    main()
