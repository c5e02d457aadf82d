"""
A catalog's server: a table's metadata is JSON to it, and a commit is applied to that as it is when the commit arrives
(Iceberg's REST specification, "Commit"). Nothing here is of the product, or of pyiceberg.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

Doc = dict[str, Any]
MAIN = "main"
#: of `write.metadata.previous-versions-max`
MOST_LOGGED = 100


class Refused(Exception):
    """A requirement does not hold any more."""


def check(doc: Doc, location: str, requirements: Iterable[Mapping[str, Any]]) -> None:
    """Raises Refused for the first requirement that this metadata does not meet."""
    refs = doc.get("refs", {})
    for item in requirements:
        kind = item["type"]
        is_, wanted = {
            "assert-table-uuid": lambda item: (doc["table-uuid"], item["uuid"]),
            "assert-ref-snapshot-id": lambda item: (
                refs.get(item["ref"], {}).get("snapshot-id"),
                item.get("snapshot-id"),
            ),
            "assert-current-schema-id": lambda item: (doc["current-schema-id"], item["current-schema-id"]),
            "assert-last-assigned-field-id": lambda item: (doc["last-column-id"], item["last-assigned-field-id"]),
            "assert-last-assigned-partition-id": lambda item: (
                doc["last-partition-id"],
                item["last-assigned-partition-id"],
            ),
            "assert-default-spec-id": lambda item: (doc["default-spec-id"], item["default-spec-id"]),
            # As SQL, Hive and Glue catalogs have it: the table is the very one that was loaded.
            "assert-metadata-location": lambda item: (location, item["location"]),
        }[kind](item)
        if is_ != wanted:
            raise Refused(f"{kind}: {is_} is not {wanted}")


class Commit:
    """The application of one commit; `parents`: whether an expiry leaves the parents of children, as Java does."""

    def __init__(self, doc: Doc, now_ms: int, parents: bool) -> None:
        self.doc, self.now_ms, self.parents = dict(doc), now_ms, parents
        self.doc["last-updated-ms"] = max(now_ms, doc["last-updated-ms"])
        self.added = set[int]()

    def apply(self, update: Mapping[str, Any]) -> None:
        """One update; raises ValueError for one that servers refuse as malformed."""
        act: Callable[[Mapping[str, Any]], None] = getattr(self, "_" + update["action"].replace("-", "_"))
        act(update)

    def _snapshot(self, number: int) -> Doc:
        for item in reversed(self.doc["snapshots"]):
            if item["snapshot-id"] == number:
                found: Doc = item
                return found
        raise ValueError(f"unknown snapshot {number}")

    def _add_snapshot(self, update: Mapping[str, Any]) -> None:
        new = update["snapshot"]
        if any(item["snapshot-id"] == new["snapshot-id"] for item in self.doc["snapshots"]):
            raise ValueError(f"snapshot {new['snapshot-id']} is there already")
        if new["sequence-number"] <= self.doc["last-sequence-number"] and new.get("parent-snapshot-id") is not None:
            raise ValueError(f"sequence number {new['sequence-number']} is used up")
        self.added.add(new["snapshot-id"])
        self.doc["snapshots"] = [*self.doc["snapshots"], new]
        self.doc |= {"last-sequence-number": new["sequence-number"], "last-updated-ms": new["timestamp-ms"]}

    def _set_snapshot_ref(self, update: Mapping[str, Any]) -> None:
        name, snapshot = update["ref-name"], self._snapshot(update["snapshot-id"])
        ref = {"snapshot-id": snapshot["snapshot-id"], "type": update["type"]}
        if self.doc["refs"].get(name) == ref:
            return
        self.doc["refs"] = {**self.doc["refs"], name: ref}
        if name == MAIN:
            at = snapshot["timestamp-ms"] if snapshot["snapshot-id"] in self.added else self.doc["last-updated-ms"]
            entry = {"snapshot-id": snapshot["snapshot-id"], "timestamp-ms": at}
            self.doc |= {"current-snapshot-id": entry["snapshot-id"], "last-updated-ms": at}
            self.doc["snapshot-log"] = [*self.doc["snapshot-log"], entry]

    def _remove_snapshot_ref(self, update: Mapping[str, Any]) -> None:
        self.doc["refs"] = {name: ref for name, ref in self.doc["refs"].items() if name != update["ref-name"]}

    def _remove_snapshots(self, update: Mapping[str, Any]) -> None:
        gone = set(update["snapshot-ids"])
        for number in gone:
            self._snapshot(number)
        self.doc["snapshots"] = [
            item if self.parents or item.get("parent-snapshot-id") not in gone else _orphaned(item)
            for item in self.doc["snapshots"]
            if item["snapshot-id"] not in gone
        ]
        self.doc["snapshot-log"] = [item for item in self.doc["snapshot-log"] if item["snapshot-id"] not in gone]
        self.doc["refs"] = {name: ref for name, ref in self.doc["refs"].items() if ref["snapshot-id"] not in gone}

    def _set_properties(self, update: Mapping[str, Any]) -> None:
        self.doc["properties"] = {**self.doc["properties"], **update["updates"]}

    def _remove_properties(self, update: Mapping[str, Any]) -> None:
        gone = set(update["removals"])
        self.doc["properties"] = {key: value for key, value in self.doc["properties"].items() if key not in gone}

    def _add_schema(self, update: Mapping[str, Any]) -> None:
        new = update["schema"]
        self.doc["schemas"] = [*self.doc["schemas"], new]
        self.doc["last-column-id"] = max(self.doc["last-column-id"], *(field["id"] for field in new["fields"]))

    def _set_current_schema(self, update: Mapping[str, Any]) -> None:
        number, known = update["schema-id"], [item["schema-id"] for item in self.doc["schemas"]]
        self.doc["current-schema-id"] = known[known.index(number)] if number != -1 else max(known)

    def _add_spec(self, update: Mapping[str, Any]) -> None:
        new = update["spec"]
        self.doc["partition-specs"] = [*self.doc["partition-specs"], new]
        self.doc["last-partition-id"] = max(
            self.doc["last-partition-id"], *(field["field-id"] for field in new["fields"]), 999
        )

    def _set_default_spec(self, update: Mapping[str, Any]) -> None:
        number, known = update["spec-id"], [item["spec-id"] for item in self.doc["partition-specs"]]
        self.doc["default-spec-id"] = known[known.index(number)] if number != -1 else max(known)


def _orphaned(snapshot: Doc) -> Doc:
    """As pyiceberg does it."""
    return {key: value for key, value in snapshot.items() if key != "parent-snapshot-id"}


def applied(doc: Doc, location: str, updates: Iterable[Mapping[str, Any]], now_ms: int, parents: bool) -> Doc:
    """The metadata after a commit; raises ValueError for an update that no server takes."""
    commit = Commit(doc, now_ms, parents)
    for update in updates:
        commit.apply(update)
    logged = {"metadata-file": location, "timestamp-ms": doc["last-updated-ms"]}
    commit.doc["metadata-log"] = [*doc.get("metadata-log", ()), logged][-MOST_LOGGED:]
    return commit.doc
