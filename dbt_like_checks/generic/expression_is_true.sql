{# An expression that is null is not true. #}
{% test expression_is_true(model, expression) %}
select * from {{ model }} where ({{ expression }}) is not true
{% endtest %}
