"""Variable selection: a softmax gate over the features, times the features, with its backward."""
