-- A policy that never traded was not evaluated: worth a look, not a broken artefact.
{{ config(severity='warn') }}
select n_trades from {{ ref('eval_summary') }} where (n_trades > 0) is not true
