"""What is not installed is no catalog that is down: the pip line is said."""

from pathlib import Path
from typing import Any

import pytest

from bookkeeper.catalogs.open import open_catalog
from bookkeeper.commands.init import DEFAULT_SCHEMA, initialise, schema_of
from bookkeeper.config.settings import Catalog, Table
from bookkeeper.errors import ConfigInvalid, ExtraMissing
from tests.cli.test_errors import absent

SQL = {"type": "sql", "warehouse": "file:///nowhere"}


@pytest.mark.parametrize(
    ("module", "properties", "pip"),
    [
        ("sqlalchemy", {**SQL, "uri": "sqlite:///{root}/c.db"}, "'iceberg-bookkeeper[daemon]'"),
        ("psycopg2", {**SQL, "uri": "postgresql+psycopg2://u:p@127.0.0.1:1/d"}, "'iceberg-bookkeeper[postgres]'"),
        ("psycopg", {**SQL, "uri": "postgresql+psycopg://u:p@127.0.0.1:1/d"}, "psycopg"),
        ("MySQLdb", {**SQL, "uri": "mysql://u:p@127.0.0.1:1/d"}, "mysqlclient"),
        ("boto3", {"type": "glue", "warehouse": "s3://b/w"}, "'pyiceberg[glue]'"),
    ],
)
def test_a_catalog_whose_package_is_not_installed_names_it(
    module: str, properties: dict[str, str], pip: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    absent(monkeypatch, module)
    forget_ours(monkeypatch)
    given = {key: value.format(root=tmp_path) for key, value in properties.items()}

    with pytest.raises(ExtraMissing) as missing:
        open_catalog(Catalog(properties=given), create=True)

    assert missing.value.hint == f"Run: pip install {pip}"


@pytest.mark.parametrize(
    ("scheme", "module", "extra"), [("s3", "s3fs", "s3"), ("abfss", "adlfs", "azure"), ("gs", "gcsfs", "gcs")]
)
def test_a_table_whose_storage_needs_what_is_not_installed_names_it(
    scheme: str, module: str, extra: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    absent(monkeypatch, module)
    place = f"{scheme}://lake@account.dfs.core.windows.net/w" if scheme == "abfss" else f"{scheme}://lake/w"
    given = {
        "type": "sql",
        "uri": f"sqlite:///{tmp_path}/c.db",
        "warehouse": place,
        "py-io-impl": "pyiceberg.io.fsspec.FsspecFileIO",
    }
    catalog = open_catalog(Catalog(properties=given), create=True)

    with pytest.raises(ExtraMissing, match=f"{module} is not installed") as missing:
        initialise(catalog, Table(name="t", identifier="demo.t"), schema_of(DEFAULT_SCHEMA))

    assert missing.value.hint == f"Run: pip install 'iceberg-bookkeeper[{extra}]'"


def test_a_class_of_a_catalog_that_is_not_there_is_a_wrong_configuration() -> None:
    with pytest.raises(ConfigInvalid, match=r"py-catalog-impl = 'my\.own\.Catalog': there is no module my"):
        open_catalog(Catalog(properties={"py-catalog-impl": "my.own.Catalog"}))


def test_a_database_that_sqlalchemy_does_not_know_is_a_wrong_configuration() -> None:
    with pytest.raises(ConfigInvalid, match="SQLAlchemy has no dialect for 'nosuchsql'") as refused:
        open_catalog(Catalog(properties={**SQL, "uri": "nosuchsql://user:secret@host/db"}))
    assert "secret" not in str(refused.value)


def forget_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a process that has not opened a catalog yet."""
    import sys

    names: list[Any] = [name for name in sys.modules if name in ("bookkeeper.catalogs.sql", "pyiceberg.catalog.sql")]
    for name in [*names, *(name for name in sys.modules if name.startswith("pyiceberg.catalog.glue"))]:
        monkeypatch.delitem(sys.modules, name)
