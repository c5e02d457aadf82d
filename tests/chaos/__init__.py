"""
Chaos: every published row exactly once, whatever breaks. One table, `make chaos`.

    fault class | injection points | rounds | rows published | rows missing (0) | rows double (0)

A fault class is a name and a function `run(seed, budget) -> Tally`; it breaks things, restarts everything, drains, and
compares by key what was published with what the table holds (`tests.chaos.account`). To add one:

1. a module with `CLASSES = (FaultClass("what breaks, in a few words", run),)`,
2. its name in `tests.chaos.registry.MODULES`.

`run` must draw all chance from `seed` (the same seed is the same schedule), try at least one point, and stop drawing
rounds after `budget.seconds`. What it enumerates it asks `budget.some(points, rng)` for, so that pytest can try a part.
It runs in a process of its own (a fork of one that has imported everything): it may patch what it likes, and processes
it starts are killed with it. A class whose server cannot be had returns `Tally(skipped="why")`.

    python -m tests.chaos --seed 7               # the long version
    python -m tests.chaos --short                # what .ci/run calls
    python -m tests.chaos --only "kill -9"       # the classes with this in their names
    python -m tests.chaos --list
"""
