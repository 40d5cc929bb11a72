"""One folder a kernel family: op.py (shapes, units, dispatch by device), reference.py (plain torch: the oracle
and the CPU backend), and the CUDA source beside them once it is written.

Nothing here imports foxhunt_assets: sizes and constants are arguments.
"""
