"""
docs/metrics.md from what a run really tells: `python -m tests.metrics.reference` writes it anew.
"""

import re
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path

from bookkeeper.streams.registry import Registry, spark
from reaper.compaction.compactor import Compacted
from reaper.metrics import Metrics
from reaper.result import Reaped
from tests.support.checkpoints import Query, offset
from tests.support.compactor import live, published
from tests.support.folds import damaged
from tests.support.keyed import KEYED, Upserts
from tests.support.lake import Writes
from tests.support.watched import Watched, samples
from writers.metrics import WriterMetrics as WriterFigures

DOC = Path(__file__).parents[2] / "docs" / "metrics.md"
_HEAD = """# Metrics

All metrics at `/metrics`, in Prometheus' text format. The tables are made from a run. Units are in
the names; times are seconds since 1970, 0 where something never was. [The alerts](../config/alerts.yml) and
[a Grafana dashboard](../config/grafana.json) are made of them; [operate](operate.md) says what to do.

Several bookkeepers may serve one table's series: the one that works on it serves all, one that stands by only its own
state. A table's series end when the table is removed. Of consumers, the 50 that use most of max-hold have series.
What is said of folds and deletes is of [keyed tables](upserts.md#watching) only.
"""
_PARTS = (
    ("The bookkeeper", "`bookkeeper run`, at `listen` (http://127.0.0.1:9464/metrics)."),
    ("The reaper", "`reaper run` with `--listen`, or with `--metrics` for node_exporter's textfile collector."),
    (
        "Writers",
        "`writer generate` and `writer lines` with `--listen` or `--metrics`; in the library `Writer.figures`.",
    ),
)


def texts(root: Path) -> tuple[str, str, str]:
    """
    What bookkeeper, reaper and a writer tell once everything has happened that has a metric.
    """
    watched = Watched()
    keyed = watched.add(root, "orders", **KEYED)
    writer = Upserts(keyed)
    for value in "ab":
        writer.publish(value)
        watched.turn(seconds=70)
    damaged(keyed)
    writer.publish("c")
    watched.turn(2, seconds=70)
    lake = watched.add(root)
    Writes(lake).publish("a")
    lake.put("pending/none.txlog.avro", b"x")
    watched.turn()
    published(lake, live(lake))
    published(lake, live(lake), record_count=99)
    watched.turn(seconds=70)
    query, reaper = Query(lake.root / "checkpoint"), Metrics()
    Registry(lake.folder.store).add(spark("live", query.url, watched.clock.now, by="command"))
    head = lake.table().metadata.current_snapshot_id
    assert head is not None
    query.begin(offset(-1)).done(offset(head))
    watched.look()
    reaper.note("events", Reaped(consumers=(("live", "live", 0.1),)), watched.clock.now)
    reaper.note_compacted("events", Compacted("own", left_alone={"deletes": 1}), watched.clock.now)
    return watched.ask("/metrics")[1], reaper.text(), WriterFigures("w1").text()


def page(told: Iterable[str]) -> str:
    """
    The page.
    """
    parts = []
    for (title, where), text in zip(_PARTS, told, strict=True):
        rows = "\n".join(f"| `{name}` | {kind} | {labels} | {about} |" for name, kind, labels, about in _rows(text))
        parts.append(f"## {title}\n\n{where}\n\n| metric | kind | labels | |\n|---|---|---|---|\n{rows}\n")
    return "\n".join([_HEAD, *parts])


def _rows(text: str) -> Iterator[tuple[str, str, str, str]]:
    found = samples(text)
    for name, about in re.findall(r"^# HELP (\S+) (.*)$", text, re.MULTILINE):
        if not name.startswith(("bookkeeper_", "reaper_", "writer_")):
            continue
        kind = re.findall(rf"^# TYPE {name} (\w+)$", text, re.MULTILINE)[0]
        labels = {label for (sample, pairs) in found if _belongs(sample, name, kind) for label, _ in pairs}
        yield name, kind, ", ".join(sorted(labels - {"le"})), about.replace("|", "\\|")


def _belongs(sample: str, name: str, kind: str) -> bool:
    return sample == name or (kind == "histogram" and sample in (f"{name}_bucket", f"{name}_count"))


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as place:
        DOC.write_text(page(texts(Path(place))), "utf-8")
