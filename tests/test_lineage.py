"""What a killed command leaves in a home does not stop the next one, and two at once do not meet."""

import dagster as dg
import pytest

from foxhunt_assets import lineage, resources, storage
from foxhunt_assets.errors import BadInput
from foxhunt_assets.resources import GPU_POOL
from foxhunt_assets.settings import Settings


def test_a_killed_command_s_run_is_closed_and_its_pool_slot_freed(tmp_path):
    settings = Settings(home=tmp_path)
    with resources.instance(settings) as dagster:
        storage_ = dagster.event_log_storage
        storage_.set_concurrency_slots(GPU_POOL, 1)
        dead = dagster.create_run_for_job(_job(), tags=lineage.COMMAND_TAG, status=dg.DagsterRunStatus.STARTED)
        other = dagster.create_run_for_job(_job(), status=dg.DagsterRunStatus.STARTED)  # a daemon's, alive
        assert storage_.claim_concurrency_slot(GPU_POOL, dead.run_id, "train").is_claimed
        assert storage_.claim_concurrency_slot(GPU_POOL, other.run_id, "train").is_claimed is False
    with lineage.commanding(settings) as dagster:
        assert dagster.get_run_by_id(dead.run_id).status == dg.DagsterRunStatus.CANCELED
        assert dagster.get_run_by_id(other.run_id).status == dg.DagsterRunStatus.STARTED
        info = dagster.event_log_storage.get_concurrency_info(GPU_POOL)
        assert dead.run_id not in info.active_run_ids


def test_a_second_command_on_one_home_stops_with_the_owner_named(tmp_path):
    settings = Settings(home=tmp_path)
    first = storage.lock(lineage.command_lock(settings), "this home")
    with first, pytest.raises(BadInput, match="held by process"), lineage.commanding(settings):
        pass


def _job() -> dg.JobDefinition:
    @dg.op
    def nothing() -> None:
        pass

    @dg.job
    def some():
        nothing()

    return some
