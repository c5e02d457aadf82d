"""
The project as its packaging files describe it: read here, judged in the tests.
"""

import os
import subprocess
from collections.abc import Iterator, Mapping
from configparser import ConfigParser
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[2]
_LEAKING = ("MAKE", "MFLAGS", "PYTHON", "VIRTUAL_ENV", "GNUMAKEFLAGS")


def setup() -> ConfigParser:
    """
    setup.cfg.
    """
    parsed = ConfigParser(interpolation=None)
    parsed.read(ROOT / "setup.cfg", encoding="utf-8")
    return parsed


def requirements() -> dict[str, list[Requirement]]:
    """
    What each extra asks for; "" is the base.
    """
    parsed = setup()
    texts = {"": parsed["options"]["install_requires"], **parsed["options.extras_require"]}
    return {extra: [Requirement(line) for line in text.split("\n") if line] for extra, text in texts.items()}


def every_requirement() -> Iterator[Requirement]:
    """
    What the base and all extras ask for.
    """
    for wanted in requirements().values():
        yield from wanted


def pins() -> dict[str, str]:
    """
    The versions of constraints.txt by normalised name; raises ValueError for a line that is no exact pin.
    """
    found = {}
    for line in (ROOT / "constraints.txt").read_text("utf-8").splitlines():
        if line and not line.startswith("#"):
            name, version = line.split("==")
            found[canonicalize_name(name)] = version
    return found


def console_scripts() -> dict[str, str]:
    """
    `module:function` by command.
    """
    lines = setup()["options.entry_points"]["console_scripts"].split("\n")
    return {name.strip(): target.strip() for name, target in (line.split("=") for line in lines if line)}


def packages() -> list[str]:
    """
    The top-level packages that an installation has.
    """
    return [line.rstrip("*") for line in setup()["options.packages.find"]["include"].split("\n") if line]


def clean_environ(**changes: str) -> dict[str, str]:
    """
    The environment without what a surrounding make or virtualenv puts there.
    """
    kept = {key: value for key, value in os.environ.items() if not key.startswith(_LEAKING)}
    return kept | changes


def run(*command: str, cwd: Path = ROOT, environ: Mapping[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    """
    Runs a command to its end; what it printed is in the result, whatever its exit code.
    """
    return subprocess.run(command, cwd=cwd, env=environ or clean_environ(), capture_output=True, text=True, timeout=120)
