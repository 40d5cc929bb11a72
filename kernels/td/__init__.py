"""Categorical double Q-learning on replay rows: target, gradient, new priorities and statistics."""
