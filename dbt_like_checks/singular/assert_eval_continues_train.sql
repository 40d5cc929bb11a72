-- The first eval row follows the last train row on one step axis.
with train as (
    select max(step) as last_step from {{ ref('diag') }}
),
evaluation as (
    select min(step) as first_step from {{ ref('eval_diag') }}
)
select * from train, evaluation where first_step is distinct from last_step + 1
