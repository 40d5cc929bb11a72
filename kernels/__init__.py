"""One folder a kernel family: op.py (shapes, units, dispatch by device), reference.py (plain torch: the oracle
and the CPU backend), kernel.py (launches of the CUDA source beside them, with the twin's signatures).

Nothing here imports foxhunt_assets: sizes and constants are arguments.
"""
