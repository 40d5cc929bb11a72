"""Same seed, same bits: comparing two runs with tolerance zero, and making the two runs to compare.

Nothing here knows how a run is trained: runs are folders, and arms are command lines handed in.
"""
