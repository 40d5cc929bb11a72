"""Largest singular values by power iteration (Miyato et al. 2018)."""
