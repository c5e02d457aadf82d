"""
What runs on Spark in `tests.catalogs.kills`: a stream of the table into another one, and a compaction now and then.

Both reach the tables with the keys that the catalog hands out; Java renews them.
"""

import json
import os
import sys
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

from spark_jobs.versions import AWS, ICEBERG
from tests.servers import spark as prepared
from tests.soak.plan import COPIED, SPARK
from tests.support.crew import Crew

COMPACTION = "compaction"
ROLES = (SPARK, COMPACTION)
OUTPUT = f"demo.{COPIED}"
#: a compaction says by 4 that a group is left: another rewrite was first, or the bookkeeper is not there yet
_CODES = {COMPACTION: (0, 4)}
_MEMORY = "512m"


@dataclass
class OnSpark:
    """
    The two programs: the stream always runs, the compaction begins about `every` seconds after the last one has ended.
    On the average `pause` seconds are between two kills of either.
    """

    config: Path
    place: Path
    random: Random
    pause: float = 120
    every: float = 45
    codes: Counter[str] = field(default_factory=Counter)
    #: lines of `progress` when the stream was last killed
    seen: int = 0
    due: dict[str, float] = field(default_factory=dict)
    environ: dict[str, str] = field(default_factory=lambda: dict(os.environ))

    def __post_init__(self) -> None:
        prepared.ready(self.environ, (ICEBERG, AWS))
        prepared.use_archive(self.environ, interpreted=False)

    @property
    def progress(self) -> Path:
        """A line for each micro-batch."""
        return self.place / "progress.ndjson"

    def begin(self, crew: Crew, now: float) -> None:
        """Starts the stream."""
        self._start(crew, SPARK, self._stream("5s"))
        self.due = {"kill": now + self._soon(self.pause), COMPACTION: now + self._soon(self.every)}

    def go_on(self, crew: Crew, now: float) -> list[str]:
        """Starts and kills what is due; returns the roles that were killed."""
        if COMPACTION in crew.running:
            self.due[COMPACTION] = max(self.due[COMPACTION], now + self._soon(self.every))
        elif now >= self.due[COMPACTION]:
            self._start(crew, COMPACTION, self._compaction())
        if now < self.due["kill"]:
            return []
        self.due["kill"] = now + self._soon(self.pause)
        role = self.random.choice([role for role in ROLES if role in crew.running])
        if role == SPARK and self._batches() == self.seen and self.random.random() < 0.7:
            return []  # on a busy machine it would never get to its work
        crew.kill(role, family=True)
        if role == SPARK:
            self.seen = self._batches()
            self._start(crew, SPARK, self._stream("5s"))
        return [role]

    def _batches(self) -> int:
        return self.progress.read_bytes().count(b"\n") if self.progress.exists() else 0

    def ended(self, role: str, code: int) -> bool:
        """Notes that a program has ended by itself; whether it may, with this code."""
        self.codes[f"{role} {code}"] += 1
        return code in _CODES.get(role, ())

    def settle(self, crew: Crew) -> None:
        """The stream reads the rest; raises AssertionError where it cannot."""
        if COMPACTION in crew.running:
            assert self.ended(COMPACTION, crew.wait(COMPACTION)), self._said(crew, COMPACTION)
        crew.kill(SPARK, family=True)
        self._start(crew, SPARK, self._stream("available-now"))
        assert crew.wait(SPARK) == 0, self._said(crew, SPARK)

    def counts(self) -> Iterable[tuple[str, Any]]:
        """Lines of the report."""
        batches = [json.loads(line) for line in self.progress.read_text("utf-8").splitlines()]
        yield "Spark: micro-batches with rows", sum(batch.get("rows", 0) > 0 for batch in batches)
        yield "Spark: ended by itself", dict(self.codes)
        said = (self.place / f"{COMPACTION}.log").read_text("utf-8", "replace")
        yield "Spark: rewrites published", said.count("-- rewrite ")

    def _start(self, crew: Crew, role: str, words: list[str]) -> None:
        crew.start(role, words, env=self.environ)

    def _soon(self, seconds: float) -> float:
        return seconds * (0.5 + self.random.random())

    def _stream(self, trigger: str) -> list[str]:
        words = ["--checkpoint", str(self.place / "checkpoint"), "--sink", f"table:{OUTPUT}", "--consumer", SPARK]
        return self._job("read_stream", *words, "--trigger", trigger, "--progress", str(self.progress))

    def _compaction(self) -> list[str]:
        return self._job("compact", "--older-than", "1s", "--min-input-files", "2", "--in-flight", "2", "--wait", "1m")

    def _job(self, name: str, *more: str) -> list[str]:
        conf = {"spark.master": "local[1]", "spark.ui.enabled": "false", "spark.driver.memory": _MEMORY}
        said = [f"--conf={key}={value}" for key, value in conf.items()]
        words = [sys.executable, "-m", f"spark_jobs.{name}", "--config", str(self.config), "--table", "events"]
        return [*words, *more, *said]

    @staticmethod
    def _said(crew: Crew, role: str) -> str:
        return crew.log(role).read_text("utf-8", "replace")[-3000:]


def kind_of(headers: Mapping[str, str]) -> str:
    """Whether a request to the catalog is of Java."""
    known = {key.lower(): value for key, value in headers.items()}
    return " by Spark" if known.get("x-client-version", "").startswith("Apache Iceberg") else ""
