"""
Random walks: one step of a history chosen by dice, where a machine that shrinks takes too long.
"""

from collections.abc import Callable, Collection, Iterator
from random import Random
from typing import Any

from tests.histories import pyiceberg_changes
from tests.histories.world import World

#: steps that compactors take
OF_COMPACTORS = ("rewrite", "publish a rewrite", "give a rewrite back")
HOURS = (0, 0, 1, 3, 7, None)
Step = Callable[[World, Random], Any]


def publish(world: World, dice: Random) -> None:
    counts = [dice.randint(1, 3) for _ in range(dice.randint(1, 3))]
    world.publish(counts, dice.choice(HOURS), dice.randint(0, 1), hold=dice.random() < 0.1)


STEPS: dict[str, Step] = {
    "publish": publish,
    "commit": lambda world, dice: (publish(world, dice), world.tick(book=dice.randint(0, 1))),
    "commit by one": lambda world, dice: (publish(world, dice), world.tick()),
    "commit in a row": lambda world, dice: [(publish(world, dice), world.tick()) for _ in range(3)],
    "release": lambda world, dice: world.release(),
    "refused": lambda world, dice: world.refused(),
    "wait": lambda world, dice: world.tick(dice.choice([5, 60, 200]), dice.randint(0, 1)),
    "restart": lambda world, dice: world.restart(dice.randint(0, 1)),
    "rewrite": lambda world, dice: world.rewrite(dice.randint(0, 9), dice.randint(1, 5), dice.randint(0, 1)),
    "publish a rewrite": lambda world, dice: world.publish_rewrite(dice.randint(0, 9), dice.randint(1, 5)),
    "give a rewrite back": lambda world, dice: world.give_back(),
    "reap": lambda world, dice: world.reap(),
    "append": lambda world, dice: pyiceberg_changes.append(world, dice.randint(1, 2), dice.choice(HOURS)),
    "take out": lambda world, dice: pyiceberg_changes.take_out(world, dice.randint(0, 9)),
    "property": lambda world, dice: pyiceberg_changes.set_property(world),
    "schema": lambda world, dice: pyiceberg_changes.change_schema(
        world, dice.choice(sorted(pyiceberg_changes.CHANGES))
    ),
    "add field": lambda world, dice: pyiceberg_changes.add_field(world, dice.choice(sorted(pyiceberg_changes.FIELDS))),
    "remove field": lambda world, dice: pyiceberg_changes.remove_field(world),
}


def walk(world: World, seed: int, steps: int, without: Collection[str] = ()) -> Iterator[str]:
    """So many steps; yields the name of each after it was taken."""
    dice = Random(seed)
    for _ in range(steps):
        name = dice.choice(sorted(STEPS.keys() - set(without)))
        STEPS[name](world, dice)
        yield name
