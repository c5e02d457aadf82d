"""
A Java and Spark's jars as `make prepare` leaves them; a test fetches none.
"""

import os
from collections.abc import MutableMapping, Sequence

from spark_jobs import prepare
from spark_jobs.versions import ALL, EMBEDDED, Package
from tests.servers.installed import missing
from tests.servers.needed import needed

#: a Java without a compiler of its own takes this one
ECJ = Package("org.eclipse.jdt", "ecj", "3.40.0")
EVERY = (*ALL, ECJ)


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


def wanted(packages: Sequence[Package] = EMBEDDED) -> prepare.Ready:
    """
    The same for a test: skips it where something is not prepared, fails it with CI=true. Sets JAVA_HOME.
    """
    with needed("spark"):
        return ready(os.environ, packages)
