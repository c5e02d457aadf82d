"""Locations: one spelling per file, and no way out of a folder."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bookkeeper.errors import PathRefused
from bookkeeper.stores.locations import are_normal, common_folder, inside, join, local_path, normal, normal_file

SAME = [
    ("/lake/x", "file:///lake/x"),
    ("file:/lake/x", "file:///lake/x"),
    ("file:///lake/x", "file:///lake/x"),
    ("/lake/x/", "file:///lake/x"),
    ("s3a://b/x", "s3://b/x"),
    ("s3n://b/x", "s3://b/x"),
    ("s3://b", "s3://b/"),
    ("s3://b/", "s3://b/"),
    ("abfs://c@a.dfs.core.windows.net/x", "abfss://c@a.dfs.core.windows.net/x"),
    ("wasb://c@a.blob.core.windows.net/x", "wasbs://c@a.blob.core.windows.net/x"),
    ("gcs://b/x", "gs://b/x"),
    ("memory://m/x", "memory://m/x"),
    ("s3://b/day=2026-11-21/a b+c,(d)~!é日本.parquet", "s3://b/day=2026-11-21/a b+c,(d)~!é日本.parquet"),
    ("s3://b/..x/x..y/...", "s3://b/..x/x..y/..."),
]
REFUSED = [
    "",
    "x",
    "lake/x",
    "./x",
    "../x",
    "file:x",
    "file:lake/x",
    "s3:b/x",
    "/lake/../x",
    "/lake/./x",
    "/lake//x",
    "/lake/x//",
    "/..",
    "file:////x",
    "s3://b//x",
    "s3://b/x/..",
    "s3://b/%2e%2e/x",
    "s3://b/%2E%2E/x",
    "s3://b/x%2fy",
    "s3://b/x%00",
    "s3://b/..\\x",
    "\\\\host\\share",
    "C:\\lake\\x",
    "s3://b/x?versionId=1",
    "s3://b/x#y",
    "s3://b/x\n",
    "s3://b/\0x",
    "s3://b/x\x7f",
    "FILE:///x",
    "S3://b/x",
]
OUTSIDE = [
    "s3://b/t/data",
    "s3://b/t/data/",
    "s3://b/t/database/x",
    "s3://b/t/x",
    "s3://b/x",
    "s3://B/t/data/x",
    "s3://other/t/data/x",
    "s3://b.evil.com/t/data/x",
    "gs://b/t/data/x",
    "file:///t/data/x",
    "/t/data/x",
    "s3://b/T/data/x",
    "s3://b/t/dätä/x",
]
segments = st.text(st.characters(exclude_characters="/\\%?#", exclude_categories=("Cc", "Cs")), min_size=1).filter(
    lambda text: text not in (".", "..")
)
paths = st.lists(segments, min_size=1, max_size=4).map("/".join)


@pytest.mark.parametrize(("location", "plain"), SAME)
def test_every_way_to_write_a_location_has_one_spelling(location: str, plain: str) -> None:
    assert normal(location) == plain
    assert normal(plain) == plain


@pytest.mark.parametrize("location", REFUSED)
def test_a_location_that_needs_interpretation_is_refused(location: str) -> None:
    with pytest.raises(PathRefused):
        normal(location)
    with pytest.raises(PathRefused):
        inside(location, "s3://b")


@pytest.mark.parametrize("root", ["s3://b/t/data", "s3://b/t/data/", "s3a://b/t/data"])
@pytest.mark.parametrize("location", ["s3://b/t/data/x", "s3a://b/t/data/day=1/x", "s3n://b/t/data/é"])
def test_a_file_below_the_folder_is_inside(location: str, root: str) -> None:
    assert inside(location, root)


@pytest.mark.parametrize("location", OUTSIDE)
def test_everything_else_is_outside(location: str) -> None:
    assert not inside(location, "s3://b/t/data")


@pytest.mark.parametrize("root", ["/lake/data", "file:/lake/data", "file:///lake/data"])
@pytest.mark.parametrize("location", ["/lake/data/x", "file:/lake/data/x", "file:///lake/data/x"])
def test_a_local_folder_is_the_same_however_it_is_written(location: str, root: str) -> None:
    assert inside(location, root)


def test_a_whole_bucket_may_be_the_folder() -> None:
    assert inside("s3://b/x", "s3://b") and inside("s3://b/x", "s3://b/")
    assert not inside("s3://b/", "s3://b") and not inside("s3://b2/x", "s3://b")


@given(paths, paths)
def test_what_is_joined_to_a_folder_is_inside_of_it_and_of_no_other(folder: str, name: str) -> None:
    root = f"s3://bucket/{folder}"
    assert inside(join(root, name), root)
    assert not inside(join(root, name), f"{root}x")
    assert not inside(root, join(root, name))


@given(st.text())
def test_a_location_is_refused_or_gets_one_spelling(text: str) -> None:
    try:
        plain = normal(text)
    except PathRefused:
        return
    assert normal(plain) == plain


TRICKY = ["", "/", "//", ".", "..", "...", ".x", "x.", "x", "\n", "file:///x", "s3://b", "%", "?", "é", " ", ":"]


@given(st.lists(st.lists(st.sampled_from([*TRICKY, "file://", "s3://", "/a"]), max_size=7).map("".join), max_size=4))
def test_locations_that_are_normal_together_are_so_one_by_one(locations: list[str]) -> None:
    if are_normal(locations):
        assert [normal(location) for location in locations] == locations
    common = ["file:///lake/t/data/day=1/a b.parquet", "s3://b/x", "gs://b/.x/..y/z..", *locations]
    assert are_normal(common[:3]) and are_normal(common) == are_normal(locations)


@pytest.mark.parametrize(
    "locations",
    [
        ["file:///a/efg", "file:///a/x/bcd"],
        ["file:///a/abc", "file:///b/abc"],
        ["file:///a/abc", "file:///a/.."],
        ["file:///a/."],
        ["file:///a/"],
        ["file:///a/b%c"],
        ["file:///a/a\nb"],
        ["file:///a//abc"],
        ["file:///a/..a/../b"],
        ["/a/abc"],
        ["file:///a/b\ud800c"],
        [],
    ],
)
def test_locations_that_are_no_files_of_one_folder_have_none(locations: list[str]) -> None:
    assert common_folder(locations) is None
    assert common_folder(["s3://b/a/x.parquet", "s3://b/a/..z é"]) == "s3://b/a/"


def test_a_location_of_two_lines_is_not_taken_for_two() -> None:
    assert are_normal(["file:///a", "file:///b"]) and not are_normal(["file:///a\nfile:///b"])


@pytest.mark.parametrize(
    ("location", "path"),
    [
        ("/lake/x", "/lake/x"),
        ("file:/lake/x", "/lake/x"),
        ("file:///lake/x", "/lake/x"),
        ("file://host/lake/x", None),
        ("s3://b/x", None),
        ("memory:/x", None),
    ],
)
def test_only_what_is_on_this_machine_has_a_local_path(location: str, path: str | None) -> None:
    assert local_path(location) == path


def test_joining_takes_roots_with_and_without_a_slash() -> None:
    assert join("s3://b/t", "data", "x") == join("s3://b/t/", "data", "x") == "s3://b/t/data/x"


def test_a_file_is_not_named_like_a_folder() -> None:
    assert normal_file("s3a://b/t/data/x") == "s3://b/t/data/x"
    with pytest.raises(PathRefused, match="names a folder"):
        normal_file("s3://b/t/data/x/")
