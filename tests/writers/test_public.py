"""
The public names: `from writers import Writer` and the long forms that were there before it.
"""

import sys
from importlib import import_module, resources

import pytest

import writers
from bookkeeper import errors
from tests.packaging.project import ROOT, clean_environ, packages, run
from tests.support.desk import Desk, rows


@pytest.mark.parametrize("name", writers.__all__)
def test_every_public_name_is_given_by_the_package(name: str) -> None:
    assert callable(getattr(writers, name))


@pytest.mark.parametrize(
    "name, module",
    [
        ("Writer", "writers.writer"),
        ("Bare", "writers.bare"),
        ("Task", "writers.tasks.task"),
        ("TaskWriter", "writers.tasks.task"),
        ("TooOld", "writers.bare"),
        ("TxlogName", "bookkeeper.contract.names"),
        ("stores_with", "bookkeeper.stores.open"),
        *[(name, "bookkeeper.errors") for name in writers.__all__ if hasattr(errors, name)],
    ],
)
def test_the_short_and_the_long_form_are_the_same_object(name: str, module: str) -> None:
    assert getattr(writers, name) is getattr(import_module(module), name)


def test_the_documented_modules_are_still_there() -> None:
    from bookkeeper.function import NotDone, function
    from writers.bare import Bare, handle
    from writers.writer import Writer

    assert all(callable(item) for item in (NotDone, function, Bare, handle, Writer))


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="Riter"):
        _ = writers.Riter
    with pytest.raises(ImportError):
        from writers import Riter  # noqa: F401


def test_the_package_and_its_errors_load_neither_pyarrow_nor_pyiceberg() -> None:
    code = (
        "import sys; from writers import Backpressure, Fenced; "
        "print(*[name for name in ('pyarrow', 'pyiceberg', 'fsspec') if name in sys.modules])"
    )
    loaded = run(sys.executable, "-c", code, environ=clean_environ(PYTHONPATH=str(ROOT)))
    assert (loaded.returncode, loaded.stdout.strip()) == (0, ""), loaded.stderr


def test_the_short_form_writes_a_table(local: Desk) -> None:
    with writers.Writer.open(local.folder, "short", clock=local.clock, wait=local.clock.wait) as writer:
        writer.write(rows("a"))
    assert local.keys() == ["a"]


@pytest.mark.parametrize("package", packages())
def test_type_checkers_find_the_annotations_of_every_package(package: str) -> None:
    assert resources.files(package).joinpath("py.typed").is_file()
