"""Every head of an acting batch in one launch: products, E[Q] and the signs of the forward return."""
