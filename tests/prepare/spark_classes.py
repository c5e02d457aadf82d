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
    with TemporaryDirectory() as folder:
        unfinished = made.with_suffix(f".{os.getpid()}")
        os.environ["SPARK_SUBMIT_OPTS"] = f"-XX:ArchiveClassesAtExit={unfinished} -Xlog:cds*=off"
        lake = new_lake(Path(folder, "lake"))
        table = lake.append(lake.new_table(), rows("ab"), rows("cde"))
        spark = session.build(lake.settings, app="classes")
        jvm = spark.sparkContext._gateway.proc
        spark.table(name_of(table)).groupBy("key").count().collect()
        stream = spark.readStream.table(name_of(table)).writeStream.format("noop")
        stream.option("checkpointLocation", f"{folder}/checkpoint").trigger(
            availableNow=True
        ).start().awaitTermination()
        spark.stop()
        jvm.stdin.close()
        try:
            jvm.wait(_LONGEST_SECONDS)
        finally:
            jvm.kill()
    unfinished.rename(made)


if __name__ == "__main__":
    main()
