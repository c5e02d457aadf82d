"""A registry answers well, badly, slowly, or not at all: each has its error, its bound, and keeps its secrets."""

import json
import socket
import ssl
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from itertools import count
from pathlib import Path

import pytest
import requests
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

from bookkeeper.errors import ConfigInvalid, NotPossible, SourceUnavailable
from tests.kafka.registry import Stub, registry
from writers.kafka import schema_registry as client
from writers.kafka.client import Cluster, properties_in
from writers.kafka.schema_registry import Registry, access_to
from writers.loader.records import BadLine

INT = json.dumps({"type": "record", "name": "r", "fields": [{"name": "n", "type": "int"}]})
USER = {"schema.registry.basic.auth.user.info": "me:s3:cret"}


@pytest.fixture
def stub() -> Iterator[Stub]:
    with registry() as made:
        yield made


def at(stub: Stub, **given: str) -> Registry:
    return Registry(access_to(stub.url, given))


def test_a_schema_is_asked_for_once(stub: Stub) -> None:
    stub.schemas[7] = INT
    found = at(stub)

    first = found.schema(7)

    assert found.schema(7) is first and first.read(b"\x02", 0) == {"n": 1}
    assert stub.asked == [("/schemas/ids/7", None)]


def test_a_user_or_a_token_is_sent_and_never_said(stub: Stub) -> None:
    stub.schemas[7] = INT
    Registry(access_to(stub.url + "/", USER)).schema(7)
    Registry(access_to(stub.url, {"schema.registry.bearer.auth.token": "t0ken"})).schema(7)

    assert stub.asked == [("/schemas/ids/7", "Basic bWU6czM6Y3JldA=="), ("/schemas/ids/7", "Bearer t0ken")]
    assert "cret" not in repr(access_to(stub.url, USER))


def test_credentials_of_a_netrc_are_not_sent(stub: Stub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "netrc").write_text("machine 127.0.0.1 login me password secret\n")
    (tmp_path / "netrc").chmod(0o600)
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    assert requests.utils.get_netrc_auth(stub.url) == ("me", "secret")
    stub.schemas[7] = INT

    at(stub).schema(7)

    assert stub.asked == [("/schemas/ids/7", None)]


@pytest.mark.parametrize("status", [401, 403])
def test_refused_credentials_end_it_and_are_not_said(stub: Stub, status: int) -> None:
    stub.status = status

    with pytest.raises(NotPossible, match=f"refused the credentials: {status}") as raised:
        Registry(access_to(stub.url, USER)).schema(7)

    assert "cret" not in f"{raised.value}{raised.value.hint}"
    assert "schema.registry.basic.auth.user.info" in raised.value.hint


def test_an_unknown_id_is_a_bad_message_and_asked_for_again_later(stub: Stub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "_UNKNOWN_SECONDS", 2.5)
    ticks = count()
    found = Registry(access_to(stub.url, {}), lambda: next(ticks))
    for _ in range(2):
        with pytest.raises(BadLine, match="the registry has no schema of id 9"):
            found.schema(9)
    assert len(stub.asked) == 1
    stub.schemas[9] = INT

    while next(ticks) < 10:
        pass

    assert found.schema(9).top.kind == "record"


def test_a_404_of_something_else_is_no_bad_message(stub: Stub) -> None:
    stub.faults.append((404, {}, b"<html>"))

    with pytest.raises(NotPossible, match="there is no schema registry") as raised:
        at(stub).schema(7)

    assert "--registry" in raised.value.hint


@pytest.mark.parametrize(
    "fault",
    [
        (500, {}, b'{"error_code": 50001}'),
        (503, {}, b""),
        (429, {}, b""),
        (200, {}, b"<html>"),
        (200, {}, b"[1]"),
        (200, {}, b"[" * 100_000),
        (200, {"Content-Length": "1000"}, b'{"schema"'),
        (200, {}, b" " * (client._ANSWER_BYTES + 1)),
        (200, {"Content-Encoding": "gzip"}, b"\x1f\x8b"),
    ],
)
def test_an_answer_that_is_none_is_asked_for_again(stub: Stub, fault: tuple[int, dict[str, str], bytes]) -> None:
    stub.schemas[7] = INT
    stub.faults.append(fault)
    found = at(stub)

    with pytest.raises(SourceUnavailable):
        found.schema(7)

    assert found.schema(7).top.kind == "record"


def test_no_more_than_its_bound_is_read_of_an_answer_that_does_not_end(stub: Stub) -> None:
    stub.faults.append((200, {"Content-Length": str(2**40)}, b" " * (client._ANSWER_BYTES + 2**17)))

    with pytest.raises(SourceUnavailable, match="by more than"):
        at(stub).schema(7)


def test_a_redirect_is_not_followed(stub: Stub) -> None:
    with registry() as other:
        stub.faults.append((302, {"Location": f"{other.url}/schemas/ids/7"}, b""))

        with pytest.raises(NotPossible, match="redirects"):
            Registry(access_to(stub.url, USER)).schema(7)

        assert other.asked == []


def test_a_registry_that_does_not_answer_is_waited_for_no_longer_than_its_bound(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(client, "_WAIT_SECONDS", 0.05)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        found = Registry(access_to(f"http://127.0.0.1:{silent.getsockname()[1]}", {}))

        with pytest.raises(SourceUnavailable, match="did not answer in time"):
            found.schema(7)


def test_an_answer_that_comes_too_slowly_is_given_up(stub: Stub) -> None:
    ticks = iter([0.0, 0.0, client._SECONDS + 1])
    stub.schemas[7] = INT

    with pytest.raises(SourceUnavailable, match="took more than 20 seconds"):
        Registry(access_to(stub.url, {}), lambda: next(ticks)).schema(7)


def test_a_registry_that_is_not_there_is_asked_again() -> None:
    with socket.create_server(("127.0.0.1", 0)) as gone:
        port = gone.getsockname()[1]

    with pytest.raises(SourceUnavailable, match="cannot be reached"):
        Registry(access_to(f"http://127.0.0.1:{port}", {})).schema(7)


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        ({"schemaType": "JSON", "schema": "{}"}, "of type 'JSON', AVRO is expected"),
        ({"schema": 5}, "AVRO is expected"),
        ("{", "not JSON"),
        ('["null"', "not JSON"),
        ({"schema": INT, "references": 5}, "no subject and version"),
        ({"schema": INT, "references": [{"subject": "s"}]}, "no subject and version"),
        ({"schema": INT, "references": [{"subject": "s", "version": 3}]}, "does not have"),
    ],
)
def test_a_schema_that_cannot_be_used_makes_bad_messages_and_is_asked_for_once(
    stub: Stub, answer: object, reason: str
) -> None:
    stub.schemas[7] = answer
    found = at(stub)

    for _ in range(3):
        with pytest.raises(BadLine, match=f"the schema of id 7 cannot be used: .*{reason}"):
            found.schema(7)

    assert [path for path, _ in stub.asked].count("/schemas/ids/7") == 1


def test_references_are_looked_up(stub: Stub) -> None:
    street = '{"type": "record", "name": "x.street", "fields": [{"name": "no", "type": "int"}]}'
    town = '{"type": "record", "name": "x.town", "fields": [{"name": "street", "type": "x.street"}]}'
    stub.subjects["a%2Fb", 1] = street
    stub.subjects["town", 2] = {"schema": town, "references": [{"subject": "a/b", "version": 1}]}
    top = '{"type": "record", "name": "r", "fields": [{"name": "town", "type": "x.town"}]}'
    both = [{"subject": "town", "version": 2}, {"subject": "a/b", "version": 1}]
    stub.schemas[7] = {"schema": top, "references": both}

    assert at(stub).schema(7).read(b"\x02", 0) == {"town": {"street": {"no": 1}}}


def test_a_reference_that_is_not_there_yet_is_asked_for_again_later(stub: Stub) -> None:
    """Of a registry that is behind: each message of the schema was a bad one until the process ended."""
    stub.schemas[7] = {"schema": '{"type": "array", "items": "x"}', "references": [{"subject": "x", "version": 1}]}
    now = [0.0]
    found = Registry(access_to(stub.url, {}), lambda: now[0])
    with pytest.raises(BadLine, match="does not have"):
        found.schema(7)
    stub.subjects["x", 1] = '{"type": "enum", "name": "x", "symbols": ["a"]}'
    with pytest.raises(BadLine, match="does not have"):
        found.schema(7)
    now[0] = 31.0

    assert found.schema(7).read(b"\x02\x00\x00", 0) == ["a"]


def test_references_that_go_round_are_refused(stub: Stub) -> None:
    stub.subjects["a", 1] = {"schema": INT, "references": [{"subject": "a", "version": 1}]}
    stub.schemas[7] = stub.subjects["a", 1]

    with pytest.raises(BadLine, match="go round"):
        at(stub).schema(7)


@pytest.mark.parametrize(
    ("url", "more", "reason"),
    [
        ("registry:8081", {}, "is expected"),
        ("ftp://registry", {}, "is expected"),
        ("http://", {}, "is expected"),
        ("http://a:8081,http://b:8081", {}, "is expected"),
        ("http://a:99999", {}, "is expected"),
        ("http://a/?x=1", {}, "is expected"),
        ("http://me:secret@a", {}, "no credentials in the address"),
        ("http://a", {"url": "http://b"}, "given as --registry"),
        ("http://a", {"basic.auth": "me:secret"}, "is not known"),
        ("http://a", {"basic.auth.user.info": "secret"}, "not of the form"),
        ("http://a", {"basic.auth.user.info": "me:secret", "bearer.auth.token": "secret"}, "both"),
        ("http://a", {"bearer.auth.token": "secret\tsecret"}, "no token"),
        ("http://a", {"ssl.ca.location": "/nowhere.pem"}, "cannot be used"),
        ("http://a", {"ssl.key.location": "/nowhere.pem"}, "cannot be used"),
        ("http://a", {"ssl.certificate.location": __file__}, "cannot be used"),
    ],
)
def test_settings_that_say_nothing_are_refused_and_never_said(url: str, more: dict[str, str], reason: str) -> None:
    with pytest.raises(ConfigInvalid, match=reason) as raised:
        access_to(url, {f"schema.registry.{key}": value for key, value in more.items()})

    assert "secret" not in str(raised.value)


def certificates(folder: Path) -> None:
    """A certificate of 127.0.0.1 that is its own authority, for a server and for a client, and one of another key."""
    now = datetime.now(UTC)
    for file in ("own", "other"):
        key = ec.generate_private_key(ec.SECP256R1())
        name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, file)])
        made = (
            x509.CertificateBuilder(name, name, key.public_key(), 1, now - timedelta(days=1), now + timedelta(days=1))
            .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ip_address("127.0.0.1"))]), False)
            .add_extension(x509.BasicConstraints(True, None), True)
            .sign(key, hashes.SHA256())
        )
        (folder / f"{file}.pem").write_bytes(made.public_bytes(Encoding.PEM))
        private = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        (folder / f"{file}.key").write_bytes(private)


def test_both_sides_show_certificates_and_another_authority_is_not_trusted(tmp_path: Path) -> None:
    certificates(tmp_path)
    own, key = str(tmp_path / "own.pem"), str(tmp_path / "own.key")
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=own)
    tls.load_cert_chain(own, key)
    tls.verify_mode = ssl.CERT_REQUIRED
    shown = {"schema.registry.ssl.certificate.location": own, "schema.registry.ssl.key.location": key}
    with registry(tls) as stub:
        stub.schemas[7] = INT
        for more in ({}, {"schema.registry.ssl.ca.location": str(tmp_path / "other.pem")}):
            with pytest.raises(SourceUnavailable, match="cannot be trusted"):
                Registry(access_to(stub.url, {**shown, **more})).schema(7)

        trusted = {**shown, "schema.registry.ssl.ca.location": own}

        assert Registry(access_to(stub.url, trusted)).schema(7).top.kind == "record"


def test_its_settings_do_not_reach_the_client_of_kafka(tmp_path: Path) -> None:
    path = tmp_path / "client.properties"
    path.write_text("client.id=me\nschema.registry.basic.auth.user.info=me:secret\n")
    properties = properties_in(path)

    assert access_to("http://a", properties).user == ("me", "secret")
    Cluster("127.0.0.1:1", properties, "g")
