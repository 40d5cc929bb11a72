"""Categorical value distributions: Bellman projection and cross-entropy (Bellemare et al. 2017)."""
