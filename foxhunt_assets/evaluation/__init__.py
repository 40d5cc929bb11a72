"""What an evaluation is worth: its summary in market time, verdicts, the surrogate gate and the pictures.

Here belongs what is computed from trades, equity and diagnostics after the walk; the walk itself is the trainer's.
"""
