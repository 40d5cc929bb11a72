"""Layer normalisation of a sum, with its backward."""
