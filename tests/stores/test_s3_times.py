"""Times as S3 writes them: parsed without dateutil, to the same values."""

import pytest
from botocore.utils import parse_timestamp  # type: ignore[import-untyped]

from bookkeeper.stores.s3 import filesystem, parse_time


@pytest.mark.parametrize(
    "text",
    [
        "2026-11-22T17:50:01.123Z",
        "2026-11-22T17:50:01Z",
        "2026-11-22T17:50:01.123456Z",
        "Sun, 22 Nov 2026 17:53:46 GMT",
        "2026-11-22T17:50:01+02:00",
        "1795000000",
    ],
)
def test_a_time_is_what_botocore_reads(text: str) -> None:
    found = parse_time(text)
    assert found == parse_timestamp(text)
    assert found.utcoffset() is not None


@pytest.mark.parametrize("seconds", [1795000000, 1795000000.25])
def test_a_number_is_seconds_as_other_services_of_the_session_write_them(seconds: float) -> None:
    assert parse_time(seconds) == parse_timestamp(seconds)


@pytest.mark.parametrize("text", ["", "Z", "GMT", "yesterday", "2026-13-01T00:00:00Z"])
def test_what_is_no_time_is_a_value_error(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        parse_time(text)


def test_the_client_parses_times_so() -> None:
    session = filesystem({"s3.access-key-id": "a", "s3.secret-access-key": "b"}).session
    assert session.get_component("response_parser_factory").create_parser("rest-xml")._timestamp_parser is parse_time
