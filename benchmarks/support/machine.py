"""
The machine and the versions that results belong to.
"""

import os
import platform
import subprocess
from datetime import UTC, datetime
from importlib.metadata import version
from typing import Any


def machine(chosen: Any) -> dict[str, str]:
    """
    CPU, memory, disk, versions, date; `line` says it all in one.
    """
    facts = {
        "cpu": f"{os.cpu_count()} x {_cpu()}",
        "memory": f"{os.sysconf('SC_PAGE_SIZE') * os.sysconf('SC_PHYS_PAGES') / 2**30:.0f} GiB",
        "system": f"{platform.system()} {platform.release()}",
        "disk": _filesystem(str(chosen.work)),
        "python": platform.python_version(),
        "java": _java(),
        **{name: version(name) for name in ("pyiceberg", "pyarrow", "pyspark")},
        "size": chosen.size,
        "load": f"{os.getloadavg()[0]:.1f}",
        "at": datetime.now(UTC).isoformat(timespec="minutes"),
    }
    return {**facts, "line": ", ".join(f"{key} {value}" for key, value in facts.items())}


def _cpu() -> str:
    try:
        with open("/proc/cpuinfo") as lines:
            return next(line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.machine()


def _filesystem(path: str) -> str:
    found = subprocess.run(["df", "-T", path], capture_output=True, text=True)
    words = found.stdout.splitlines()[-1].split() if found.returncode == 0 else []
    return words[1] if len(words) > 1 else "?"


def _java() -> str:
    try:
        found = subprocess.run(["java", "-version"], capture_output=True, text=True)
    except OSError:
        return "none"
    return found.stderr.partition('"')[2].partition('"')[0] or "?"
