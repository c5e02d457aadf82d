"""
The pip line that installs a missing module.
"""

from bookkeeper.errors import ExtraMissing

#: top-level module -> the extra that brings it
EXTRAS = {
    "adlfs": "azure",
    "apscheduler": "reaper",
    "azure": "azure",
    "confluent_kafka": "kafka",
    "gcsfs": "gcs",
    "h11": "http",
    "psycopg2": "postgres",
    "pyspark": "spark",
    "requests": "kafka",
    "s3fs": "s3",
    "sqlalchemy": "daemon",
    "starlette": "http",
    "uvicorn": "http",
}
_OTHERS = {"MySQLdb": "mysqlclient"}


def extra_missing(exc: ModuleNotFoundError, what: str = "") -> ExtraMissing:
    """
    The error that names the module and its pip line; `what` needs it.
    """
    module = (exc.name or "").partition(".")[0]
    pip = f"'iceberg-bookkeeper[{EXTRAS[module]}]'" if module in EXTRAS else _OTHERS.get(module, module)
    why = f", and this needs it: {what}" if what else ""
    return ExtraMissing(f"{module} is not installed{why}", hint=f"Run: pip install {pip}")
