"""
One of several processes that commit to one table at the same time: `python -m tests.stores.racer NAME NUMBER` with
the catalog's properties as JSON on stdin. Each commit adds a property of its own; prints how many were refused.
"""

import json
import sys

from pyiceberg.table.update import AssertTableUUID, SetPropertiesUpdate

from bookkeeper.catalogs.commit import commit, load_table
from bookkeeper.catalogs.open import open_catalog
from bookkeeper.config.settings import Catalog
from bookkeeper.errors import CatalogUnavailable, CommitConflict, CommitUnknown


def main(name: str, number: int) -> None:
    """
    Commits until all are in.
    """
    catalog = open_catalog(Catalog("lake", json.load(sys.stdin)))
    print("ready", flush=True)
    refused = 0
    for index in range(number):
        key = f"racer.{name}.{index}"
        while True:
            try:
                table = load_table(catalog, "demo.race")
                if key in table.metadata.properties:
                    break  # an outcome that was unknown
                guard = AssertTableUUID(uuid=table.metadata.table_uuid)
                commit(table, (guard,), (SetPropertiesUpdate(updates={key: "in"}),))
                break
            except (CommitConflict, CommitUnknown, CatalogUnavailable):
                refused += 1
    print(refused, flush=True)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
