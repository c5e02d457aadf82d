"""
spark-submit to a standalone master with two workers that lack this project: its packages go with the job.

`CLUSTER_TEST=1 python -m pytest tests/spark/test_cluster.py`: it installs packages with pip, and takes a minute.
"""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pyspark
import pytest

from tests.packaging.project import ROOT
from tests.servers import spark as prepared
from tests.servers.process import LOOPBACK, Server, free_port
from tests.spark.test_jobs import SUBMIT, environment, run, ticking
from tests.support import cluster_job
from tests.support.lake import Lake, WallClock

pytestmark = pytest.mark.skipif("CLUSTER_TEST" not in os.environ, reason="installs packages, a minute: CLUSTER_TEST=1")
HOME = Path(pyspark.__file__).parent
#: without this project, and without pyarrow
BARE_PYTHON = str(Path(sys.executable).resolve())


@pytest.fixture
def master(tmp_path: Path) -> Iterator[str]:
    """The URL of a master with two workers of one core."""
    java = str(prepared.wanted().java_home)
    given = {"SPARK_LOCAL_IP": LOOPBACK, "SPARK_HOME": str(HOME), "JAVA_HOME": java}
    options = {"env": {key: value for key, value in environment(**given).items() if not key.startswith("PYTHON")}}
    port = free_port()

    def server(name: str, port: int, *words: str) -> Server:
        command = [f"{HOME}/bin/spark-class", *words]
        return Server(name, port, command, tmp_path / f"{name}.log", {}, options=options)

    at = f"spark://{LOOPBACK}:{port}"
    first = ("org.apache.spark.deploy.master.Master", "--host", LOOPBACK, "--port", str(port), "--webui-port", "0")
    servers = [server("master", port, *first)]
    for name in ("worker1", "worker2"):
        web, folder = free_port(), str(tmp_path / name)
        words = ("--host", LOOPBACK, "--webui-port", str(web), "--cores", "1", "--memory", "1g", "-d", folder, at)
        servers.append(server(name, web, "org.apache.spark.deploy.worker.Worker", *words))
    try:
        for item in servers:
            item.start()
        yield at
    finally:
        for item in reversed(servers):
            item.stop()


def test_the_packages_reach_the_tasks_as_an_archive(master: str, tmp_path: Path) -> None:
    packages, lake = tmp_path / "packages", Lake(tmp_path / "lake", WallClock(), file_names="strict")
    run([sys.executable, "-m", "pip", "install", "--quiet", "--target", str(packages), str(ROOT)])
    shutil.make_archive(str(packages), "zip", packages)
    with pytest.raises(subprocess.CalledProcessError):
        subprocess.run([BARE_PYTHON, "-c", "import writers"], cwd=tmp_path, check=True, capture_output=True)

    command = [SUBMIT, "--master", master, "--archives", f"{packages}.zip#packages"]
    for conf in ("executorEnv.PYTHONPATH=packages", f"pyspark.python={BARE_PYTHON}", "executor.memory=512m"):
        command += ["--conf", f"spark.{conf}"]
    environ = environment(SPARK_LOCAL_IP=LOOPBACK, JAVA_HOME=str(prepared.wanted().java_home))
    del environ["PYSPARK_PYTHON"]
    command += ["--conf", f"spark.pyspark.driver.python={sys.executable}", "--conf", "spark.ui.enabled=false"]
    with ticking(lake):
        said = run([*command, cluster_job.__file__, lake.made.folder, str(tmp_path / "work")], env=environ)
    lines = [line.split() for line in said.splitlines() if line.startswith(str(tmp_path))]
    assert [Path(folder).relative_to(tmp_path).parts[0] for folder, _ in lines] == ["worker1", "worker2"]
    assert [f"{folder}/packages/writers/__init__.py" for folder, _ in lines] == [file for _, file in lines]
    wanted = [f"{kind}-{number}" for kind in ("batch", "stream") for number in range(cluster_job.ROWS)]
    assert (lake.keys(), lake.rejected()) == (sorted(wanted), {})
