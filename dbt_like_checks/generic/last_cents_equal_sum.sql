{# The last row of a USD column is the sum of a cents column of another relation, which may be empty. #}
{% test last_cents_equal_sum(model, column_name, to, field) %}
with ends as (
    select try_cast(round({{ column_name }} * 100) as bigint) as last_cents
    from {{ model }}
    order by file_row desc
    limit 1
),
booked as (
    select coalesce(sum({{ field }}), 0) as cents from {{ to }}
)
select * from booked left join ends on true where last_cents is distinct from cents
{% endtest %}
