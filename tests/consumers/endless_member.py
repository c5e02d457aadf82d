"""A member of a group: `CONFIG SHARE WHERE` puts rows into SQLite until a row `end` is in its input."""

import sqlite3
import sys
import threading
import time

from bookkeeper.consumers import ConsumerGroup, SqlitePlace
from bookkeeper.consumers.consumer import Limits


def main(config: str, share: str, where: str) -> None:
    """Until its input is closed."""
    ended = threading.Event()
    threading.Thread(target=lambda: (sys.stdin.read(), ended.set()), daemon=True).start()

    def wait(seconds: float) -> bool:
        time.sleep(seconds)
        return ended.is_set()

    connection = sqlite3.connect(where, timeout=30)
    with ConsumerGroup.open(
        config, name="group", share=share, place=lambda: SqlitePlace(connection), limits=Limits(3), wait=wait
    ) as group:
        print("ready", flush=True)
        for batch in group.batches():
            with connection:
                name = group._current.name if group._current else ""
                rows = [(key, share, name) for key in batch.table["key"].to_pylist()]
                connection.executemany("INSERT INTO output VALUES (?, ?, ?)", rows)
                group.commit(batch)
    connection.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
