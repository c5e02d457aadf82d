"""
docs/metrics.md from the lists of families: `python -m tests.observe.metrics.reference` writes it anew.
"""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from bookkeeper.console.families import HISTOGRAM, Family
from bookkeeper.observe.metrics.prometheus import FAMILIES as BOOKKEEPER
from reaper.metrics import FAMILIES as REAPER
from writers.http.metrics import FAMILIES as HTTP
from writers.metrics import FAMILIES as WRITER
from writers.watch.metrics import FAMILIES as WATCH

DOC = Path(__file__).parents[3] / "docs" / "metrics.md"
_HEAD = """# Metrics

All metrics at `/metrics`, in Prometheus' text format. The tables are made from the code. Units are in
the names; times are seconds since 1970, 0 where something never was. [The alerts](../config/alerts.yml) and
[a Grafana dashboard](../config/grafana.json) are made of them; [operate](operate.md) says what to do.

Several bookkeepers may serve one table's series: the one that works on it serves all, one that stands by only its own
state. A table's series end when the table is removed. Of consumers, the 50 that use most of max-hold have series.
What is said of folds and deletes is of [keyed tables](upserts.md#watching) only.
"""
PARTS: tuple[tuple[str, str, tuple[Family[Any], ...]], ...] = (
    ("The bookkeeper", "`bookkeeper run`, at `listen` (http://127.0.0.1:9464/metrics).", BOOKKEEPER),
    (
        "The reaper",
        "`reaper run` with `--listen`, or with `--metrics` for node_exporter's textfile collector.",
        REAPER,
    ),
    (
        "Writers",
        "Commands of `writer` with `--listen` or `--metrics`; in the library `Writer.figures`.",
        WRITER,
    ),
    ("Rows over HTTP", "`writer serve` with `--listen`, beside those of its writers.", HTTP),
    ("Watched prefixes", "`writer watch` with `--listen` or `--metrics`, beside those of its writer.", WATCH),
)
FAMILIES = {family.name: family for _, _, families in PARTS for family in families}


#: of the client library, which serves it beside ours
_PROCESS = ("process_resident_memory_bytes", "process_start_time_seconds", "process_cpu_seconds_total", "up")


def labels_of(name: str) -> frozenset[str] | None:
    """
    The labels of a sample of this name; None where there is none.
    """
    if name in _PROCESS:
        return frozenset()
    family = FAMILIES.get(name)
    if family is not None:
        return None if family.kind == HISTOGRAM else frozenset(family.labels)
    base, _, part = name.rpartition("_")
    family = FAMILIES.get(base)
    if family is None or family.kind != HISTOGRAM or part not in ("bucket", "sum", "count"):
        return None
    return frozenset(family.labels) | ({"le"} if part == "bucket" else set())


def page() -> str:
    """
    The page.
    """
    return "\n".join([_HEAD, *(_part(*part) for part in PARTS)])


def _part(title: str, where: str, families: Iterable[Family[Any]]) -> str:
    rows = "\n".join(f"| `{it.name}` | {it.kind} | {', '.join(sorted(it.labels))} | {it.help} |" for it in families)
    return f"## {title}\n\n{where}\n\n| metric | kind | labels | |\n|---|---|---|---|\n{rows}\n"


if __name__ == "__main__":
    DOC.write_text(page(), "utf-8")
