{% test non_decreasing(model, column_name) %}
select *
from (
    select
        file_row,
        {{ column_name }} as value,
        lag({{ column_name }}) over (order by file_row) as value_before
    from {{ model }}
)
where value is null or (file_row > 0 and (value >= value_before) is not true)
{% endtest %}
