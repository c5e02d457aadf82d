"""Which manifests are merged: full tiers, neighbours in time, and never more than one process should hold."""

from bookkeeper.format.manifest_list import ListedManifest
from bookkeeper.ledger.merge import FAN, MOST_FILES, TARGET_BYTES, groups
from tests.support.manifest_lists import listed_manifest


def manifest(number: int, files: int, size: int = 1000) -> ListedManifest:
    return listed_manifest(
        f"m{number}",
        manifest_length=size,
        sequence_number=number,
        min_sequence_number=number,
        added_files_count=files,
    )


def merged(*manifests: ListedManifest) -> list[list[str]]:
    return [[item.manifest_path for item in group] for group in groups(manifests)]


def test_a_full_tier_is_merged_oldest_first() -> None:
    made = [manifest(number, 5) for number in reversed(range(FAN))]
    assert merged(*made) == [[f"m{number}" for number in range(FAN)]]
    assert merged(*made[1:]) == []


def test_a_merged_manifest_has_a_bounded_number_of_entries() -> None:
    made = [manifest(number, MOST_FILES * 2 // 5) for number in range(FAN)]
    assert merged(*made) == [["m0", "m1"]]
    assert all(sum(item.live_files for item in group) <= MOST_FILES for group in groups(made))


def test_a_merged_manifest_has_a_bounded_size() -> None:
    assert merged(*(manifest(number, 300, TARGET_BYTES * 2 // 5) for number in range(FAN))) == [["m0", "m1"]]


def test_what_has_grown_large_is_not_merged_again() -> None:
    assert merged(*(manifest(number, MOST_FILES // 2) for number in range(FAN))) == []
    assert merged(*(manifest(number, 300, TARGET_BYTES // 2) for number in range(FAN))) == []
