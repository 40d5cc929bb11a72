"""Expected value of a categorical distribution given by its logits."""
