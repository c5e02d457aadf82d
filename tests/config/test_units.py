"""Durations and sizes as people write and read them."""

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bookkeeper.config.units import duration, format_duration, millis, size, spoken_size


@pytest.mark.parametrize(
    ("text", "span"),
    [
        ("250ms", timedelta(milliseconds=250)),
        ("0s", timedelta(0)),
        ("10s", timedelta(seconds=10)),
        ("1.5h", timedelta(minutes=90)),
        ("10m", timedelta(minutes=10)),
        ("10 m", timedelta(minutes=10)),
        (" 24h ", timedelta(days=1)),
        ("7d", timedelta(days=7)),
        ("2w", timedelta(weeks=2)),
        ("36500d", timedelta(days=36500)),
    ],
)
def test_a_duration(text: str, span: timedelta) -> None:
    assert duration(text) == span


@pytest.mark.parametrize("text", ["", "10", "m", "10 minutes", "-1s", "1h30m", "1,5h", "1e3s", "infs", "10M", "10S"])
def test_what_is_no_duration(text: str) -> None:
    with pytest.raises(ValueError, match="a duration such as"):
        duration(text)


@pytest.mark.parametrize("text", ["36501d", "99999999999999999999w", "9" * 400 + "s"])
def test_a_duration_that_no_calendar_reaches_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="at most 36500d"):
        duration(text)


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("0", 0),
        ("512", 512),
        ("512B", 512),
        ("64KiB", 65_536),
        ("128 MiB", 134_217_728),
        ("1.5GiB", 1_610_612_736),
        ("1TiB", 2**40),
        ("20MB", 20_000_000),
        ("1kB", 1000),
        ("2GB", 2_000_000_000),
        ("1TB", 10**12),
    ],
)
def test_a_size(text: str, count: int) -> None:
    assert size(text) == count


@pytest.mark.parametrize("text", ["", "MiB", "-1", "1mb", "1KB", "1M", "1 Mi", "1e3", "1,000", "inf"])
def test_what_is_no_size(text: str) -> None:
    with pytest.raises(ValueError, match="a size such as"):
        size(text)


@pytest.mark.parametrize("text", ["9" * 400, "9999999999999TiB"])
def test_a_size_that_no_counter_holds_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="below 8 EiB"):
        size(text)


@pytest.mark.parametrize(
    ("span", "text"),
    [
        (timedelta(0), "0 ms"),
        (timedelta(microseconds=1500), "1.5 ms"),
        (timedelta(milliseconds=999.9), "1000 ms"),
        (timedelta(seconds=1.5), "1.5 s"),
        (timedelta(seconds=59), "59 s"),
        (timedelta(minutes=10), "10 m"),
        (timedelta(hours=36), "1.5 d"),
        (timedelta(days=3650), "3650 d"),
        (timedelta(seconds=-5), "-5 s"),
        (timedelta(hours=-36), "-1.5 d"),
    ],
)
def test_a_duration_is_spoken_in_its_largest_fitting_unit(span: timedelta, text: str) -> None:
    assert format_duration(span) == text


@pytest.mark.parametrize(
    ("count", "text"),
    [(0, "0 B"), (1023, "1023 B"), (1740, "1.7 KiB"), (20 * 2**20, "20 MiB"), (1023 * 2**30, "1023 GiB")],
)
def test_a_size_is_spoken_in_its_largest_fitting_unit(count: int, text: str) -> None:
    assert spoken_size(count) == text
    assert spoken_size(5000 * 2**40) == "5000 TiB"


@given(st.integers(0, 2**62), st.timedeltas())
def test_nothing_is_ever_spoken_with_an_exponent(count: int, span: timedelta) -> None:
    assert "e" not in spoken_size(count)
    assert "e" not in format_duration(span)


@given(st.integers(0, 10**9))
def test_whole_milliseconds_survive(count: int) -> None:
    assert millis(duration(f"{count}ms")) == count
    assert millis(timedelta(microseconds=1999)) == 1
