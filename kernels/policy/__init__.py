"""Sampling an action from a masked policy with a floor under every legal action."""
