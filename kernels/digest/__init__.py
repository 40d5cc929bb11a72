"""Position-keyed digests of raw bits: exact, free of summation order, blind to nothing that matters."""
