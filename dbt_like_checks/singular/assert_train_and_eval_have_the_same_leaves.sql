-- Both files hold the same leaves with the same types.
with train as (
    select column_name, column_type from (describe select * from {{ ref('diag') }})
),
evaluation as (
    select column_name, column_type from (describe select * from {{ ref('eval_diag') }})
)
(select 'diag' as only_in, * from (select * from train except select * from evaluation))
union all
(select 'eval_diag' as only_in, * from (select * from evaluation except select * from train))
