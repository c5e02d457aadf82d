"""
A job for a cluster whose workers lack this project: a batch and a stream into a table, and where its tasks ran.

    spark-submit --archives packages.zip#packages ... cluster_job.py TXLOG_FOLDER FOLDER
"""

import sys
from collections.abc import Iterator

ROWS = 200


def main(folder: str, work: str) -> None:
    """Prints a line for each worker: the folder of its executor, and the file that it imports this project from."""
    from pyspark.sql import SparkSession

    from spark_jobs.sink import into, write

    spark = SparkSession.builder.getOrCreate()

    def places(part: Iterator[int]) -> Iterator[str]:
        import os
        import time

        import writers

        list(part)
        time.sleep(2)
        yield f"{os.getcwd()} {writers.__file__}"

    print(*sorted({*spark.sparkContext.parallelize(range(8), 4).mapPartitions(places).collect()}), sep="\n")
    columns = ("timestamp'2026-03-01 12:00:00' AS timestamp", "concat(kind, '-', id) AS key", "unhex('01') AS value")
    rows = spark.range(ROWS).repartition(4).selectExpr("id", "'batch' AS kind").selectExpr(*columns)
    assert write(rows, folder, name="job", position="1", distribution="hash") == ROWS
    spark.range(ROWS).repartition(4).selectExpr("id", "'stream' AS kind").write.json(f"{work}/in")
    stream = spark.readStream.schema("id long, kind string").json(f"{work}/in").selectExpr(*columns)
    sink = into(folder, name="query", checkpoint=f"{work}/cp")
    query = stream.writeStream.foreachBatch(sink).option("checkpointLocation", f"{work}/cp")
    query.trigger(availableNow=True).start().awaitTermination()
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
