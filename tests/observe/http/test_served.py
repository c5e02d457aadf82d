"""`bookkeeper run` as a process: what it answers beside a frozen table, and when tables come and go."""

import json
import subprocess
from typing import Any
from urllib.error import HTTPError
from urllib.request import urlopen

import pytest

from tests.serve.test_serve import Served, served  # noqa: F401
from tests.support.configured import program
from tests.support.watched import samples


def asked(url: str) -> tuple[int, str]:
    try:
        with urlopen(url, timeout=120) as answer:
            return answer.status, answer.read().decode()
    except HTTPError as error:
        return error.code, error.read().decode()


def tables_in(url: str) -> set[str | None]:
    return {dict(labels).get("table") for _, labels in samples(asked(f"{url}metrics")[1])} - {None}


def test_a_frozen_table_is_told_of_and_a_removed_one_no_more(served: Served) -> None:  # noqa: F811
    served.configure("a", "b")
    served.freeze("b")
    served.start()
    url = served.until(action="serve")["url"]
    served.commits("a", "1")

    assert tables_in(url) == {"a", "b"}
    assert asked(f"{url}healthz") == (200, '{"healthy":true,"tables":2,"dead":{}}\n')
    status: dict[str, Any] = json.loads(asked(f"{url}status.json")[1])
    assert {table["table"]: table["state"] for table in status["tables"]} == {"a": "ready", "b": "starting"}
    found = samples(asked(f"{url}metrics")[1])
    assert found["bookkeeper_rows_committed_total", frozenset({("table", "a")})] == 1
    assert any(name == "process_resident_memory_bytes" for name, _ in found)

    served.configure("a")
    assert served.hup()["removed"] == ["b"]
    assert tables_in(url) == {"a"}
    page, text = asked(url)
    assert page == 200 and text.startswith("<!doctype html>")


def test_a_port_that_is_taken_ends_it_with_what_to_do(served: Served) -> None:  # noqa: F811
    served.configure("a", more="")
    served.start()
    url = served.until(action="serve")["url"]
    taken = url.removeprefix("http://").rstrip("/")
    served.config.write_text(served.config.read_text().replace("127.0.0.1:0", taken))
    second = served.crew.start("second", program("bookkeeper", served.config), stderr=subprocess.PIPE)
    said = second.communicate(timeout=60)[1].decode()
    assert second.returncode == 1
    assert f"cannot listen on {taken}: Address already in use" in said and "--listen" in said


@pytest.mark.parametrize("listen", ["nowhere", "127.0.0.1:http"])
def test_a_listen_that_is_no_address_is_said_at_once(served: Served, listen: str) -> None:  # noqa: F811
    from click.testing import CliRunner

    from bookkeeper.cli import main

    served.configure("a")
    done = CliRunner().invoke(main, ["run", "--config", str(served.config), "--listen", listen])
    assert done.exit_code == 1 and f"listen = '{listen}'" in done.output
