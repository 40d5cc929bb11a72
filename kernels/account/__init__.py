"""Trading accounts on a tape of books: a step, a seat at the next episode, an observation, each one launch."""
