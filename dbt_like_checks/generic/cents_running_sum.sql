{# A USD column that accumulates another one, exact in cents. NaN has no cents and fails. #}
{% test cents_running_sum(model, column_name, of) %}
with in_cents as (
    select
        file_row,
        try_cast(round({{ column_name }} * 100) as bigint) as cum,
        try_cast(round({{ of }} * 100) as bigint) as added
    from {{ model }}
),
running as (
    select *, sum(added) over (order by file_row) as expected from in_cents
)
select * from running where added is null or cum is distinct from expected
{% endtest %}
