"""What one step's batch of accounts predicted, chose and was paid: numbers of every account, folded over the batch."""
