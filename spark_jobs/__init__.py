"""
Spark beside the bookkeeper: jobs that read the queue, write next to it, and maintain it on a cluster.

`session` owns every Spark conf; each job is one file that runs as `python -m spark_jobs.<job>` and through
`spark-submit`. Nothing here commits txlogs.
"""
