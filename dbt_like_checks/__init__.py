"""Rules over artefacts in dbt's own file formats: schema.yml, generic/, singular/. A test selects the failing rows.

Data only; `foxhunt_assets.checks.sql` runs them.
"""
