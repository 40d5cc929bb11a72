"""Norms of some buffers and of their sum."""
