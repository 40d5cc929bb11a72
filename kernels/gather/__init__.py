"""Windows of the tape by anchor."""
