{# DuckDB sorts NaN above every number, so a lower bound alone would let it through. #}
{% test finite(model, column_name) %}
select file_row, {{ column_name }} as value
from {{ model }}
where {{ column_name }} is null or not isfinite(cast({{ column_name }} as double))
{% endtest %}
