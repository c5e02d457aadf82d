"""How a storage is reached: pyiceberg's keys, the environment's; secrets stay where they are."""

import json
import logging
import re
import subprocess
import sys
from pathlib import Path

import pytest

from bookkeeper.config.load import parse
from bookkeeper.errors import BookkeeperError, ConfigInvalid, ExtraMissing, StorageUnavailable
from bookkeeper.stores import open as remotes
from bookkeeper.stores.open import open_store
from tests.servers.objects import ACCOUNT
from tests.servers.shared import place, wanted

DOC = Path(__file__).parents[2] / "docs" / "stores.md"
SECRET = "c2VjcmV0LXNlY3JldC1zZWNyZXQ="
AZURE = (
    f"DefaultEndpointsProtocol=http;AccountName={ACCOUNT};AccountKey={SECRET};"
    "BlobEndpoint=http://127.0.0.1:{port}/devstoreaccount1;"
)


def _wrong(kind: str) -> dict[str, str]:
    port = wanted(kind).port
    if kind == "azurite":
        return {"adls.connection-string": AZURE.format(port=port)}
    return {**wanted(kind).properties, "s3.secret-access-key": SECRET}


@pytest.mark.parametrize("kind", ["azurite", "s3"])
@pytest.mark.parametrize("act", ["read", "list", "create", "delete_many", "size"])
def test_refused_credentials_are_unavailable_and_no_secret_is_told(
    kind: str, act: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    store = open_store(place(kind), _wrong(kind))
    arguments = {"create": ("a", b"1"), "list": ("",), "delete_many": (["a", "b"],)}.get(act, ("a",))
    with pytest.raises(StorageUnavailable) as caught:
        list(getattr(store, act)(*arguments))
    told = f"{caught.value} {caught.value.hint} {caught.value!r} {caplog.text}"
    assert "403" in told or "401" in told or "refused" in told
    assert SECRET not in told


def test_a_sas_token_does(caplog: pytest.LogCaptureFixture) -> None:
    from datetime import UTC, datetime, timedelta

    from azure.storage.blob import AccountSasPermissions, ResourceTypes, generate_account_sas

    caplog.set_level(logging.INFO)
    server, url = wanted("azurite"), place("azurite")
    text = server.properties["adls.connection-string"]
    fields = dict(part.split("=", 1) for part in text.strip(";").split(";"))
    token = generate_account_sas(
        ACCOUNT,
        fields["AccountKey"],
        ResourceTypes(container=True, object=True),
        AccountSasPermissions(read=True, write=True, list=True, delete=True, create=True, add=True),
        datetime.now(UTC) + timedelta(minutes=10),
    )
    sas = f"BlobEndpoint={fields['BlobEndpoint']};SharedAccessSignature={token};"
    store = open_store(url, {"adls.connection-string": sas})
    store.create("a/b", b"1")
    assert [item.key for item in store.list("")] == ["a/b"]
    assert store.read("a/b") == b"1"
    with pytest.raises(BookkeeperError) as caught:
        store.read("a/none")
    assert token[-20:] not in f"{caught.value} {caplog.text}"


def test_the_environment_does_for_s3(monkeypatch: pytest.MonkeyPatch) -> None:
    server, url = wanted("s3"), place("s3")
    for name, key in (
        ("AWS_ACCESS_KEY_ID", "s3.access-key-id"),
        ("AWS_SECRET_ACCESS_KEY", "s3.secret-access-key"),
        ("AWS_ENDPOINT_URL", "s3.endpoint"),
        ("AWS_DEFAULT_REGION", "s3.region"),
    ):
        monkeypatch.setenv(name, server.properties[key])
    store = open_store(url, {"s3.request-timeout": "29"})  # a client of its own
    store.create("a", b"1")
    assert store.read("a") == b"1"


def test_the_storage_section_is_added_to_what_the_catalog_says() -> None:
    text = '[catalog]\n"s3.region" = "eu-1"\nuri = "x"\n[storage]\n"s3.region" = "us-1"\n"s3.endpoint" = "http://x"\n'
    settings = parse(text, {})
    assert settings.storage == {"s3.region": "eu-1", "s3.endpoint": "http://x", "uri": "x"}
    assert settings.catalog.properties == settings.storage


@pytest.mark.parametrize(
    ("url", "module", "extra"),
    [("s3://b/x", "s3fs", "s3"), ("abfss://b/x", "adlfs", "azure"), ("gs://b/x", "gcsfs", "gcs")],
)
def test_a_client_that_is_not_installed_is_named_with_its_pip_line(url: str, module: str, extra: str) -> None:
    program = (
        f"import sys; sys.modules[{module!r}] = None\n"
        "from bookkeeper.stores.open import open_store\n"
        "from bookkeeper.errors import ExtraMissing\n"
        "try:\n"
        f"    open_store({url!r})\n"
        "except ExtraMissing as exc:\n"
        "    print(exc, exc.hint)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert f"{module} is not installed" in done.stdout
    assert f"pip install 'iceberg-bookkeeper[{extra}]'" in done.stdout
    assert issubclass(ExtraMissing, BookkeeperError)


def test_a_scheme_that_is_none_is_refused_with_those_that_are() -> None:
    with pytest.raises(ConfigInvalid, match=r"file, s3, abfs\(s\), gs"):
        open_store("hdfs://host/x")


def test_an_account_without_a_name_is_refused_without_what_was_given() -> None:
    with pytest.raises(ConfigInvalid) as caught:
        open_store("abfss://lake/x", {"adls.account-key": SECRET})
    assert SECRET not in json.dumps([str(caught.value), caught.value.hint])


@pytest.mark.parametrize("block", re.findall(r"```toml\n(.*?)```", DOC.read_text("utf-8"), re.DOTALL))
def test_an_example_in_the_documentation_is_taken(block: str) -> None:
    assert parse(block, dict.fromkeys(re.findall(r"\$\{(\w+)\}", block), "x")).storage


def test_a_bucket_with_a_credential_of_its_own_gets_nothing_of_the_common_one() -> None:
    given = {
        "s3.endpoint": "http://x",
        "s3.access-key-id": "all",
        "s3.secret-access-key": "all's",
        "client.session-token": "all's token",
        "s3.bucket.queue.access-key-id": "own",
        "s3.bucket.queue.secret-access-key": "own's",
        "s3.bucket.near.endpoint": "http://y",
        "adls.account-key": "foreign",
    }
    assert remotes.keys_of("s3.", "queue", given) == {
        "s3.endpoint": "http://x",
        "s3.access-key-id": "own",
        "s3.secret-access-key": "own's",
    }
    shared = {key: value for key, value in given.items() if "bucket" not in key and "adls" not in key}
    assert remotes.keys_of("s3.", "lake", given) == shared
    assert remotes.keys_of("s3.", "near", given) == {**shared, "s3.endpoint": "http://y"}
