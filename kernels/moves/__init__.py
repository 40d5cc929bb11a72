"""What the tape showed a batch, how the mid moved, and which inputs knew: a correlation near 1 looks ahead."""
