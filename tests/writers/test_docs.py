"""The examples in docs/writers.md run as they stand."""

import os
import re
import shlex
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from tests.packaging.project import ROOT, run
from tests.support.desk import Desk, rows
from writers.cli import main

TEXT = (Path(__file__).parents[2] / "docs" / "writers.md").read_text("utf-8")
BLOCKS = re.findall(r"```python\n(.*?)```", TEXT.partition("\n## Bare files\n")[0], re.DOTALL)


def test_the_library_examples_run(local: Desk) -> None:
    local.set_card(txlog_versions=(1, 2, 3))
    known = {"folder": f"{local.root}/_bookkeeper"}
    # The client of `writer serve` is run by tests/http/test_page.py.
    blocks = [block for block in BLOCKS if "sys.argv" not in block and "writers.http" not in block]
    assert len(blocks) == 3
    for block in blocks:
        exec(block, known)
    assert local.keys() == ["sensor-1"] * 5
    exec(blocks[1], known)
    assert local.keys() == ["sensor-1"] * 5, "the source was loaded before"
    assert [dict(item.offsets) for item in local.txlogs() if item.offsets] == [{"orders/0": "4711", "orders/1": "42"}]


def test_the_recipe_for_many_processes_runs_as_a_program(local: Desk, tmp_path: Path) -> None:
    (block,) = [block for block in BLOCKS if "sys.argv" in block]
    copied(local, tmp_path, block)


def test_the_recipe_for_ray_runs_as_a_program(local: Desk, tmp_path: Path) -> None:
    pytest.importorskip("ray", reason="Ray is none of the packages that the tests bring")
    (block,) = [block for block in BLOCKS if "sys.argv" in block]
    (call,) = re.findall(r"^    (writer\.take\(ray\..*)$", TEXT, re.MULTILINE)
    head, _, rest = block.partition("        with ProcessPoolExecutor")
    tail = rest[rest.index("        writer.publish()") :]
    copied(
        local, tmp_path, "import ray\n" + head.replace("def copy", "@ray.remote\ndef copy") + f"        {call}\n{tail}"
    )


def copied(desk: Desk, folder: Path, program: str) -> None:
    """Runs a recipe, which copies three files of five rows."""
    path = folder / "recipe.py"
    path.write_text(program)
    sources = [str(folder / f"{number}.parquet") for number in range(3)]
    for source in sources:
        pq.write_table(rows(*(f"{Path(source).stem}-{row}" for row in range(5))), source)
    known = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    ran = run(
        sys.executable, str(path), f"{desk.root}/_bookkeeper", *sources, environ={**os.environ, "PYTHONPATH": known}
    )
    assert ran.returncode == 0, ran.stderr
    (txlog,) = desk.txlogs()
    assert (txlog.name.writer, len(txlog.files)) == ("copies", 3)
    assert desk.keys() == sorted(f"{number}-{row}" for number in range(3) for row in range(5))


@pytest.mark.parametrize("example", re.findall(r"^    (?:.*\| )?writer (.*)$", TEXT, re.MULTILINE))
def test_the_commands_are_spelled_right(example: str) -> None:
    name, *arguments = [word for word in shlex.split(example) if not word.endswith((".ndjson", ".gz"))]
    main.commands[name].make_context(name, arguments)


def test_every_error_it_names_exists() -> None:
    from bookkeeper import errors

    for name in re.findall(r"^\| `([A-Z]\w+)` \|", TEXT, re.MULTILINE):
        assert issubclass(getattr(errors, name), errors.BookkeeperError)
