"""Keys of partitions, and what a configuration makes of them."""

from __future__ import annotations

import dagster as dg
import pytest

from foxhunt_assets import partitions as P
from foxhunt_assets.errors import BadInput
from foxhunt_assets.settings import FoldSettings, Settings


def settings(tmp_path, n_folds=2, seeds=(0, 7)):
    return Settings(home=tmp_path, folds=FoldSettings(n_folds=n_folds, seeds=seeds))


def test_run_keys_put_the_fold_first(tmp_path):
    parts = P.partitions(settings(tmp_path))
    assert parts.fold_keys == ["fold_0", "fold_1"]
    assert sorted(parts.run_keys) == ["fold_0|0", "fold_0|7", "fold_1|0", "fold_1|7"]
    key = next(k for k in parts.runs.get_partition_keys() if k == "fold_1|7")
    assert key.keys_by_dimension == {"fold": "fold_1", "seed": "7"}


def test_run_key_is_the_inverse_of_split(tmp_path):
    for key in P.partitions(settings(tmp_path, 12, (0, 3))).run_keys:
        assert P.run_key(*P.split_run_key(key)) == key


@pytest.mark.parametrize("key", ["0|fold_0", "fold_0", "fold_0|", "fold_0|x", "fold,1|0", "fold_0|0|1", ""])
def test_a_key_in_another_order_or_form_is_refused(key):
    with pytest.raises(BadInput, match="fold_<n>"):
        P.split_run_key(key)


def test_registering_files_says_which_were_new_and_refuses_foreign_keys():
    with dg.DagsterInstance.ephemeral() as instance:
        a, b = "es-2024-0011aabb", "es-2025-ffeeddcc"
        assert P.register_files(instance, [b]) == [b]
        assert P.register_files(instance, [a, b]) == [a]
        assert P.known_files(instance) == [a, b]
        for bad in ("a|b", "fold,1", "x...y", "ES.dbn", ""):
            with pytest.raises(BadInput, match="source key"):
                P.register_files(instance, [bad])
        assert P.known_files(instance) == [a, b]
