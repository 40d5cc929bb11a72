"""Norms of fixed buffers and of what separates two of them."""
