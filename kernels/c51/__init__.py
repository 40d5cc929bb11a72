"""Categorical double Q-learning on replay rows: projected target, loss and gradient, new priorities, statistics."""
