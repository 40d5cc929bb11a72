{% test unique(model, column_name) %}
select {{ column_name }} as value, count(*) as n
from {{ model }}
group by {{ column_name }}
having count(*) > 1
{% endtest %}
