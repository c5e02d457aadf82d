"""The Avro schema of partition tuples: as the Iceberg spec maps types, under names that Avro allows."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyiceberg.types import IcebergType

from bookkeeper.format.layout import physical
from bookkeeper.format.partition_tuples import avro_type, compatible
from tests.format.strategies import TYPES

#: spec, "Appendix A: Avro"
SPEC = {
    "boolean": "boolean",
    "int": "int",
    "long": "long",
    "float": "float",
    "double": "double",
    "decimal(10, 2)": ("fixed", 5),
    "decimal(38, 0)": ("fixed", 16),
    "date": "int",
    "time": "long",
    "timestamp": "long",
    "timestamptz": "long",
    "string": "string",
    "uuid": ("fixed", 16),
    "fixed[7]": ("fixed", 7),
    "binary": "bytes",
}


@pytest.mark.parametrize("kind", TYPES, ids=str)
def test_a_type_is_written_as_the_spec_says(kind: IcebergType) -> None:
    assert physical(avro_type(kind, 1000)) == SPEC[str(kind)]


@pytest.mark.parametrize(
    ("name", "avro"),
    [
        ("day", "day"),
        ("a_1", "a_1"),
        ("1a", "_1a"),
        ("a b", "a_x20b"),
        ("a.b", "a_x2Eb"),
        ("-a", "_x2Da"),
        ("é", "_xE9"),
        ("aé", "a_xE9"),
        ("²a", "_xB2a"),
        ("日", "_x65E5"),
    ],
)
def test_a_name_is_made_compatible_as_iceberg_does(name: str, avro: str) -> None:
    assert compatible(name) == avro


@given(st.text(min_size=1))
def test_whatever_a_field_is_called_avro_takes_its_name(name: str) -> None:
    assert re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", compatible(name))
