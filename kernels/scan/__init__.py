"""Selective scan of the diagonal state-space block, gates included, with its backward."""
