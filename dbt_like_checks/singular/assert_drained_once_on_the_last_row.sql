-- A file that was cut short lacks the drain row.
select file_row, "run.drain_row"
from {{ ref('eval_diag') }}
where "run.drain_row" is distinct from
    case when file_row = (select max(file_row) from {{ ref('eval_diag') }}) then 1 else 0 end
