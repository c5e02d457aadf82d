"""
A REST catalog over one of our own catalogs, on any storage, that hands out keys of S3, SAS tokens of Azure, or tokens
of Google.

Iceberg's own server needs a JVM and the jars of each storage. The requests and answers are the same here; only what the
tests and the product send is answered.
"""

import json
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from threading import Lock
from typing import Any

from pyiceberg.catalog.rest import CreateTableRequest
from pyiceberg.exceptions import (
    CommitFailedException,
    NamespaceAlreadyExistsError,
    NoSuchNamespaceError,
    NoSuchTableError,
    TableAlreadyExistsError,
)
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC
from pyiceberg.table import CommitTableRequest, Table
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER

from tests.servers.handing_out import CatalogProxy, Desk
from tests.servers.proxy import Reply, Request, proxy

_NAMESPACE = re.compile(r"/v1/namespaces(?:/([^/?]+))?(?:\?.*)?")
_TABLE = re.compile(r"/v1/namespaces/([^/]+)/tables(?:/([^/?]+))?(?:\?.*)?")
_ERRORS = {
    NoSuchTableError: (404, "NoSuchTableException"),
    NoSuchNamespaceError: (404, "NoSuchNamespaceException"),
    NamespaceAlreadyExistsError: (409, "AlreadyExistsException"),
    TableAlreadyExistsError: (409, "AlreadyExistsException"),
    CommitFailedException: (409, "CommitFailedException"),
}


@dataclass
class CatalogOver(CatalogProxy):
    """Answers from `catalog`, one request at a time."""

    catalog: Any = None
    lock: Any = field(default_factory=Lock)

    def forward(self, request: Request) -> Reply:
        """What the catalog says."""
        with self.lock:
            try:
                return self._answered(request)
            except tuple(_ERRORS) as exc:
                status, kind = _ERRORS[type(exc)]
                return _json(status, {"error": {"message": str(exc), "type": kind, "code": status}})

    def _answered(self, request: Request) -> Reply:
        if request.path.startswith("/v1/config"):
            return _json(200, {"defaults": {}, "overrides": {}})
        if (found := _TABLE.fullmatch(request.path)) is not None:
            return self._of_table(request, found[1], found[2])
        if (found := _NAMESPACE.fullmatch(request.path)) is not None:
            return self._of_namespace(request, found[1])
        return _json(404, {"error": {"message": request.path, "type": "NotFound", "code": 404}})

    def _of_namespace(self, request: Request, name: str | None) -> Reply:
        if request.method == "POST":
            name = ".".join(json.loads(request.body)["namespace"])
            self.catalog.create_namespace(name)
        assert name is not None
        return _json(200, {"namespace": [name], "properties": self.catalog.load_namespace_properties(name)})

    def _of_table(self, request: Request, namespace: str, name: str | None) -> Reply:
        if name is None:
            given = {"location": None, "partition-spec": None, "write-order": None, **json.loads(request.body)}
            asked = CreateTableRequest.model_validate(given)
            made = self.catalog.create_table(
                f"{namespace}.{asked.name}",
                asked.table_schema,
                asked.location,
                asked.partition_spec or UNPARTITIONED_PARTITION_SPEC,
                asked.write_order or UNSORTED_SORT_ORDER,
                asked.properties,
            )
            return _table(made)
        table = self.catalog.load_table(f"{namespace}.{name}")
        if request.method == "DELETE":
            self.catalog.drop_table(f"{namespace}.{name}")
            return Reply(204, [], b"")
        if request.method == "POST":
            asked_for = {"namespace": namespace.split("."), "name": name}  # which Java says by the path alone
            commit = CommitTableRequest.model_validate({"identifier": asked_for, **json.loads(request.body)})
            self.catalog.commit_table(table, commit.requirements, commit.updates)
            table = self.catalog.load_table(f"{namespace}.{name}")
        return _table(table)


def _table(table: Table) -> Reply:
    metadata = json.loads(table.metadata.model_dump_json())
    return _json(200, {"metadata-location": table.metadata_location, "metadata": metadata})


def _json(status: int, body: Any) -> Reply:
    return Reply(status, [("Content-Type", "application/json")], json.dumps(body).encode())


@contextmanager
def catalog_over(opened: Callable[[], Any], desk: Desk) -> Iterator[CatalogOver]:
    """
    The server, running; `opened` opens the catalog that it answers from.
    """
    with proxy(0, CatalogOver) as made:
        assert isinstance(made, CatalogOver)
        made.catalog, made.desk = opened(), desk
        yield made
