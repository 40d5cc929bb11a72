"""Sums over an axis in one fixed order."""
