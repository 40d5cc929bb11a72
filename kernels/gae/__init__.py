"""Generalised advantage estimation over a rollout (Schulman et al. 2016)."""
