"""
All rules, chapter by chapter.
"""

from tests.rules import (
    batches,
    beginning,
    commits,
    consuming,
    engine,
    expiring,
    folds,
    growing,
    kafka,
    keyed,
    letters,
    liveness,
    maintaining,
    marks,
    offsets,
    orphans,
    replay,
    retaining,
    rewriting,
    serving,
    sinking,
    storing,
    txlogs,
    watching,
    writing,
)
from tests.rules.rule import Rule

CHAPTERS = (
    commits.rule,
    engine.rule,
    maintaining.rule,
    marks.rule,
    txlogs.rule,
    writing.rule,
    offsets.rule,
    retaining.rule,
    expiring.rule,
    orphans.rule,
    keyed.rule,
    folds.rule,
    rewriting.rule,
    consuming.rule,
    beginning.rule,
    sinking.rule,
    batches.rule,
    kafka.rule,
    letters.rule,
    replay.rule,
    serving.rule,
    watching.rule,
    growing.rule,
    storing.rule,
    liveness.rule,
)
#: by name
RULES: dict[str, Rule] = {rule.name: rule for chapter in CHAPTERS for rule in chapter.rules}
