"""Objects whose writer says that they are compressed: what is stored is what is read, whatever that says."""

import pytest

from bookkeeper.stores.open import open_store
from bookkeeper.stores.store import Head, Part, Range
from tests.servers.shared import place, wanted
from tests.stores.wires import OBJECTS

DATA = b"PAR1 is no gzip"


def put_encoded(kind: str, url: str) -> None:
    """An object `a` that says it is gzip and is not."""
    where, _, path = url.partition("://")[2].partition("/")
    properties = wanted(kind).properties
    if kind == "azurite":
        from azure.storage.blob import BlobServiceClient, ContentSettings

        with BlobServiceClient.from_connection_string(properties["adls.connection-string"]) as service:
            container = service.get_container_client(where.partition("@")[0])
            container.upload_blob(f"{path}/a", DATA, content_settings=ContentSettings(content_encoding="gzip"))
        return
    from botocore.session import get_session

    client = get_session().create_client(
        "s3",
        endpoint_url=properties["s3.endpoint"],
        region_name=properties["s3.region"],
        aws_access_key_id=properties["s3.access-key-id"],
        aws_secret_access_key=properties["s3.secret-access-key"],
    )
    client.put_object(Bucket=where, Key=f"{path}/a", Body=DATA, ContentEncoding="gzip")
    client.close()


@pytest.mark.parametrize("kind", OBJECTS)
def test_an_object_that_says_it_is_compressed_is_read_as_it_is_stored(kind: str) -> None:
    wanted(kind)
    url = place(kind)
    store = open_store(url, wanted(kind).properties)
    store.create("b", b"2")
    put_encoded(kind, url)
    assert store.read_many(["a", "b"]) == {"a": DATA, "b": b"2"}
    assert store.heads(["a"]) == {"a": Head(len(DATA), DATA[:4])}
    inside = Range("a", 2, 7)
    assert store.read_ranges([inside]) == {inside: Part(len(DATA), DATA[2:7])}
