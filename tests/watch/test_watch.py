"""What is dropped below a prefix gets into the table once, and goes when it is in."""

from tests.watch.drops import Drops


def test_what_is_dropped_is_in_the_table_and_gone() -> None:
    drops = Drops()
    drops.put("a", "day=1/b", rows=["1", "2"])
    drops.run()
    assert drops.keys() == ["1", "1", "2", "2"]
    assert drops.left() == []
    assert drops.own() == ["done-1", "watch.json"]
