"""Files to snapshots, features, labels and folds. Knows prices and time; knows nothing of accounts or training."""
