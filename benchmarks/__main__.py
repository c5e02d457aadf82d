"""
All benchmarks, one after the other; every table as it comes, and all of them as JSON lines.

    python -m benchmarks [--peer SCRIPT] [--big] [--only drain,curve]
"""

import importlib
import time
from collections.abc import Sequence

from benchmarks.support import harness
from benchmarks.support.machine import machine

ALL = (
    "drain",
    "commit",
    "curve",
    "retained",
    "retention",
    "rewrites",
    "expire",
    "memory",
    "visibility",
    "writing",
    "loading",
    "consumers",
    "latency",
    "isolation",
    "capacity",
    "compaction",
    "readers",
    "fold",
    "upsert_load",
    "upserts",
    "spark_sinks",
    "rows_over_http",
    "kafka_source",
    "kafka_slots",
    "kafka_connect",
)


def main(words: Sequence[str] | None = None) -> None:
    """
    Run them; what one of them cannot do ends that one only.
    """
    options = harness.parser(__doc__)
    options.add_argument("--only", default=",".join(ALL), help="which ones (default: %(default)s)")
    given = options.parse_args(words)
    given.results.unlink(missing_ok=True)
    chosen = harness.chosen(given)
    harness.quiet()
    facts = machine(chosen)
    chosen.report.keep({"machine": facts})
    print(facts["line"], flush=True)
    failed = [name for name in given.only.split(",") if not _run(name, chosen)]
    print(f"\nresults are in {given.results}" + (f"; failed: {', '.join(failed)}" if failed else ""))
    raise SystemExit(bool(failed))


def _run(name: str, chosen: harness.Chosen) -> bool:
    started = time.monotonic()
    try:
        importlib.import_module(f"benchmarks.{name}").measure(chosen)
    except Exception as exc:  # noqa: BLE001 half an hour of figures must not be lost for one of them
        print(f"\n{name} failed: {harness.reason(exc)}", flush=True)
        return False
    print(f"  [{name}: {time.monotonic() - started:.0f} s]", flush=True)
    return True


if __name__ == "__main__":
    main()
