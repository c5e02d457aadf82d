"""TLS and SASL against a broker that asks for both, and how a refusal is said."""

from pathlib import Path

import pytest
from click.testing import CliRunner

from tests.kafka.topics import Copy, Topics, queue
from tests.servers.kafka import PASSWORD, USER
from tests.servers.process import Server
from tests.support.logs import logging_put_back
from writers.cli import main
from writers.kafka import client as client_module


def settings(broker: Server, **other: str) -> str:
    given = {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "PLAIN",
        "sasl.username": USER,
        "sasl.password": PASSWORD,
        "ssl.ca.location": broker.properties["ca"],
    }
    given |= {key.replace("_", "."): value for key, value in other.items()}
    return "".join(f"{key}={value}\n" for key, value in given.items() if value)


def copied(broker: Server, tmp_path: Path, folder: str, topic: str, text: str) -> tuple[int, str]:
    file = tmp_path / "client.properties"
    file.write_text(text, "ascii")
    words = ["kafka", "--folder", folder, "--name", "copy", "--brokers", broker.properties["secure.servers"]]
    words += ["--topic", topic, "--until-end", "--client", str(file), "--log-level", "debug"]
    columns = [word for part in ("topic", "partition", "offset") for word in ("--column", f"{part}={part}")]
    with logging_put_back():
        done = CliRunner().invoke(main, [*words, *columns])
    return done.exit_code, done.output


def test_a_topic_is_copied_by_tls_and_sasl_and_no_secret_is_shown(
    broker: Server, topics: Topics, tmp_path: Path
) -> None:
    topics.make("secure", 2)
    topics.numbers("secure", 0, 5, 1)
    copy = Copy(topics, queue(tmp_path / "lake"), "secure")

    code, output = copied(broker, tmp_path, copy.folder, "secure", settings(broker))

    assert code == 0, output
    assert PASSWORD not in output
    assert copy.rows() == [("secure", 1, n, n) for n in range(5)]


WRONG = {
    "another password": ({"sasl_password": "other-secret-8"}, "uthentication failed"),
    "an unknown user": ({"sasl_username": "nobody"}, "uthentication failed"),
    "an authority that is not known": ({"ssl_ca_location": ""}, "certificate verify failed|ssl.ca.location"),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_what_the_broker_refuses_is_said_at_once(broker: Server, tmp_path: Path, wrong: str) -> None:
    other, said = WRONG[wrong]
    folder = queue(tmp_path / "lake").made.folder

    code, output = copied(broker, tmp_path, folder, "secure", settings(broker, **other))

    assert code == 1
    assert any(word in output for word in said.split("|")), output
    assert "Look at security.protocol, sasl.* and ssl.* in the file of --client." in output
    assert PASSWORD not in output and "other-secret-8" not in output


def test_a_broker_that_does_not_understand_is_said_with_what_the_client_saw(
    broker: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client_module, "_SECONDS", 3.0)
    folder = queue(tmp_path / "lake").made.folder

    code, output = copied(broker, tmp_path, folder, "secure", "security.protocol=PLAINTEXT\n")

    assert code == 4
    assert "Kafka did not answer: " in output
    assert "security.protocol" in output
