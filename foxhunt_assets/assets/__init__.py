"""One module a stage of the lineage: market, labels, training, evaluation, determinism.

Each asset writes one folder, committed once, and names it in its metadata. What holds it to its contract is in
`checks/`; when it runs is in `automation.py`. Modules that define assets do without postponed annotations: Dagster
reads the type of `context` as an object.
"""
