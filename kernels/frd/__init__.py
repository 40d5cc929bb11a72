"""Cross entropy of forward-return distributions to labels that may be missing, as its gradient."""
