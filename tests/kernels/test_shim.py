"""The shim finds what it is there to find: each fault here is a kernel that looks right and is not."""

import pytest
import torch

from kernels import build
from tests.kernels import shim

FAULTS = shim.HERE / "faults"


def _others(function, *args, grid=1, block=64, **more):
    shim.hunt(FAULTS / "others.cu", function, (grid,), (block,), args, **more)


def test_a_fence_taken_for_a_grid_barrier_is_a_race():
    tree = torch.cat([torch.zeros(64), torch.rand(64, generator=torch.Generator().manual_seed(0))])
    with pytest.raises(shim.Found, match=r"race in fence_as_barrier: tree\[\d+\] differs between schedules 0 and \d+"):
        shim.hunt(FAULTS / "fence_as_barrier.cu", "fence_as_barrier", (4,), (8,), (tree, 64))


def test_one_block_of_the_same_rebuild_is_still_a_race_without_a_barrier():
    tree = torch.cat([torch.zeros(64), torch.rand(64, generator=torch.Generator().manual_seed(0))])
    with pytest.raises(shim.Found, match="race in fence_as_barrier: tree"):
        shim.hunt(FAULTS / "fence_as_barrier.cu", "fence_as_barrier", (1,), (32,), (tree, 64))


def test_a_generator_word_read_by_many_blocks_and_written_by_one_is_a_race():
    """The stored word ends the same whoever read first, which is how it went unseen: only the draws differ."""
    rows, quantiles = 8, 32
    args = (torch.arange(1, rows + 1, dtype=torch.int32), rows, torch.empty(rows, quantiles))
    with pytest.raises(shim.Found, match=r"race in shared_word: tau\[\d+\] differs between schedules 0 and \d+"):
        shim.hunt(FAULTS / "shared_word.cu", "shared_word", (quantiles,), (rows,), args)


def test_a_missing_barrier_between_shared_accesses_is_a_race():
    with pytest.raises(shim.Found, match=r"race in missing_barrier: out\[\d+\].*conflict: shared memory"):
        _others("missing_barrier", torch.rand(64), torch.empty(64))


def test_two_writers_are_a_conflict_though_no_bit_moves():
    with pytest.raises(shim.Found, match=r"conflict: flag\[0\] by block \d thread 0 and block \d thread 0"):
        _others("two_writers_of_one_value", torch.zeros(1, dtype=torch.int32), grid=2, block=1)


def test_an_update_that_is_not_atomic_loses_counts_and_an_atomic_one_does_not():
    count = torch.zeros(1, dtype=torch.int32)
    with pytest.raises(shim.Found, match=r"race in lost_updates: count\[0\]"):
        _others("lost_updates", count, grid=8)
    count.zero_()
    _others("counted", count, grid=8)
    assert int(count) == 8 * 64


@pytest.mark.parametrize("function, args, message", [
    ("reads_past_the_end", (torch.zeros(8), 8, torch.empty(8)), r"a load of x\[8\] of 8 by block 0 thread 7"),
    ("writes_before_the_start", (torch.zeros(8),), r"a store of out\[-1\] of 8 by block 0 thread 0"),
])  # fmt: skip
def test_an_access_out_of_bounds_is_named_and_not_made(function, args, message):
    with pytest.raises(shim.Found, match=message):
        _others(function, *args, block=8)


def test_a_launch_that_waits_for_a_block_in_vain_ends():
    flag = torch.zeros(1, dtype=torch.int32)
    source = FAULTS / "others.cu"
    with pytest.raises(shim.Found, match="does not end"):
        shim.run(source, "never_ends", (1,), (1,), (flag,), schedule=2)
    with pytest.raises(shim.Found, match="does not end"):  # in order, block 0 waits and block 1 never starts
        shim.run(source, "waits_for_a_later_block", (2,), (1,), (flag,), schedule=0)


def test_threads_at_different_barriers_are_refused():
    with pytest.raises(shim.Found, match="wait at different barriers"):
        _others("diverging_barriers", torch.empty(64))


def test_lanes_exchange_values_with_their_neighbours_and_vote_with_their_warp():
    x = torch.arange(64, dtype=torch.int32) % 6
    x[32:] %= 5  # only the first warp holds a 5
    found = torch.zeros_like(x)
    _others("exchanged", x, found)
    lane = torch.arange(64)
    assert torch.equal(found, 100 * x[lane ^ 1] + 10 * x[lane // 4 * 4 + 3] + (lane < 32))


def test_lanes_that_hand_a_word_over_need_a_barrier_of_their_warp():
    x, words, out = torch.rand(32), torch.zeros(32), torch.zeros(1)
    with pytest.raises(shim.Found, match=r"conflict: words\[1\] by block 0 thread 1 and block 0 thread 0"):
        _others("handed_over_by_an_exchange", x, words, out, block=32)
    _others("handed_over_by_a_barrier", x, words, out, block=32)
    assert out == x[1]


@pytest.mark.parametrize("function, message", [
    ("lanes_part", "lanes of a warp of block 0 wait at different barriers"),
    ("half_a_warp_waits_for_the_block", "does not end: threads of block 0 wait .* for others that never come"),
])  # fmt: skip
def test_lanes_that_wait_for_lanes_elsewhere_are_refused(function, message):
    with pytest.raises(shim.Found, match=message):
        _others(function, torch.empty(32), block=32)


def test_shared_memory_nobody_wrote_differs_between_the_poisons():
    results = []
    for poison in shim.POISONS:
        out = torch.zeros(1)
        _others("reads_shared_unwritten", out, block=1, poison=poison)
        results.append(float(out))
    assert results[0] != results[1]


@pytest.mark.parametrize("args, message", [
    ((torch.zeros(8), 8), "2 arguments, its source declares 3"),
    ((torch.zeros(8).double(), 8, torch.empty(8)), "x is torch.float64, declared float"),
    ((torch.zeros(8), 8.0, torch.empty(8)), "n is a float, declared long long"),
    ((torch.zeros(8, 2)[:, 0], 8, torch.empty(8)), "x is not contiguous"),
    ((torch.zeros(8), 8, torch.empty(8, device="meta")), "out lies on meta, the arguments before on cpu"),
])  # fmt: skip
def test_an_argument_that_does_not_fit_the_declaration_is_named(args, message):
    with pytest.raises(build.KernelError, match=f"kernel reads_past_the_end: {message}"):
        build.check_arguments(FAULTS / "others.cu", "reads_past_the_end", args)
