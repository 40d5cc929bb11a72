"""What a step of the accounts measures of itself, summed over the accounts and moved into the totals of the phase."""
