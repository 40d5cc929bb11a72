"""Rows of the tape by anchor: windows of features, labels."""
