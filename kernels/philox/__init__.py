"""Counter-based random numbers: Philox 4x32-10 (Salmon et al. 2011)."""
