"""
A Java and Spark's jars as `make prepare` leaves them; a test fetches none.
"""

import hashlib
import os
import subprocess
import sys
from collections.abc import Mapping, MutableMapping, Sequence
from functools import cache
from importlib.metadata import version
from pathlib import Path
from tempfile import mkdtemp
from typing import Any
from unittest.mock import patch

from bookkeeper.config.settings import Settings
from spark_jobs import prepare, session
from spark_jobs.versions import ALL, EMBEDDED, KAFKA, Package
from tests.servers.installed import missing
from tests.servers.needed import needed

#: a Java without a compiler of its own takes this one
ECJ = Package("org.eclipse.jdt", "ecj", "3.40.0")
EVERY = (*ALL, KAFKA, ECJ)
#: for a JVM that lives for seconds
QUICK = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
#: for queries over few rows, whose code takes longer to make than to run
INTERPRETED = "-Dspark.sql.codegen.wholeStage=false -Dspark.sql.codegen.factoryMode=NO_CODEGEN"
#: of Spark's jars, what a program in Java needs beside Iceberg's
LIBRARIES = ("hadoop-client-api", "hadoop-client-runtime", "slf4j-api", "zstd-jni")


def ready(environ: MutableMapping[str, str], packages: Sequence[Package] = EMBEDDED) -> prepare.Ready:
    """
    Sets JAVA_HOME in `environ`, and says where the jars are; raises Unavailable.
    """
    ivy = prepare.ivy_home(environ)
    absent = prepare.missing(packages, ivy)
    if absent:
        raise missing(", ".join(package.coordinate for package in absent), ivy, "spark")
    home = prepare.ready_java(environ)
    if home is None:
        raise missing("a Java that Spark runs on", "JAVA_HOME, the PATH or the virtualenv", "spark")
    return prepare.Ready(home, tuple(package.jar(ivy) for package in packages), ())


def ready_with_classes(environ: MutableMapping[str, str]) -> None:
    """
    All of it, and the archive of classes; raises Unavailable.
    """
    ready(environ, EVERY)
    if not (made := archive(environ)) or not made.is_file():
        raise missing("the archive of Spark's classes", sys.prefix, "spark")


def archive(environ: Mapping[str, str]) -> Path | None:
    """
    Where the classes that Spark loads are kept, parsed, for this Java and these jars; None without a Java.

    With it a JVM of Spark starts in half of the time. One that has another class path leaves it alone.
    """
    home = prepare.ready_java(dict(environ))
    if home is None:
        return None
    ivy = prepare.ivy_home(environ)
    parts = [home, sys.prefix, version("pyspark"), *(str(package.jar(ivy)) for package in EMBEDDED)]
    return Path(sys.prefix, f"spark-classes-{hashlib.sha256(repr(parts).encode()).hexdigest()[:12]}.jsa")


def use_archive(environ: MutableMapping[str, str], interpreted: bool = True) -> None:
    """
    JVMs of Spark that `environ` starts take their classes from the archive, where there is one.

    They live for seconds: compilers that pay later, and a collector in threads of its own, cost more than they bring.
    `interpreted`: so does code that Spark makes for each query.
    """
    options = f"{QUICK} {INTERPRETED}" if interpreted else QUICK
    if (made := archive(environ)) and made.is_file():
        options = f"-XX:SharedArchiveFile={made} -Xshare:auto -Xlog:cds*=off {options}"
    environ["SPARK_SUBMIT_OPTS"] = options


def wanted(packages: Sequence[Package] = EMBEDDED) -> prepare.Ready:
    """
    The same for a test: skips it where something is not prepared, fails it with CI=true. Sets JAVA_HOME.
    """
    with needed("spark"):
        return ready(os.environ, packages)


def compiled(source: Path, classes: Path) -> list[str]:
    """
    Compiles `source` into `classes`; returns the class path that it runs with.
    """
    import pyspark

    found = wanted()
    jars = Path(pyspark.__file__).parent / "jars"
    path = [*found.jars, *(jar for name in LIBRARIES for jar in jars.glob(f"{name}-[0-9]*.jar")), classes]
    compiler = [f"{found.java_home}/bin/javac"]
    if not Path(compiler[0]).is_file():
        (ecj,) = wanted((ECJ,)).jars
        compiler = [f"{found.java_home}/bin/java", "-jar", str(ecj), "-17"]
    words = [*compiler, "-cp", ":".join(map(str, path)), "-d", str(classes), str(source)]
    done = subprocess.run(words, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr + done.stdout
    return [*map(str, path)]


@cache
def _in_process_files() -> str:
    classes = mkdtemp(prefix="bookkeeper-classes-")
    compiled(Path(__file__).parents[1] / "support" / "java" / "InProcessFiles.java", Path(classes))
    return classes


def session_on(settings: Settings, app: str) -> Any:
    """
    A Spark session for tests: it starts no process for each file that it writes.
    """
    wanted()
    files = {"fs.file.impl": "InProcessFiles", "fs.AbstractFileSystem.file.impl": "InProcessFiles$Context"}
    with patch.dict(os.environ, SPARK_DIST_CLASSPATH=_in_process_files()):
        return session.build(settings, app=app, extra={f"spark.hadoop.{key}": name for key, name in files.items()})
