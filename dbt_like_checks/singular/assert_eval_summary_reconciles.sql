-- eval_summary, its trades and the last eval row say one amount and one count, exact.
with trades as (
    select
        count(*) as n,
        coalesce(sum(pnl_cents), 0) as cents,
        coalesce(sum(fees_cents), 0) as fees_cents
    from {{ ref('eval_trades') }}
),
last_row as (
    select
        try_cast(round("trading.realized_pnl_usd_cum" * 100) as bigint) as diag_cents,
        "trading.total_trades" as diag_trades
    from {{ ref('eval_diag') }}
    order by file_row desc
    limit 1
),
stated as (
    select
        total_pnl_cents,
        try_cast(round(total_pnl_usd * 100) as bigint) as total_pnl_usd_cents,
        try_cast(round(fees_usd * 100) as bigint) as stated_fees_cents,
        n_trades
    from {{ ref('eval_summary') }}
)
select *
from trades left join last_row on true left join stated on true
where
    cents is distinct from total_pnl_cents
    or cents is distinct from total_pnl_usd_cents
    or cents is distinct from diag_cents
    or fees_cents is distinct from stated_fees_cents
    or n is distinct from n_trades
    or n is distinct from diag_trades
