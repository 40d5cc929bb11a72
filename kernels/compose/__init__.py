"""The weights of a state-space block as the encoder multiplies by them: composed products, and their gradient."""
