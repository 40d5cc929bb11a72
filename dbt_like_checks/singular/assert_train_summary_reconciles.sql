-- train_summary, its trades and the last train row say one amount and one count, exact.
with trades as (
    select count(*) as n, coalesce(sum(pnl_cents), 0) as cents from {{ ref('trades') }}
),
last_row as (
    select
        try_cast(round("trading.realized_pnl_usd_cum" * 100) as bigint) as diag_cents,
        "trading.total_trades" as diag_trades
    from {{ ref('diag') }}
    order by file_row desc
    limit 1
),
stated as (
    select
        try_cast(round(realized_pnl_usd_cum * 100) as bigint) as stated_cents,
        total_trades,
        n_steps,
        (select count(*) from {{ ref('diag') }}) as n_rows
    from {{ ref('train_summary') }}
)
select *
from trades left join last_row on true left join stated on true
where
    cents is distinct from diag_cents
    or cents is distinct from stated_cents
    or n is distinct from diag_trades
    or n is distinct from total_trades
    or n_steps is distinct from n_rows
