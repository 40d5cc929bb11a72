"""Clipped AdamW on flat buffers (Loshchilov & Hutter 2019), with the norms of its segments."""
