"""
Confs are pure: what a catalog's pyiceberg properties become for Spark.
"""

from pathlib import Path

import pytest

from bookkeeper.config.settings import Catalog, Settings, Table
from bookkeeper.errors import ConfigInvalid
from spark_jobs import session, versions
from spark_jobs.translate import catalog_confs, hadoop_confs

LOCAL = {"type": "sql", "uri": "sqlite:////w/cat.db", "warehouse": "file:///w"}
AZURITE = {
    "uri": "sqlite:////w/cat.db",
    "warehouse": "abfss://lake@devstoreaccount1.dfs.core.windows.net/wh",
    "py-io-impl": "pyiceberg.io.fsspec.FsspecFileIO",
    "adls.connection-string": "DefaultEndpointsProtocol=http;AccountName=devstoreaccount1;AccountKey=a2V5==;"
    "BlobEndpoint=http://127.0.0.1:10000/devstoreaccount1;",
}


def settings(properties=None, **tables):
    named = {name: Table(name=name, identifier=identifier) for name, identifier in tables.items()}
    return Settings(catalog=Catalog("lake", properties or LOCAL), tables=named)


def without_prefix(confs):
    prefix = "spark.sql.catalog.lake."
    return {key.removeprefix(prefix): value for key, value in confs.items() if key.startswith(prefix)}


def test_the_embedded_catalog_is_opened_under_the_same_name():
    confs = session.confs(settings(), app="x")

    assert confs["spark.sql.catalog.lake"] == "org.apache.iceberg.spark.SparkCatalog"
    assert without_prefix(confs) == {
        "type": "jdbc",
        "uri": "jdbc:sqlite:/w/cat.db?busy_timeout=20000",
        "jdbc.schema-version": "V1",
        "warehouse": "file:///w",
        "cache-enabled": "false",
    }


def test_jars_go_on_the_class_path_by_name_and_packages_are_resolved_without_them():
    jars = [Path("/ivy/a.jar"), Path("/ivy/b.jar")]

    local = session.confs(settings(), app="x", jars=jars)
    resolved = session.confs(settings(), app="x", tuned_for="cluster", ivy=Path("/ivy"))

    assert local["spark.driver.extraClassPath"] == "/ivy/a.jar:/ivy/b.jar"
    assert "spark.jars.packages" not in local
    assert resolved["spark.jars.packages"] == (
        "org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:1.11.0,org.xerial:sqlite-jdbc:3.50.3.0"
    )
    assert resolved["spark.jars.ivy"] == "/ivy"


def test_a_cluster_decides_over_master_and_memory_itself():
    cluster = session.confs(settings(), app="x", tuned_for="cluster")

    assert not {"spark.master", "spark.driver.memory", "spark.sql.shuffle.partitions"} & set(cluster)


def test_extra_confs_win():
    confs = session.confs(settings(), app="x", extra={"spark.driver.memory": "4g"})

    assert confs["spark.driver.memory"] == "4g"


def test_a_catalog_that_only_spark_knows_is_taken_from_extra_confs():
    extra = {"spark.sql.catalog.lake.catalog-impl": "com.example.Own", "spark.sql.catalog.lake.x": "y"}

    confs = session.confs(settings({"py-catalog-impl": "own.Catalog"}), app="x", extra=extra)

    assert without_prefix(confs) == {"catalog-impl": "com.example.Own", "x": "y", "cache-enabled": "false"}


@pytest.mark.parametrize(
    "uri, jdbc",
    [
        ("sqlite:////w/cat.db", "jdbc:sqlite:/w/cat.db"),
        ("sqlite:///cat.db", "jdbc:sqlite:cat.db"),
        ("sqlite+pysqlite:////w/cat.db?timeout=5", "jdbc:sqlite:/w/cat.db"),
    ],
)
def test_a_sqlite_file_is_opened_with_a_busy_timeout(uri, jdbc):
    assert catalog_confs({"uri": uri})["uri"] == f"{jdbc}?busy_timeout=20000"


@pytest.mark.parametrize("uri", ["sqlite://", "sqlite:///:memory:", "sqlite:///"])
def test_a_sqlite_catalog_in_memory_is_refused(uri):
    with pytest.raises(ConfigInvalid, match="SQLite file"):
        catalog_confs({"type": "sql", "uri": uri})


def test_postgres_keeps_its_credentials_out_of_the_url():
    uri = "postgresql+psycopg2://me%40home:p%2Fw@db.example:5433/lake?sslmode=require&connect_timeout=3"

    confs = catalog_confs({"uri": uri})

    assert confs["uri"] == "jdbc:postgresql://db.example:5433/lake?sslmode=require"
    assert (confs["jdbc.user"], confs["jdbc.password"]) == ("me@home", "p/w")
    assert (confs["type"], confs["jdbc.schema-version"]) == ("jdbc", "V1")


def test_a_rest_catalog_keeps_its_own_keys():
    confs = catalog_confs({"uri": "https://rest/x", "credential": "a:b", "header.h": "1", "rest.sigv4-enabled": "true"})

    assert confs == {
        "type": "rest",
        "uri": "https://rest/x",
        "credential": "a:b",
        "header.h": "1",
        "rest.sigv4-enabled": "true",
        "header.X-Iceberg-Access-Delegation": "vended-credentials",
        "cache-enabled": "false",
    }


def test_client_credentials_are_translated_and_what_java_cannot_do_is_refused():
    own = {"client-id": "id", "client_secret": "s", "token-url": "https://t", "scope": "catalog"}
    given = {"auth.type": "oauth2", **{f"auth.oauth2.{key}": value for key, value in own.items()}}
    confs = catalog_confs({"uri": "https://rest/x", **given})
    assert {key: confs[key] for key in ("credential", "oauth2-server-uri", "scope")} == {
        "credential": "id:s",
        "oauth2-server-uri": "https://t",
        "scope": "catalog",
    }
    for bad in ({"token-file": "/t"}, {"auth.type": "entra"}, {"auth.type": "oauth2"}):
        with pytest.raises(ConfigInvalid, match="Spark has no way in"):
            catalog_confs({"uri": "https://rest/x", **bad})


def test_another_kind_of_delegation_stays_as_it_is_written():
    given = {"header.x-iceberg-access-delegation": "remote-signing"}
    assert given.items() <= catalog_confs({"uri": "https://rest/x", **given}).items()
    assert len(catalog_confs({"uri": "https://rest/x", **given})) == 4


@pytest.mark.parametrize(
    "properties",
    [
        {"type": "dynamodb"},
        {"py-catalog-impl": "own.Catalog"},
        {"uri": "mysql://x/y"},
        {"type": "sql", "uri": "oracle://x"},
    ],
)
def test_a_catalog_that_spark_cannot_open_is_refused(properties):
    with pytest.raises(ConfigInvalid, match="Spark opens"):
        catalog_confs(properties)


def test_s3_properties_are_translated():
    confs = catalog_confs(
        {
            "uri": "sqlite:////w/cat.db",
            "warehouse": "s3://bucket/wh",
            "s3.endpoint": "http://127.0.0.1:9000",
            "s3.access-key-id": "id",
            "s3.secret-access-key": "secret",
            "s3.region": "us-east-1",
        }
    )

    assert confs["io-impl"] == "org.apache.iceberg.aws.s3.S3FileIO"
    assert confs["client.region"] == "us-east-1"
    assert (confs["s3.access-key-id"], confs["s3.secret-access-key"]) == ("id", "secret")
    assert (confs["s3.endpoint"], confs["s3.path-style-access"]) == ("http://127.0.0.1:9000", "true")


def test_s3_without_an_endpoint_is_left_to_the_aws_sdk():
    confs = catalog_confs({"type": "rest", "uri": "http://r", "warehouse": "s3a://b/w", "client.access-key-id": "id"})

    assert confs["s3.access-key-id"] == "id"
    assert not {"s3.endpoint", "s3.path-style-access", "client.region"} & set(confs)


def test_an_azure_connection_string_is_taken_apart():
    confs = catalog_confs(AZURITE)

    assert confs["io-impl"] == "org.apache.iceberg.azure.adlsv2.ADLSFileIO"
    assert confs["adls.auth.shared-key.account.name"] == "devstoreaccount1"
    assert confs["adls.auth.shared-key.account.key"] == "a2V5=="
    endpoint = confs["adls.connection-string.devstoreaccount1.dfs.core.windows.net"]
    assert endpoint == "http://127.0.0.1:10000/devstoreaccount1"


def test_azure_checkpoints_reach_the_emulator_through_hadoop():
    found = hadoop_confs(AZURITE)
    assert found.pop("spark.hadoop.fs.abfss.impl").endswith(".AzureBlobFileSystem")  # the one without TLS
    confs = {key.removeprefix("spark.hadoop.fs.azure."): value for key, value in found.items()}

    assert confs == {
        "account.key.devstoreaccount1.dfs.core.windows.net": "a2V5==",
        "account.auth.type": "SharedKey",
        "account.hns.enabled": "false",
        "fns.account.service.type": "BLOB",
        "abfs.endpoint": "127.0.0.1:10000",
        "always.use.https": "false",
    }


def test_an_azure_account_with_its_key_needs_no_connection_string():
    properties = {
        "uri": "thrift://x",
        "adls.account-name": "acct",
        "adls.account-key": "k",
        "adls.sas-token": "sv=1",
    }

    assert catalog_confs(properties)["adls.sas-token.acct.dfs.core.windows.net"] == "sv=1"
    assert hadoop_confs(properties) == {"spark.hadoop.fs.azure.account.key.acct.dfs.core.windows.net": "k"}
    assert hadoop_confs(LOCAL) == {}


@pytest.mark.parametrize(
    "properties, artifacts",
    [
        (LOCAL, ["iceberg-spark-runtime-4.1_2.13", "sqlite-jdbc"]),
        ({"uri": "postgresql://x/y"}, ["iceberg-spark-runtime-4.1_2.13", "postgresql"]),
        (
            {"uri": "http://r", "warehouse": "s3://b"},
            ["iceberg-spark-runtime-4.1_2.13", "iceberg-aws-bundle"],
        ),
        (AZURITE, ["iceberg-spark-runtime-4.1_2.13", "sqlite-jdbc", "iceberg-azure-bundle", "hadoop-azure"]),
    ],
)
def test_only_the_packages_of_the_catalog_are_fetched(properties, artifacts):
    assert [package.artifact for package in versions.packages(properties)] == artifacts


def test_secrets_are_redacted_in_sparks_own_listings():
    import re

    redacted = re.compile(session.confs(settings(), app="x")["spark.redaction.regex"])
    secret = [key for key in {**catalog_confs(AZURITE), **hadoop_confs(AZURITE)} if key.rpartition(".")[2] == "key"]
    secret += [key for key in hadoop_confs(AZURITE) if "account.key" in key]

    assert len(secret) == 2
    for key in [*secret, "spark.sql.catalog.lake.credential", "spark.sql.catalog.lake.jdbc.password"]:
        assert redacted.search(key), key


def test_the_only_table_needs_no_name_and_an_unknown_one_is_refused():
    assert session.table_name(settings(events="ns.events"), None) == "lake.ns.events"
    assert session.table_name(settings(a="n.a", b="n.b"), "b") == "lake.n.b"
    with pytest.raises(ConfigInvalid, match="has the tables a, b"):
        session.table_name(settings(a="n.a", b="n.b"), None)
    with pytest.raises(ConfigInvalid, match="table c is not in"):
        session.table_name(settings(a="n.a"), "c")
