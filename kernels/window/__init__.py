"""Moments of a finished rollout window."""
