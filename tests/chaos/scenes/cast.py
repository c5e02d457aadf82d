"""
All scenes: the whole cycle of a row, and every command that changes something.
"""

from tests.chaos.scenes.deciding import AcceptingRollback, Forgetting, Repairing, Retaining
from tests.chaos.scenes.making import Carding, Initialising
from tests.chaos.scenes.reaping import Reaping
from tests.chaos.scenes.replaying import ForcedReplaying, Replaying
from tests.chaos.scenes.scene import Scene
from tests.chaos.scenes.ticking import Ticking
from tests.chaos.scenes.writing import Writing

SCENES: tuple[type[Scene], ...] = (
    Initialising,
    Writing,
    Ticking,
    Carding,
    Replaying,
    ForcedReplaying,
    Forgetting,
    AcceptingRollback,
    Retaining,
    Repairing,
    Reaping,
)
