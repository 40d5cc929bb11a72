"""Correlation of each input with the next move of the mid: what would show a feature that looks ahead."""
