"""Sum tree for proportional prioritised replay (Schaul et al. 2016, Appendix B.2.1)."""
