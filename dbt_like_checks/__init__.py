"""Rules over artefacts in dbt's own file formats: schema.yml, generic/, singular/. A test selects the failing rows.

Data only; `foxhunt_assets.checks.sql` runs them. dbt-core with dbt-duckdb runs them to the same verdicts, with
schema.yml beside models of these names (each with the column file_row), generic/ as tests/generic/ and singular/ in
tests/.
"""
