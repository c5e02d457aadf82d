"""
What an installation holds: every package whole, and three commands that start at once.
"""

import shutil
import sys
import tarfile
from importlib import import_module
from pathlib import Path

import pytest

from tests.packaging.project import ROOT, clean_environ, console_scripts, packages, run

HEAVY = ["pyiceberg", "pyarrow", "pyspark", "sqlalchemy", "apscheduler", "prometheus_client"]
NOT_INSTALLED = {"benchmarks", "demo", "tests"}


def test_every_package_of_the_repository_is_installed_or_known_not_to_be():
    there = {path.parent.name for path in ROOT.glob("*/__init__.py")}

    assert there - NOT_INSTALLED == set(packages())


@pytest.mark.parametrize("package", packages())
def test_a_folder_with_code_is_a_package_or_the_wheel_would_lack_it(package: str):
    folders = {path.parent for path in (ROOT / package).rglob("*.py")}

    assert [folder for folder in folders if not (folder / "__init__.py").is_file()] == []


@pytest.mark.parametrize("command", console_scripts())
def test_a_command_names_a_function_that_exists(command: str):
    module, function = console_scripts()[command].split(":")

    assert callable(getattr(import_module(module), function))


@pytest.mark.parametrize("command", console_scripts())
def test_a_command_is_on_the_path_and_helps(command: str):
    helped = run(str(Path(sys.executable).with_name(command)), "--help")

    assert (helped.returncode, helped.stderr) == (0, "")
    assert "Usage" in helped.stdout


@pytest.mark.parametrize("command", console_scripts())
def test_a_command_imports_nothing_heavy_before_it_knows_what_to_do(command: str):
    module = console_scripts()[command].split(":")[0]
    code = f"import sys, {module}; print(*[name for name in {HEAVY} if name in sys.modules])"

    loaded = run(sys.executable, "-c", code, environ=clean_environ(PYTHONPATH=str(ROOT)))

    assert (loaded.returncode, loaded.stdout.strip()) == (0, ""), loaded.stderr


def test_a_source_distribution_has_docs_configuration_and_the_tested_versions(tmp_path: Path):
    """Made in a copy: setuptools writes beside what it packs."""
    tree = tmp_path / "tree"
    for name in (
        "LICENSE",
        "README.md",
        "MANIFEST.in",
        "setup.cfg",
        "pyproject.toml",
        "constraints.txt",
        "CHANGELOG.md",
    ):
        tree.mkdir(exist_ok=True)
        shutil.copy(ROOT / name, tree / name)
    for folder in ("docs", "config", "bookkeeper"):
        shutil.copytree(ROOT / folder, tree / folder, ignore=shutil.ignore_patterns("__pycache__"))

    made = run(sys.executable, "-c", "import setuptools; setuptools.setup()", "-q", "sdist", "-d", "out", cwd=tree)

    assert made.returncode == 0, made.stderr
    (packed,) = (tree / "out").glob("*.tar.gz")
    with tarfile.open(packed) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    wanted = {path.relative_to(ROOT).as_posix() for folder in ("docs", "config") for path in tracked(ROOT / folder)}
    assert {*wanted, "constraints.txt", "CHANGELOG.md"} <= names


def tracked(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file() and "__pycache__" not in path.parts]
