"""The grants of docs/stores.md#least-privilege, in force on a real Postgres: enough for each role, and no more."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.deploy.rights import Roles, grants
from tests.servers import Server, postgres
from tests.servers.needed import needed

UPDATE = "UPDATE iceberg_tables SET metadata_location = metadata_location"
INSERT = "INSERT INTO iceberg_namespace_properties VALUES ('lake', 'x', 'y', 'z')"
FORBIDDEN = [
    ("consumer", UPDATE),
    ("consumer", "DELETE FROM iceberg_tables"),
    ("bookkeeper", "DELETE FROM iceberg_tables"),
    ("bookkeeper", INSERT),
    ("bookkeeper", "DROP TABLE iceberg_tables"),
    ("reaper", "DELETE FROM iceberg_tables"),
    ("writer", "SELECT * FROM iceberg_tables"),
]


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with needed("postgres"), postgres() as running:
        yield running


def run(server: Server, role: str, text: str) -> None:
    import psycopg2

    connection = psycopg2.connect(host="127.0.0.1", port=server.port, user=role, dbname="postgres")
    try:
        with connection, connection.cursor() as cursor:
            cursor.execute(text)
    finally:
        connection.close()


def test_each_role_does_its_work_and_nothing_else(server: Server, tmp_path: Path) -> None:
    from psycopg2.errors import InsufficientPrivilege

    roles = Roles(tmp_path, f"file://{tmp_path}/queue", {**server.properties, "warehouse": f"file://{tmp_path}/lake"})

    def uri(role: str) -> dict[str, str]:
        return {"uri": server.properties["uri"].replace("postgres@", f"{role}@")}

    owner = roles.queue("owner")
    owner.run("bookkeeper", "init")
    run(server, "postgres", grants() + "CREATE ROLE writer LOGIN;")
    bookkeeper, reaper, consumer = (roles.queue(role, **uri(role)) for role in ("bookkeeper", "reaper", "consumer"))
    keys = owner.generate("w1", files=2)
    assert bookkeeper.asked("once")[0]["outcome"] == "committed"
    assert bookkeeper.asked("verify") == []
    reaper.run("reaper", "once", "--release-brake")
    assert consumer.keys() == dict.fromkeys(keys, 1)

    for role, text in FORBIDDEN:
        with pytest.raises(InsufficientPrivilege):
            run(server, role, text)
