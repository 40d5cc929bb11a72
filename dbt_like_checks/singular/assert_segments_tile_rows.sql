-- Each segment holds exactly the snapshot rows that name it; a row outside every session names none (-1).
with rows_of as (
    select segment, min(file_row) as first_row, max(file_row) + 1 as end_row, count(*) as n
    from {{ ref('snapshots') }}
    where segment is distinct from -1
    group by segment
)
select coalesce(stated.segment, rows_of.segment) as segment, row_start, row_end, first_row, end_row, n
from {{ ref('segments') }} as stated
full join rows_of on stated.segment = rows_of.segment
where
    first_row is distinct from row_start
    or end_row is distinct from row_end
    or n is distinct from row_end - row_start
