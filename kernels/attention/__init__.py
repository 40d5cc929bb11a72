"""Attention pooling over the steps of a window by one learned query, with its backward."""
