"""Rewards from cents, PopArt's running statistics, and the temporal-difference error they complete."""
