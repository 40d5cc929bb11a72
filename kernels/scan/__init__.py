"""Selective scan of the diagonal state-space block, with its backward (Gu & Dao 2023, Algorithm 2)."""
