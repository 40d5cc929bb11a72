-- Every horizon column holds atoms 0 to frd_atoms - 1, or -1 where there is no label.
select file_row, horizon, atom
from {{ ref('labels') }} unpivot include nulls (atom for horizon in (* exclude (file_row)))
where (atom between -1 and (select frd_atoms - 1 from {{ ref('config') }})) is not true
