"""What every artefact must look like, as plain tables: no Dagster, no pandera, no torch in here.

`pandera_schemas` is the one exception: it is derived from the tables and only `checks/` imports it.
"""
