-- On the last step every account is flat, so the fleet's equity is what the summary calls total pnl.
with ends as (
    select sum(equity_cents) as cents, count(*) as n
    from {{ ref('equity') }}
    where step = (select max(step) from {{ ref('equity') }})
)
select *
from ends
left join {{ ref('eval_summary') }} as stated on true
where
    cents is distinct from stated.total_pnl_cents
    or n is distinct from stated.accounts
