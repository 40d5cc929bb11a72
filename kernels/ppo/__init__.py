"""Losses of a policy and a value head on rollout rows, with their gradients (Schulman et al. 2017)."""
