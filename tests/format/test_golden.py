"""Golden txlogs: whatever a txlog once said, every later version reads the same."""

import hashlib
import json
import zlib
from pathlib import Path

import pytest

from bookkeeper.contract.txlog import decode
from bookkeeper.format import avro
from tests.golden.contents import FOLDER, MOST, NAMES, OURS, described, our_header
from tests.golden.make import make

#: they never change; a new one is added here
SHA256 = {
    "by-bucket-decimal-uuid": "c0e1c70a671ac7568025e46852d03ed8ca53a299e6e7e666c163fef1cabe9e4d",
    "by-day": "335462f477f2af3d0a9192af151c4e41e3363a1283f6a35631951b76594951fb",
    "deletes-by-bucket": "1d1f3c78af90a0e083a9392b626d3d5e7b3b2f082a3f2e2a783a582869224269",
    "deletes-only": "301c7d7cd3a7805da70712050eea993a98c2035c34b98948d369ca5bd2842fae",
    "java-steps": "6c7d8a33f2294f16188ea812732124c5b34b0c90d21e9ea332e3a68137214030",
    "java-offsets": "b1695ace25848da4b1191a983894d2210ac7c2be37b017c55c2a2cd71124292b",
    "java": "e01941dd588c99f82e6310a03466cc1720c53e5a76e91fca919c8c81fff932ff",
    "many": "8b25dbf5ac6d96ecfae3f963b5e02600631a722dcf60d3def9f448749e42a6ed",
    "offsets": "27f74459c046e5b7b8fc3ca11b7144d80568f4ad15874a843a70b6c043acf3c7",
    "offsets-and-deletes": "00662faa0099676e5e160aafd0276e6153b8d46b057354b60d83d225ca3f4b9c",
    "offsets-only": "5623a788d95672675fb46de2695778eae560f9a50371bdfce279f4e8dda647ce",
    "positions": "74e2d9af6b47079550a748b787986f06d8c25a5ea0555a978adeddfba0b69959",
    "pyiceberg": "0fd4c67ab983fb390f45ecf1e688c2744553a97cb72e4d79b48dbb85b8259ce1",
    "steps": "db0c610d7b44e2aa87a5d864ecd083c5d0dd87cbb3e590971ad4461ac226c6db",
    "unpartitioned": "13ef90fbcd21b42b64a3c0d267a71fdb2497b66624b639513914a8840c7057cc",
}


def golden(key: str) -> bytes:
    return (FOLDER / f"{key}.txlog.avro").read_bytes()


@pytest.mark.parametrize("key", NAMES)
def test_a_golden_txlog_is_read_as_it_always_was(key: str) -> None:
    data = golden(key)
    said = json.loads((FOLDER / f"{key}.json").read_text("utf-8"))
    assert described(decode(NAMES[key], data, MOST), our_header(data)) == said


def plain(found: avro.Container) -> object:
    """Without what zlib makes of the delete manifest, which is compared by itself."""
    return {key: value for key, value in found.meta.items() if key != "bookkeeper.deletes"}, found.blocks


@pytest.mark.parametrize("key", OURS)
def test_what_is_written_today_is_what_was_written_then(key: str) -> None:
    now, then = (avro.decode(data, MOST) for data in (OURS[key].encoded(), golden(key)))
    assert plain(now) == plain(then)
    if "bookkeeper.deletes" in now.meta:
        inner_now, inner_then = (avro.decode(found.meta["bookkeeper.deletes"], MOST) for found in (now, then))
        assert inner_now == inner_then
    if "ng" not in zlib.ZLIB_RUNTIME_VERSION:  # zlib-ng compresses otherwise
        assert OURS[key].encoded() == golden(key)


@pytest.mark.parametrize("key", NAMES)
def test_no_golden_txlog_was_made_again(key: str) -> None:
    assert hashlib.sha256(golden(key)).hexdigest() == SHA256[key]


def test_every_golden_file_is_known() -> None:
    assert {path.name for path in FOLDER.glob("*.avro")} == {f"{key}.txlog.avro" for key in NAMES}
    assert {path.name for path in FOLDER.glob("*.json")} == {f"{key}.json" for key in NAMES}


def test_making_golden_files_overwrites_nothing(tmp_path: Path) -> None:
    makers = {"positions": OURS["positions"].encoded, "by-day": OURS["by-day"].encoded}
    (tmp_path / "positions.txlog.avro").write_bytes(b"old")
    assert make(tmp_path, makers) == ["by-day"]
    assert (tmp_path / "positions.txlog.avro").read_bytes() == b"old"
    assert make(tmp_path, makers) == []
    (tmp_path / "by-day.txlog.avro").unlink()
    with pytest.raises(FileExistsError):
        make(tmp_path, makers)
