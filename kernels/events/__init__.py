"""Which events of a run have happened."""
