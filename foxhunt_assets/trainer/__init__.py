"""The training program. Runs as its own process and imports neither Dagster nor pydantic nor pandera."""
