"""Tests of the tests: an engine that is broken on purpose is caught, and by the property that names what is wrong."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bookkeeper.core.rewrite import Rewrite
from bookkeeper.errors import BookkeeperError
from bookkeeper.format import partition
from bookkeeper.format.records import EXISTING, Prefix, write_prefix
from bookkeeper.ledger import summary
from bookkeeper.ledger.rewrite_groups import RewriteGroup
from bookkeeper.manifests import blocks, header
from bookkeeper.manifests import walk as walked
from bookkeeper.manifests.blocks import _StatusRewrite
from bookkeeper.manifests.header import Header
from bookkeeper.retention import scan as retention_find
from tests.histories.random_walk import OF_COMPACTORS, walk
from tests.histories.world import SPECS, World

Broken = tuple[Any, str, Callable[..., Any]]


def totals_off_by_one() -> Broken:
    whole = summary.summary

    def broken(*given: Any) -> Any:
        found = whole(*given)
        found.additional_properties["total-records"] = str(int(found["total-records"] or 0) + 1)
        return found

    return summary, "summary", broken


def carried_with_the_manifests_sequence_number() -> Broken:
    def broken(rewrite: Any, raw: bytes, gone: bool) -> Any:
        made = rightly(rewrite, raw, gone)
        after = made and replace(made[0], sequence=rewrite._manifest.sequence_number)
        return after and (after, write_prefix(after))

    rightly = _StatusRewrite._rewrite
    return _StatusRewrite, "_rewrite", broken


def bounds_of_the_first_partition_only() -> Broken:
    def broken(kinds: Any, tuples: Any) -> Any:
        return partition.summarise(kinds, list(tuples)[:1])

    return header, "summarise", broken


def tombstones_left_out() -> Broken:
    def broken(rewrite: Any, raw: bytes, gone: bool) -> Any:
        return None if gone else rightly(rewrite, raw, gone)

    rightly = _StatusRewrite._rewrite
    return _StatusRewrite, "_rewrite", broken


def joined_across_layouts() -> Broken:
    return Header, "joins", lambda its, found: True


def blocks_known_by_their_count_only() -> Broken:
    def broken(avro_schema: bytes, codec: bytes) -> Any:
        return lambda block: b"%d" % block.count

    return walked, "digester", broken


def blocks_with_ids_to_inherit_carried_as_they_are() -> Broken:
    def broken(rows: Any, size: int) -> Any:
        written = write_prefix(Prefix(EXISTING, 1, 1, 1))
        return rightly([row._replace(prefix=written) for row in rows], size)

    rightly = blocks.stats_of
    return blocks, "stats_of", broken


def blocks_that_lose_files_not_read() -> Broken:
    def broken(*given: Any) -> Any:
        return rightly(*given[:-2], lambda _: False, given[-1])

    rightly = retention_find.selected_files
    return retention_find, "selected_files", broken


def rewrites_whose_manifest_hides_its_smallest_number() -> Broken:
    def broken(group: Any, header: Any) -> Any:
        return replace(rightly(group, header), least_sequence=None)

    rightly = RewriteGroup.records
    return RewriteGroup, "records", broken


def rewrites_with_the_smallest_number() -> Broken:
    return Rewrite, "sequence_number", property(lambda self: min(found[0] for found in self.replaced.values()))


CAUGHT = {
    totals_off_by_one: "summaries_count_what_their_snapshot_holds",
    carried_with_the_manifests_sequence_number: "entries_are_carried_on_as_they_were",
    bounds_of_the_first_partition_only: "lists_describe_their_manifests",
    tombstones_left_out: "snapshots_follow_from_their_parents",
    joined_across_layouts: "undecodable",
    blocks_known_by_their_count_only: "snapshots_follow_from_their_parents",
    blocks_with_ids_to_inherit_carried_as_they_are: "snapshots_follow_from_their_parents",
    blocks_that_lose_files_not_read: "live_files_are_the_models",
    rewrites_whose_manifest_hides_its_smallest_number: "lists_describe_their_manifests",
    rewrites_with_the_smallest_number: "entries_are_carried_on_as_they_were",
}


#: caught on walks on which compactors take part
OF_REWRITES = (rewrites_whose_manifest_hides_its_smallest_number, rewrites_with_the_smallest_number)


@pytest.mark.parametrize("breaks", CAUGHT, ids=lambda breaks: breaks.__name__)
def test_a_broken_engine_is_caught_by_the_property_it_breaks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, breaks: Callable[[], Broken]
) -> None:
    monkeypatch.setattr(*breaks())
    found = complaints(tmp_path, () if breaks in OF_REWRITES else OF_COMPACTORS)
    assert CAUGHT[breaks] in {complaint.partition(":")[0] for complaint in found}


@pytest.mark.parametrize("without", [(), OF_COMPACTORS], ids=["with rewrites", "without"])
def test_the_engine_as_it_is_makes_no_complaint_on_the_same_walks(tmp_path: Path, without: tuple[str, ...]) -> None:
    assert complaints(tmp_path, without) == []


def complaints(root: Path, without: tuple[str, ...]) -> list[str]:
    """What the first walk that ends badly says; each walk has merges, retention and widened columns."""
    for seed, spec in enumerate(("by value", "by day", "by price")):
        world = World(root / spec / "lake", SPECS[spec], seed)
        try:
            for _ in walk(world, seed, 60, without):
                if found := world.complaints():
                    return found
        except (EOFError, IndexError, ValueError, BookkeeperError) as error:
            return [f"undecodable: {error}"]
    return []
