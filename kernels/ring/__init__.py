"""Rows of many columns at once: into the slots of a ring, and out of it by number."""
