"""
All scenes: the whole cycle of a row, and every command that changes something.
"""

from tests.chaos.scenes.deciding import AcceptingRollback, Discarding, Forgetting, Rehashing, Repairing, Retaining
from tests.chaos.scenes.folding import Folding, FoldingAmongOthers
from tests.chaos.scenes.making import Carding, Initialising
from tests.chaos.scenes.reaping import Reaping
from tests.chaos.scenes.replaying import ForcedReplaying, Replaying
from tests.chaos.scenes.rewriting import AcceptingRollbackOfRewrites, Rewriting, RewritingAmongOthers
from tests.chaos.scenes.scene import Scene
from tests.chaos.scenes.ticking import Ticking
from tests.chaos.scenes.upserting import Upserting
from tests.chaos.scenes.writing import Pruning, Writing

SCENES: tuple[type[Scene], ...] = (
    Initialising,
    Writing,
    Pruning,
    Ticking,
    Upserting,
    Folding,
    FoldingAmongOthers,
    Carding,
    Replaying,
    ForcedReplaying,
    Forgetting,
    Rehashing,
    AcceptingRollback,
    Retaining,
    Discarding,
    Repairing,
    Reaping,
    Rewriting,
    RewritingAmongOthers,
    AcceptingRollbackOfRewrites,
)
