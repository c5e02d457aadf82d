"""
Every Spark conf of the project, in one place, and the session built from them.

`confs` is pure; `build` starts Spark, also inside a JVM that spark-submit started.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from bookkeeper.console.options import pick_table
from bookkeeper.errors import NotPossible
from spark_jobs import prepare
from spark_jobs.translate import catalog_confs, hadoop_confs
from spark_jobs.versions import Package, packages

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    from bookkeeper.config.settings import Settings

TunedFor = Literal["local", "cluster"]

_EXTENSIONS = "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions"
_CATALOG = "org.apache.iceberg.spark.SparkCatalog"

_ALWAYS = {
    "spark.sql.extensions": _EXTENSIONS,
    "spark.sql.session.timeZone": "UTC",
    "spark.ui.showConsoleProgress": "false",
    # Spark's default does not know the names that Azure keys and REST credentials go by.
    "spark.redaction.regex": r"(?i)secret|password|token|access[.]?key|account[.-]key|shared-key|credential",
}
#: confs that may hold secrets
_CATALOGS_AND_STORAGE = ("spark.sql.catalog.", "spark.hadoop.")
_LOCAL = {
    "spark.master": "local[2]",
    "spark.ui.enabled": "false",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.memory": "1g",
    # Quick to start and small; a long job on a real machine is better off with Java's defaults.
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Xss4m",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.adaptive.enabled": "false",
}


def confs(
    settings: Settings,
    *,
    app: str,
    tuned_for: TunedFor = "local",
    extra: Mapping[str, str] | None = None,
    jars: Sequence[Path] = (),
    ivy: Path | None = None,
    more: Sequence[Package] = (),
) -> dict[str, str]:
    """
    Every conf of a session on the settings' catalog; `extra` wins. Raises ConfigInvalid.

    `jars` (by name, never a folder) go on the driver's class path; without them Spark resolves the packages, those that
    the catalog needs and `more`.
    """
    return {
        "spark.app.name": app,
        **_ALWAYS,
        **(_LOCAL if tuned_for == "local" else {}),
        **_classes(jars, ivy, _wanted(settings, more)),
        **_catalog(settings, extra or {}),
        **hadoop_confs(settings.catalog.properties),
        **(extra or {}),
    }


def _wanted(settings: Settings, more: Sequence[Package]) -> Sequence[Package]:
    return (*packages(settings.catalog.properties), *more)


def _classes(jars: Sequence[Path], ivy: Path | None, wanted: Sequence[Package]) -> dict[str, str]:
    if jars:
        return {"spark.driver.extraClassPath": ":".join(map(str, jars))}
    found = {"spark.jars.ivy": str(ivy)} if ivy else {}
    return {**found, "spark.jars.packages": _coordinates(wanted)}


def _coordinates(wanted: Sequence[Package]) -> str:
    return ",".join(package.coordinate for package in wanted)


def _catalog(settings: Settings, extra: Mapping[str, str]) -> dict[str, str]:
    prefix = f"spark.sql.catalog.{settings.catalog.name}"
    if f"{prefix}.catalog-impl" in extra or f"{prefix}.type" in extra:
        return {prefix: _CATALOG, f"{prefix}.cache-enabled": "false"}
    translated = catalog_confs(settings.catalog.properties)
    return {prefix: _CATALOG, **{f"{prefix}.{key}": value for key, value in translated.items()}}


def build(
    settings: Settings,
    *,
    app: str,
    tuned_for: TunedFor = "local",
    extra: Mapping[str, str] | None = None,
    more: Sequence[Package] = (),
) -> SparkSession:
    """
    A session on the settings' catalog, with `more` packages than that needs. Raises NotPossible.

    It needs `prepare.prepare` (or JAVA_HOME) first.

    Inside a JVM that spark-submit started, its command line decides over class path and memory.
    """
    from pyspark import SparkConf, SparkContext
    from pyspark.sql import SparkSession

    ivy = prepare.ivy_home({})
    wanted = _wanted(settings, more)
    jars = _local_jars(wanted, ivy)
    values = confs(
        settings,
        app=app,
        tuned_for=tuned_for,
        extra=extra,
        ivy=ivy,
        jars=jars if tuned_for == "local" else (),
        more=more,
    )
    # pyspark hands every conf of the first start to Java on its command line, which every user of the machine can read.
    shown = [(key, value) for key, value in values.items() if not key.startswith(_CATALOGS_AND_STORAGE)]
    SparkContext._ensure_initialized(conf=SparkConf(loadDefaults=False).setAll(shown))
    context = SparkContext.getOrCreate(SparkConf().setAll(list(values.items())))
    if str(context.master).startswith("local") and "PYSPARK_PYTHON" not in os.environ:
        context.pythonExec = sys.executable  # tasks that write need this package: Spark takes the first python3 on PATH
    _load_iceberg(context, jars, _coordinates(wanted))
    return SparkSession.builder.config(map={**values}).getOrCreate()


def _local_jars(wanted: Sequence[Package], ivy: Path) -> list[Path]:
    complete = all(package.alone for package in wanted) and not prepare.missing(wanted, ivy)
    return [package.jar(ivy) for package in wanted] if complete else []


def _load_iceberg(context: SparkContext, jars: Sequence[Path], coordinates: str) -> None:
    # A JVM that spark-submit started without --packages is running already: its class loader can still grow.
    jvm: Any = context._jvm
    loader = jvm.java.lang.Thread.currentThread().getContextClassLoader()
    if _loadable(loader):
        return
    if jars and re.match(r"local(\[|$)", str(context.master)):
        for jar in jars:
            loader.addURL(jvm.java.io.File(str(jar)).toURI().toURL())
        return
    raise NotPossible(
        "this Spark was started without Iceberg's classes",
        hint=f"Start it with: spark-submit --packages {coordinates} ...",
    )


def _loadable(loader: Any) -> bool:
    from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]

    try:
        loader.loadClass(_CATALOG)
    except Py4JJavaError:
        return False
    return True


def table_name(settings: Settings, name: str | None) -> str:
    """
    `catalog.namespace.table`, as Spark writes it, of the settings' table (None: the only one); raises ConfigInvalid.
    """
    return f"{settings.catalog.name}.{pick_table(settings, name).identifier}"
