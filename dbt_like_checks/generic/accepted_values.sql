{# A null is not an accepted value; dbt's own test of this name lets it through. #}
{% test accepted_values(model, column_name, values, quote=true) %}
select file_row, {{ column_name }} as value
from {{ model }}
where ({{ column_name }} in (
    {%- for value in values -%}
        {{ "'" ~ value ~ "'" if quote else value }}{{ ", " if not loop.last }}
    {%- endfor -%}
)) is not true
{% endtest %}
