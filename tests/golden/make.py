"""
Makes golden files that are not there yet: `python -m tests.golden.make [JAVA_TXLOG [STEPS [OFFSETS]]]`. It overwrites
nothing, ever: a file that can no longer be decoded is a broken promise to every txlog that lies in a user's pending/.
"""

import json
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory

from bookkeeper.contract.txlog import decode
from tests.golden.contents import FOLDER, MOST, NAMES, OURS, described, our_header, pyicebergs


def make(folder: Path, makers: Mapping[str, Callable[[], bytes]]) -> list[str]:
    """
    Writes each file and its description where there is none; returns what it made. Never opens for overwriting.
    """
    made = []
    for key, maker in makers.items():
        target = folder / f"{key}.txlog.avro"
        if target.exists():
            continue
        data = maker()
        description = described(decode(NAMES[key], data, MOST), our_header(data))
        with open(target, "xb") as file:
            file.write(data)
        with open(folder / f"{key}.json", "x", encoding="utf-8") as text:
            text.write(json.dumps(description, indent=1, ensure_ascii=False) + "\n")
        made.append(key)
    return made


def main(arguments: list[str]) -> None:
    with TemporaryDirectory() as scratch:
        makers: dict[str, Callable[[], bytes]] = {key: content.encoded for key, content in OURS.items()}
        makers["pyiceberg"] = lambda: pyicebergs(Path(scratch))
        for key, path in zip(("java", "java-steps", "java-offsets"), arguments, strict=False):
            makers[key] = Path(path).read_bytes
        print(*make(FOLDER, makers) or ["nothing to make"], sep="\n")


if __name__ == "__main__":
    main(sys.argv[1:])
