"""Each scene undisturbed: it does what it is there for, and its account is even."""

import pytest

from tests.chaos.crashes import on_stage
from tests.chaos.scenes.cast import SCENES
from tests.chaos.scenes.scene import Scene
from tests.chaos.scenes.writing import Pruning
from tests.support.enumerated import recorded
from tests.support.faults import Faults


@pytest.mark.parametrize("made", SCENES, ids=lambda made: made.name)
def test_an_undisturbed_scene_does_all_it_is_there_for(made: type[Scene]) -> None:
    with on_stage(made) as scene:
        seen = recorded(scene.act)
        scene.drain()
        done = scene.outcome(scene.name)
    assert not done.red, done.wrong
    assert [part for part in scene.parts if not any(part in operation for operation in seen)] == [], seen


def test_marks_are_pruned_where_that_is_the_scene() -> None:
    with on_stage(Pruning) as scene:
        scene.act(Faults())
        assert "plain" not in scene.lake.view().marks.writers


def test_every_scene_has_a_name_of_its_own() -> None:
    assert len({made.name for made in SCENES}) == len(SCENES)
