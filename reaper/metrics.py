"""
What the reaper did and which consumers are at risk, as a Prometheus text file for node_exporter's textfile collector.

The file is replaced as a whole after each run; a scraper never sees half of one.
"""

import os
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime

from reaper.files import Reaped

_HELP = {
    "reaper_last_success_timestamp_seconds": "when a run over the table last came to its end",
    "reaper_snapshots_expired_total": "snapshots expired since the start",
    "reaper_files_deleted_total": "files deleted since the start, orphans included",
    "reaper_bytes_deleted_total": "bytes deleted since the start",
    "reaper_consumer_max_hold_used_ratio": "share of max-hold that a consumer uses; at 1 it is cut off",
}


@dataclass
class Metrics:
    """The figures of all tables; `path` is the file they are written to."""

    path: str
    done: dict[str, Reaped] = field(default_factory=dict)
    ended: dict[str, datetime] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def note(self, table: str, done: Reaped, now: datetime) -> None:
        """One more run over this table ended; raises OSError when the file cannot be written."""
        with self._lock:
            # Consumers are as this run saw them, the rest adds up.
            self.done[table] = self.done.get(table, Reaped()).without_consumers() + done
            self.ended[table] = now
            fresh = f"{self.path}.{os.getpid()}.tmp"
            with open(fresh, "w", encoding="utf-8") as file:
                file.write("".join(self._lines()))
            os.replace(fresh, self.path)

    def _lines(self) -> Iterator[str]:
        for name, text in _HELP.items():
            kind = "counter" if name.endswith("_total") else "gauge"
            yield f"# HELP {name} {text}\n# TYPE {name} {kind}\n"
            for table in sorted(self.done):
                yield from (f"{name}{{{labels}}} {value}\n" for labels, value in self._values(name, table))

    def _values(self, name: str, table: str) -> Iterator[tuple[str, float]]:
        done, label = self.done[table], f'table="{table}"'
        files = done.data_files + done.manifests + done.metadata_files + done.orphans
        plain = {
            "reaper_last_success_timestamp_seconds": self.ended[table].timestamp(),
            "reaper_snapshots_expired_total": done.snapshots,
            "reaper_files_deleted_total": files,
            "reaper_bytes_deleted_total": done.bytes,
        }
        if name in plain:
            yield label, plain[name]
            return
        for consumer, state, used in done.consumers:
            yield f'{label},consumer="{consumer}",state="{state}"', round(used, 4)
