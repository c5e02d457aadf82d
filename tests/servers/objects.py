"""
Object stores on loopback: Azurite, and versitygw (moto where there is no Go). Data lives as long as the server.
"""

import json
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from urllib.request import Request, urlopen

from tests.servers import installed
from tests.servers.process import LOOPBACK, Server, Unavailable, answers, free_port

ACCOUNT = "devstoreaccount1"
# Azurite's own, the same everywhere: no secret.
KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
# gcsfs would ask Google itself what kind of bucket it is.
_NO_ZONES = "GCSFS_EXPERIMENTAL_ZB_HNS_SUPPORT"
_AZURITE = (
    "--silent",
    "--inMemoryPersistence",
    "--disableTelemetry",
    "--skipApiVersionCheck",
)


@contextmanager
def azurite() -> Iterator[Server]:
    """
    A running, empty Azurite: blobs and queues. Raises Unavailable.
    """
    command = installed.azurite(os.environ)
    blob, queue, table = free_port(), free_port(), free_port()
    ports = []
    for name, port in (("blob", blob), ("queue", queue), ("table", table)):
        ports += [f"--{name}Host", LOOPBACK, f"--{name}Port", str(port)]
    with tempfile.TemporaryDirectory(prefix="bookkeeper-azurite-") as place:
        yield from _running(
            Server(
                "Azurite",
                blob,
                [*command, *_AZURITE, *ports],
                Path(place) / "log",
                azure_properties(blob, queue),
                options={"cwd": place},
            )
        )


def azure_properties(blob: int, queue: int = 1) -> dict[str, str]:
    """
    pyiceberg's keys for an Azurite whose blobs are on port `blob`.
    """
    text = f"DefaultEndpointsProtocol=http;AccountName={ACCOUNT};AccountKey={KEY};"
    ends = (("Blob", blob), ("Queue", queue))
    text += "".join(f"{name}Endpoint=http://{LOOPBACK}:{port}/{ACCOUNT};" for name, port in ends)
    return {"py-io-impl": "pyiceberg.io.fsspec.FsspecFileIO", "adls.connection-string": text}


@contextmanager
def s3(users: Sequence[str] = ()) -> Iterator[Server]:
    """
    A running, empty S3 server, with `users` (secret: NAME-secret) without any rights yet. Raises Unavailable.
    """
    port = free_port()
    with tempfile.TemporaryDirectory(prefix="bookkeeper-s3-") as place:
        root = Path(place) / "buckets"
        root.mkdir()
        environ = {**os.environ, "ROOT_ACCESS_KEY": "test", "ROOT_SECRET_KEY": "testtest"}
        try:
            program = installed.versitygw(os.environ)
            command = [program, "-q", "--port", f"{LOOPBACK}:{port}", *_iam(Path(place), users), "posix", str(root)]
        except Unavailable:
            if users or shutil.which("go"):
                raise
            command = _moto(port)
        name = "moto" if sys.executable in command else "versitygw"
        server = Server(
            name, port, command, Path(place) / "log", s3_properties(port), options={"cwd": place, "env": environ}
        )
        yield from _running(server)


def _iam(place: Path, users: Sequence[str]) -> list[str]:
    if not users:
        return []
    known = {name: {"access": name, "secret": f"{name}-secret", "role": "user"} for name in users}
    (place / "iam").mkdir()
    (place / "iam" / "users.json").write_text(json.dumps({"accessAccounts": known}))
    return ["--iam-dir", str(place / "iam")]


def s3_properties(port: int) -> dict[str, str]:
    """
    pyiceberg's keys for the S3 server on this port.
    """
    return {
        "s3.endpoint": f"http://{LOOPBACK}:{port}",
        "s3.access-key-id": "test",
        "s3.secret-access-key": "testtest",
        "s3.region": "us-east-1",
    }


@contextmanager
def gcs() -> Iterator[Server]:
    """
    A running, empty fake-gcs-server. Raises Unavailable: it is only used when asked for.
    """
    if os.environ.get("GCS_TEST") != "1":
        asked = f"GCS_TEST=1 {_NO_ZONES}=false"
        raise Unavailable(f"Google's storage is tested with {asked}: Go builds a server for it, which takes minutes")
    port = free_port()
    with tempfile.TemporaryDirectory(prefix="bookkeeper-gcs-") as place:
        options = ["-scheme", "http", "-host", LOOPBACK, "-port", str(port), "-backend", "memory", "-data", place]
        command = [installed.fake_gcs(os.environ), *options]
        yield from _running(Server("fake-gcs-server", port, command, Path(place) / "log", gcs_properties(port)))


def gcs_properties(port: int) -> dict[str, str]:
    """
    pyiceberg's keys for the fake-gcs-server on this port.
    """
    said = {"gcs.service.host": f"http://{LOOPBACK}:{port}", "gcs.oauth2.token": "anon", "gcs.project-id": "test"}
    return {"py-io-impl": "pyiceberg.io.fsspec.FsspecFileIO", **said}


@contextmanager
def aws() -> Iterator[Server]:
    """
    A running moto: S3 and SQS, with notifications from one to the other. Raises Unavailable.
    """
    port = free_port()
    with tempfile.TemporaryDirectory(prefix="bookkeeper-moto-") as place:
        options = {"cwd": Path(__file__).parents[2]}
        properties = s3_properties(port)
        yield from _running(Server("moto", port, _moto(port), Path(place) / "log", properties, options=options))


def _moto(port: int) -> list[str]:
    from importlib.util import find_spec

    if find_spec("moto") is None:
        raise Unavailable("neither Go for versitygw nor moto is here: pip install '.[dev]'")
    return [sys.executable, str(Path(__file__).with_name("moto_server.py")), str(port)]


def _running(server: Server) -> Iterator[Server]:
    server.start()
    try:
        yield server
    finally:
        server.crash()  # there is nothing to save


def bucket(server: Server, name: str, user: str | None = None) -> str:
    """
    The URL of a new, empty bucket or container; on S3 `user` may do everything in it.
    """
    if "adls.connection-string" in server.properties:
        from azure.storage.blob import BlobServiceClient

        with BlobServiceClient.from_connection_string(server.properties["adls.connection-string"]) as service:
            service.create_container(name)
        return f"abfss://{name}@{ACCOUNT}.dfs.core.windows.net"
    if "gcs.service.host" in server.properties:
        where = f"{server.properties['gcs.service.host']}/storage/v1/b?project=test"
        asked = Request(where, json.dumps({"name": name}).encode(), {"Content-Type": "application/json"})
        with urlopen(asked) as reply:
            assert reply.status == 200
        return f"gs://{name}"
    from botocore.session import get_session

    client = get_session().create_client(
        "s3",
        endpoint_url=f"http://{LOOPBACK}:{server.port}",
        region_name="us-east-1",
        aws_access_key_id="test",
        aws_secret_access_key="testtest",
    )
    client.create_bucket(Bucket=name)
    if user:
        arn = f"arn:aws:s3:::{name}"
        may = {"Effect": "Allow", "Principal": {"AWS": [user]}, "Action": ["s3:*"], "Resource": [arn, f"{arn}/*"]}
        client.put_bucket_policy(Bucket=name, Policy=json.dumps({"Version": "2012-10-17", "Statement": [may]}))
    client.close()
    return f"s3://{name}"


__all__ = ["answers", "aws", "azurite", "bucket", "gcs", "s3"]
