"""The draw of an action from probabilities."""

import torch

from foxhunt_assets.trainer.collect import inverse_cdf


def test_inverse_cdf_skips_illegal_actions_even_at_the_ends():
    p = torch.tensor([[0.0, 0.25, 0.75, 0.0]]).repeat(4, 1)
    assert inverse_cdf(p, torch.tensor([0.0, 0.2499, 0.25, 1 - 2.0**-24])).tolist() == [1, 1, 2, 2]
    short = torch.tensor([[0.5, 0.4999999, 0.0]])  # rounding left a hole at the top
    assert inverse_cdf(short, torch.tensor([1 - 2.0**-24])).tolist() == [1]
