"""The twin's size."""

from foxhunt_assets.assets.determinism import TWIN_EVAL_STEPS, twin_config
from foxhunt_assets.resources import World
from foxhunt_assets.settings import Settings


def test_the_twin_never_asks_for_more_rows_than_there_are(tmp_path):
    world = World(Settings(home=tmp_path))
    assert twin_config(world, 1_000_000).run.n_eval_steps == TWIN_EVAL_STEPS
    assert twin_config(world, TWIN_EVAL_STEPS * world.config.model.accounts - 1).run.n_eval_steps is None  # whole
