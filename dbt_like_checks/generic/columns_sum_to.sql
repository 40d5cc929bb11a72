{# The columns of each row sum to one value of a one-row relation. #}
{% test columns_sum_to(model, columns, to, field) %}
with sums as (
    select
        file_row,
        {% for column in columns %}"{{ column }}"{{ " + " if not loop.last }}{% endfor %} as total
    from {{ model }}
)
select sums.*, expected.{{ field }} as expected
from sums left join {{ to }} as expected on true
where total is distinct from expected.{{ field }}
{% endtest %}
