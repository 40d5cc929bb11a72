"""Selective scan of the diagonal state-space block, gates and output weight included, with its backward."""
