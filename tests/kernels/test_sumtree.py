"""The sum tree against worked numbers and against the failures other replay buffers had."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from kernels.sumtree import op, reference


def _tree(leaves):
    tree = torch.zeros(2 * len(leaves))
    tree[len(leaves) :] = torch.tensor(leaves)
    op.rebuild(tree)
    return tree


def _leaves(tree):
    return tree[tree.numel() // 2 :].tolist()


def test_priorities_probabilities_and_the_stratified_mid_points():
    leaves = [abs(d) ** 0.6 for d in (0.5, 1.0, 2.0, 4.0)]
    tree = _tree(leaves)
    assert float(tree[1]) == pytest.approx(5.472867232, abs=1e-6)
    found, weights = op.weigh(tree, torch.arange(4), torch.tensor([4]), 0.4)
    assert (found / tree[1]).tolist() == pytest.approx([0.120549965, 0.182719580, 0.276951094, 0.419779361], abs=1e-7)
    assert weights.tolist() == pytest.approx([1, 0.846745312, 0.716977624, 0.607097442], abs=1e-6)
    middle = torch.full((4,), 0.5)
    mass = reference.stratified_mass(tree, middle).tolist()
    assert mass == pytest.approx([0.684108404, 2.052325212, 3.420542020, 4.788758828], abs=1e-6)
    assert op.sample(tree, middle).tolist() == [1, 2, 3, 3]


def test_mass_equal_to_a_left_sum_falls_in_the_next_leaf():
    tree = _tree([3.0, 1.0, 4.0, 2.0])
    assert tree.tolist() == [0, 10, 4, 6, 3, 1, 4, 2]
    mass = torch.tensor([0.0, 2.9, 3.0, 4.0, 7.9, 8.0, 9.9])
    assert reference.descend(tree, mass).tolist() == [0, 0, 1, 2, 2, 3, 3]


def test_mass_at_or_beyond_the_total_is_held_under_it():
    beyond = torch.tensor([6.0, 7.0, math.inf])
    assert reference.descend(_tree([1.0, 2.0, 3.0, 0.0]), beyond).tolist() == [2, 2, 2]
    lost_in_rounding = _tree([1.0, 1e-9])  # the total is 1: the second leaf has no mass of its own in it
    assert float(lost_in_rounding[1]) == 1 and reference.descend(lost_in_rounding, beyond).tolist() == [0, 0, 0]


def test_an_empty_slot_is_never_drawn_even_from_a_drifted_root():
    """A root above the true mass sent draws into unwritten slots, and batches of zeros into training."""
    tree = _tree([1.0, 2.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0])
    tree[1] = 3.5
    assert reference.descend(tree, torch.tensor([2.9, 3.1, 3.4])).tolist() == [1, 1, 1]
    left_empty = _tree([0.0, 0.0, 0.0, 5.0])
    assert reference.descend(left_empty, torch.tensor([0.0, 4.9])).tolist() == [3, 3]


def test_a_tree_without_mass_draws_no_row():
    tree = torch.zeros(16)
    assert op.sample(tree, torch.tensor([0.0, 0.5])).tolist() == [-1, -1]
    assert op.weigh(tree, torch.tensor([0, -1]), torch.tensor([0]), 0.4)[0].tolist() == [0, 0]


def test_the_lowest_batch_row_wins_a_duplicate():
    tree = _tree([1.0, 1.0, 1.0, 1.0])
    op.update(tree, torch.tensor([2, 0, 2, 0, 2]), torch.tensor([5.0, 6.0, 7.0, 8.0, 9.0]))
    assert tree.tolist() == [0, 13, 7, 6, 6, 1, 5, 1]


def test_update_can_empty_a_slot():
    tree = _tree([1.0, 2.0])
    op.update(tree, torch.tensor([1]), torch.tensor([0.0]))
    assert tree.tolist() == [0, 1, 1, 0]


def test_a_single_leaf_is_its_own_root():
    tree = _tree([2.0])
    assert tree.tolist() == [0, 2] and op.sample(tree, torch.tensor([0.9])).tolist() == [0]


def test_what_is_appended_gets_the_largest_priority_held_and_wraps():
    tree = torch.zeros(8)
    op.append(tree, torch.tensor([0]), 3)
    assert tree.tolist() == [0, 3, 2, 1, 1, 1, 1, 0]  # 1 where none is held
    op.update(tree, torch.tensor([1]), torch.tensor([5.0]))
    op.append(tree, torch.tensor([7]), 2)  # leaves 3 and 0
    assert _leaves(tree) == [5, 5, 1, 5] and float(tree[1]) == 16


def test_weights_count_what_is_held():
    tree = _tree([1.0, 3.0, 0.0, 0.0])
    ratio = op.weigh(tree, torch.tensor([0, 1, 0]), torch.tensor([2]), 0.5)[1]
    assert ratio.tolist() == pytest.approx([1, 3**-0.5, 1])
    full = op.weigh(tree, torch.tensor([1, 1]), torch.tensor([99]), 0.5)[1]  # N cancels in what is normalised
    assert full.tolist() == [1, 1]


def test_moments_of_what_is_held():
    tree = _tree([1.0, 3.0, 0.5, 0.0])
    found = op.moments(tree, torch.tensor([0, 2, 0, 0], dtype=torch.int32), torch.tensor([3]))
    assert found.tolist() == [4.5, 10.25, 3, 2]
    full = op.moments(tree, torch.tensor([0, 2, 0, 0], dtype=torch.int32), torch.tensor([9]))
    assert full.tolist()[3] == 3


@pytest.mark.parametrize("capacity", [3, 6, 12, 1000])
def test_other_capacities_are_refused(capacity):
    with pytest.raises(ValueError, match="power of two"):
        op.rebuild(torch.zeros(2 * capacity))


def test_rebuild_is_pairwise_and_does_not_drift():
    capacity = 4096
    tree, generator = torch.zeros(2 * capacity), torch.Generator().manual_seed(0)
    for _ in range(50):
        rows = torch.randint(capacity, (128,), generator=generator)
        op.update(tree, rows, torch.rand(128, generator=generator))
    level = tree[capacity:].numpy().copy()
    while len(level) > 1:
        level = (level[0::2] + level[1::2]).astype(np.float32)
    assert float(tree[1]) == float(level[0])
    exact = math.fsum(_leaves(tree))
    assert abs(float(tree[1]) - exact) / exact < 12 * 2.0**-24  # one rounding a level


def test_draws_follow_the_probabilities():
    leaves = [1.0, 0.0, 2.0, 5.0, 0.0, 0.0, 0.5, 1.5]
    draws = op.sample(_tree(leaves), torch.rand(20_000, generator=torch.Generator().manual_seed(1)))
    share = torch.bincount(draws, minlength=8) / len(draws)
    assert share.tolist() == pytest.approx([x / 10 for x in leaves], abs=2e-4)  # stratified: within a bin or two


@given(
    st.integers(0, 5).flatmap(
        lambda k: st.lists(st.one_of(st.just(0.0), st.floats(0, 1e4, width=32)), min_size=2**k, max_size=2**k)
    ),
    st.lists(st.floats(0, 1, width=32, exclude_max=True), min_size=1, max_size=9),
)
def test_every_draw_has_mass_and_integer_trees_are_exact(leaves, u):
    tree = _tree(leaves)
    draws = op.sample(tree, torch.tensor(u)).tolist()
    assert all(leaves[i] > 0 for i in draws) if any(leaves) else set(draws) == {-1}
    whole = [float(int(x)) for x in leaves]
    if not any(whole):
        return
    tree = _tree(whole)
    mass = reference.stratified_mass(tree, torch.tensor(u)).clamp(max=sum(whole) - 0.25)
    expected = np.searchsorted(np.cumsum(whole), mass.double().numpy(), side="right")
    assert reference.descend(tree, mass).tolist() == expected.tolist()


@given(st.data())
def test_update_equals_a_loop_over_the_batch_backwards(data):
    capacity = 8
    n = data.draw(st.integers(1, 20))
    indices = data.draw(st.lists(st.integers(0, capacity - 1), min_size=n, max_size=n))
    values = data.draw(st.lists(st.floats(0, 9, width=32), min_size=n, max_size=n))
    expected = [float(i) for i in range(capacity)]
    tree = _tree(expected)
    op.update(tree, torch.tensor(indices), torch.tensor(values))
    for i, value in reversed(list(zip(indices, values))):
        expected[i] = value
    assert _leaves(tree) == expected
