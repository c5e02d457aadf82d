"""What the daemon says: one line per commit, nothing while idle, never a secret; and what it cannot say is lost."""

import io
import json
import logging
import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest

from bookkeeper.config.settings import Daemon
from bookkeeper.console import logs, secrets
from bookkeeper.serve.loop import TableLoop, tick_once
from tests.support.lake import Lake, Writes

KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFqUVErCz4I6tq/K1SZFPTOtr=="
SIGNATURE = "c2lnbmF0dXJlLW9mLXRoZS1zYXM%2Bk3J0Zz8%3D"
SECRET = "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY"
WORD = "correct-horse@battery/staple"
FORMS = {
    "account key": (KEY, f"DefaultEndpointsProtocol=https;AccountName=a;AccountKey={KEY};EndpointSuffix=x"),
    "account key, by name": (KEY, f"adls.account-key={KEY}"),
    "SAS token": (SIGNATURE, f"GET https://a.blob.core.windows.net/c/b?sv=2024-01-01&se=2027&sig={SIGNATURE}&sp=r"),
    "SAS token, by name": (SIGNATURE, f"sas_token='sv=2024-01-01&sig={SIGNATURE}'"),
    "SAS token in a URL in a URL": ("c2lnbmF0dXJl", "?url=https%3A%2F%2Fa%2Fb%3Fsv%3D1%26sig%3Dc2lnbmF0dXJl%26se%3D2"),
    "AWS secret": (SECRET, f"Credentials(access_key='AKIAIOSFODNN7', secret_key='{SECRET}', token=None)"),
    "AWS secret in settings": (SECRET, f"{{'s3.access-key-id': 'AKIA', 's3.secret-access-key': '{SECRET}'}}"),
    "AWS secret in the environment": (SECRET, f"AWS_SECRET_ACCESS_KEY={SECRET}"),
    "AWS secret in JSON": (SECRET, json.dumps({"aws_secret_access_key": SECRET})),
    "AWS secret in a pair": (SECRET, f"[('aws_secret_access_key', '{SECRET}')]"),
    "AWS session token": (SECRET, f"x-amz-security-token:{SECRET}\nx-amz-date:20260101"),
    "AWS signature": ("0a1b2c3d4e5f", "AWS4-HMAC-SHA256 Credential=AKIA/2026/s3, Signature=0a1b2c3d4e5f"),
    "AWS presigned": ("0a1b2c3d4e5f", "/b/k?X-Amz-Credential=AKIA%2F2026&X-Amz-Signature=0a1b2c3d4e5f"),
    "a password in a URI": (WORD, f"could not connect: postgresql+psycopg2://etl:{WORD}@db:5432/lake"),
    "a password of libpq": (WORD, f"host=db user=etl password={WORD} dbname=lake"),
    "a header": (SECRET, f"headers={{'Authorization': b'SharedKey acc:{SECRET}', 'Accept': '*/*'}}"),
    "a header in full": (SECRET, f"Authorization: Bearer {SECRET}\nAccept: */*"),
    "a bearer": (SECRET, f"sent Bearer {SECRET}"),
    "OAuth2": (SECRET, f'{{"credential": "client:{SECRET}", "scope": "catalog"}}'),
    "a JWT": ("eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0", "got eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.c2ln"),
    "Azure client secret": (SECRET, f"client_secret={SECRET}&grant_type=client_credentials"),
    "a private key": ("MIIEvQIBADANBg", "-----BEGIN PRIVATE KEY-----\nMIIEvQIBADANBg\n-----END PRIVATE KEY-----"),
}
LOGGERS = ("bookkeeper", "azure.core.pipeline", "botocore.auth", "sqlalchemy.engine.Engine", "urllib3.connectionpool")


@pytest.fixture
def root() -> Iterator[logging.Logger]:
    found = logging.getLogger()
    before = found.handlers[:], found.level
    yield found
    found.handlers[:], _ = before
    found.setLevel(before[1])
    secrets.forget()


@pytest.fixture
def loud(root: logging.Logger) -> Iterator[io.StringIO]:
    """Everything that is logged, in both formats."""
    said = io.StringIO()
    logs.set_up("json", stream=said)
    logs_too = logging.StreamHandler(said)
    logs_too.setFormatter(logs.Human())
    root.addHandler(logs_too)
    root.setLevel(logging.DEBUG)
    levels = {name: logging.getLogger(name).level for name in LOGGERS}
    for name in LOGGERS:
        logging.getLogger(name).setLevel(logging.DEBUG)
    yield said
    for name, level in levels.items():
        logging.getLogger(name).setLevel(level)


@pytest.mark.parametrize("form", FORMS)
def test_no_form_of_a_secret_is_logged_by_any_logger_in_any_way(form: str, loud: io.StringIO) -> None:
    secret, text = FORMS[form]
    for name in LOGGERS:
        log = logging.getLogger(name)
        log.debug("in the message: " + text)  # noqa: G003
        log.debug("in an argument: %s, %r", text, [text])
        log.warning("in a field", extra={"action": "x", "cause": text, "more": {"deep": [text, text.encode()]}})
        try:
            try:
                raise OSError(text)
            except OSError as exc:
                raise ValueError("a library failed", text) from exc
        except ValueError:
            log.exception("in an exception")
    assert loud.getvalue().count("in an exception") == 2 * len(LOGGERS)
    assert secret not in loud.getvalue()
    assert secrets.HIDDEN in loud.getvalue()


def test_a_field_that_is_named_like_a_secret_is_hidden_whatever_it_looks_like(loud: io.StringIO) -> None:
    logging.getLogger("bookkeeper").info("opened", extra={"action": "x", "s3.secret-access-key": "plain words"})
    assert "plain words" not in loud.getvalue()


def test_a_secret_of_the_settings_is_known_by_its_value_too(loud: io.StringIO) -> None:
    secrets.hide({"s3.secret-access-key": SECRET, "uri": f"postgresql://etl:{WORD}@db/lake", "token": "short"})
    secrets.hide({"adls.connection-string": f"AccountName=a;AccountKey={KEY};"})
    logging.getLogger("urllib3").warning("odd %s and %s, %s", SECRET, WORD, KEY)
    logging.getLogger("urllib3").debug("in a short way")
    assert not [value for value in (SECRET, WORD, KEY) if value in loud.getvalue()]
    assert "short way" in loud.getvalue()


def test_the_working_folder_is_no_secret_though_the_shell_calls_it_pwd(loud: io.StringIO) -> None:
    secrets.hide({"PWD": "/home/ann/lake", "OLDPWD": "/srv/lakes", "DB_PWD": WORD, "PGPASSWORD": SECRET})
    logging.getLogger("bookkeeper").info("started", extra={"action": "start", "config": "/home/ann/lake/b.toml"})
    logging.getLogger("bookkeeper").info("from /srv/lakes, with %s and %s", WORD, SECRET)
    assert "/home/ann/lake/b.toml" in loud.getvalue() and "from /srv/lakes, with *** and ***" in loud.getvalue()


@pytest.mark.parametrize(
    "text",
    [
        "Check that the storage is reachable and that the credentials are valid; it is tried again.",
        "abfss://lake@account.dfs.core.windows.net/wh/demo/events",
        "http://127.0.0.1:10000/devstoreaccount1/lake",
        "s3://lake/wh/demo/events/_bookkeeper/pending/w1.0199c0de-0000-7000-8000-000000000001.0000000001.txlog.avro",
        "sqlite:////srv/lake/catalog.db?timeout=20",
        "token=None, password: null",
        "s3.access-key-id=AKIAIOSFODNN7",
    ],
)
def test_what_is_no_secret_stays_readable(text: str) -> None:
    assert secrets.redacted(text) == text


@pytest.mark.parametrize("part", ["a", "x.y-z/", '"', "token=", "://a:", "secret'"])
def test_of_a_long_line_the_rules_read_16_kib(part: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Their time grows with the square of the length: with a higher power of it, even these would hang."""
    read = list[int]()

    class Rule:
        def __init__(self, pattern: re.Pattern[str]) -> None:
            self.pattern = pattern

        def sub(self, instead: str, text: str) -> str:
            read.append(len(text))
            return self.pattern.sub(instead, text)

    monkeypatch.setattr(secrets, "_RULES", tuple((Rule(pattern), instead) for pattern, instead in secrets._RULES))
    secrets.redacted(part * (400_000 // len(part)))
    assert len(read) == len(secrets._RULES) and read[0] == 2**14 + len("...")


def test_the_libraries_themselves_say_no_secret_at_debug(loud: io.StringIO) -> None:
    import boto3
    import sqlalchemy
    import urllib3
    from azure.storage.blob import BlobServiceClient
    from botocore.config import Config

    key = "QUJDREVGR0hJSktMTU5PUFFSU1RVVldYWVphYmNkZWZnaGlqa2xtbm9wcXJzdHV2d3h5eg=="
    # Port 9 of loopback: refused at once.
    text = f"DefaultEndpointsProtocol=http;AccountName=a;AccountKey={key};BlobEndpoint=http://127.0.0.1:9/a;"
    once = Config(retries={"total_max_attempts": 1}, connect_timeout=1)
    options = {"endpoint_url": "http://127.0.0.1:9", "region_name": "us-east-1", "aws_secret_access_key": SECRET}
    s3 = boto3.client("s3", aws_access_key_id="AKIA", aws_session_token=f"{SECRET}-token", config=once, **options)
    engine = sqlalchemy.create_engine(f"postgresql+psycopg2://etl:{WORD.replace('@', '%40')}@127.0.0.1:9/lake")
    azure = BlobServiceClient.from_connection_string(text, retry_total=0, logging_enable=True)
    pool = urllib3.PoolManager(retries=False, timeout=1)
    for act in (
        lambda: s3.put_object(Bucket="b", Key="k", Body=b"x"),
        lambda: azure.get_blob_client("c", "b").upload_blob(b"x"),
        engine.connect,
        lambda: pool.request("GET", f"http://127.0.0.1:9/c/b?sv=1&sig={SIGNATURE}"),
    ):
        with pytest.raises(Exception) as caught:  # noqa: PT011
            act()
        logging.getLogger("bookkeeper").error("failed", exc_info=caught.value, extra={"settings": text})
    said = loud.getvalue()
    assert all(name in said for name in ("botocore", "azure", "sqlalchemy", "urllib3"))
    assert not [value for value in (key, SECRET, WORD, "horse", SIGNATURE) if value in said]


def test_an_error_of_a_command_hides_secrets_too(capsys: pytest.CaptureFixture[str]) -> None:
    from bookkeeper.console.errors import Failure
    from bookkeeper.errors import CatalogUnavailable

    Failure(CatalogUnavailable(FORMS["a password in a URI"][1], hint=FORMS["account key"][1])).show()
    said = capsys.readouterr().err
    assert "postgresql+psycopg2://etl:***@db:5432/lake" in said
    assert WORD not in said and KEY not in said


def test_an_uncaught_error_is_one_line_without_its_secrets(root: logging.Logger) -> None:
    said = io.StringIO()
    logs.set_up("json", stream=said)
    try:
        raise RuntimeError(FORMS["a password in a URI"][1])
    except RuntimeError as exc:
        logs._defect(type(exc), exc, exc.__traceback__)
    line = json.loads(said.getvalue())
    assert (line["action"], line["level"]) == ("defect", "critical")
    assert "Traceback" in line["exception"] and WORD not in said.getvalue()


def test_a_line_that_cannot_be_formatted_names_its_logger_and_shows_nothing_of_it(root: logging.Logger) -> None:
    said = io.StringIO()
    logs.set_up("human", stream=said)
    logging.getLogger("urllib3").warning("%d retries", SECRET)
    assert said.getvalue() == "a log line of urllib3 cannot be shown: TypeError\n"


def test_times_are_utc_in_both_formats(root: logging.Logger) -> None:
    times = {"human": "2026-11-21T20:00:00Z told  a=1", "json": '{"a": 1, "time": "2026-11-21T20:00:00.500Z"'}
    for kind, start in times.items():
        said = io.StringIO()
        logs.set_up(kind, stream=said)
        record = logging.makeLogRecord({"name": "bookkeeper", "msg": "told", "created": 1795291200.5, "a": 1})
        record.levelno = logging.INFO
        root.handlers[0].handle(record)
        assert said.getvalue().startswith(start)


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_people_at_a_terminal_and_programs_elsewhere_get_what_they_read(root: logging.Logger) -> None:
    for stream, kind in ((Terminal(), logs.Human), (io.StringIO(), logs.JsonLines)):
        logs.set_up(stream=stream)
        assert type(root.handlers[0].formatter) is kind


def test_a_line_for_people_moves_no_cursor(root: logging.Logger) -> None:
    stream = Terminal()
    logs.set_up(stream=stream)
    logging.getLogger("bookkeeper").warning("rejected", extra={"object": "\x1b[2Ja", "table": "events"})
    assert 'object="\\u001b[2Ja" table=events' in stream.getvalue()


def test_libraries_are_quiet_and_do_not_repeat_themselves(root: logging.Logger) -> None:
    said = io.StringIO()
    logs.set_up("json", "debug", stream=said)
    for _ in range(50):
        logging.getLogger("urllib3.connectionpool").warning("Connection pool is full, discarding %s", object())
        logging.getLogger("azure.core").info("Request URL")
        logging.getLogger("bookkeeper").debug("ours")
    lines = [json.loads(line)["logger"] for line in said.getvalue().splitlines()]
    assert (lines.count("urllib3.connectionpool"), lines.count("azure.core"), lines.count("bookkeeper")) == (1, 0, 50)


@pytest.mark.parametrize("where", ["a full disk", "a pipe without a reader", "a closed file"])
def test_nothing_that_happens_to_stderr_ends_the_daemon(where: str, lake: Lake, writer: Writes, root: Any) -> None:
    read, write = os.pipe()
    os.close(read)
    if where == "a full disk":
        full = os.open("/dev/full", os.O_WRONLY)
        os.dup2(full, write)
        os.close(full)
    stream = os.fdopen(write, "w")
    if where == "a closed file":
        stream.close()
    logs.set_up("json", stream=stream)
    slot = TableLoop("events", lake.book)
    writer.publish("a")
    assert tick_once(slot, Daemon(), lake.clock.move(seconds=1)).commit is not None
    thread = threading.Thread(target=lambda: logging.getLogger("urllib3").error("from a thread"))
    thread.start()
    thread.join()
    assert lake.keys() == ["a"]
    root.handlers.clear()
    with suppress(OSError):
        stream.close()


def test_a_daemon_whose_streams_are_closed_works_and_writes_into_no_file(lake: Lake, writer: Writes, run: Any) -> None:
    writer.publish("a")
    config = f"{lake.root}/bookkeeper.toml"
    once = f"exec {sys.executable} -m bookkeeper once --config {config} <&- >&- 2>&-"
    assert subprocess.run(["sh", "-c", once]).returncode == 0
    assert lake.keys() == ["a"]


def test_characters_that_stdout_does_not_have_are_escapes() -> None:
    show = "lambda: show_rows([{'column': 'größe 大小'}], False)"
    program = (
        "from bookkeeper.console.errors import Command\nfrom bookkeeper.console.output import show_rows\n"
        f"Command('show', callback={show}).main()"
    )
    environ = {**os.environ, "PYTHONIOENCODING": "latin-1"}
    done = subprocess.run([sys.executable, "-c", program], env=environ, capture_output=True)
    assert (done.returncode, done.stderr) == (0, b"")
    assert done.stdout.decode("latin-1").endswith("e \\u5927\\u5c0f\n")


def test_a_commit_is_one_line_and_idle_ticks_are_none(lake: Lake, writer: Writes, root: logging.Logger) -> None:
    slot, settings, said = TableLoop("events", lake.book), Daemon(), io.StringIO()
    logs.set_up("json", stream=said)
    for commit in range(3):
        for number in range(5):
            writer.publish(f"{commit}-{number}")
        tick_once(slot, settings, lake.clock.move(seconds=1), lake.clock)
    told = [json.loads(line) for line in said.getvalue().splitlines()]
    assert [(line["action"], line["table"], line["txlogs"]) for line in told] == [("commit", "events", 5)] * 3
    for _ in range(100):
        tick_once(slot, settings, lake.clock.move(seconds=11), lake.clock)
    assert len(said.getvalue().splitlines()) == 3


def test_what_is_served_hides_secrets_too() -> None:
    from bookkeeper.observe.http.site import _json

    said = {
        "tables": [{"why": FORMS["a password in a URI"][1], "pending": 3, "lag": 0.5, "plots": {"rows": [None, 1.0]}}]
    }
    body = _json(said).body.decode()
    assert WORD not in body
    assert json.loads(body)["tables"][0] == said["tables"][0] | {
        "why": "could not connect: postgresql+psycopg2://etl:***@db:5432/lake"
    }
