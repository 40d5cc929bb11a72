// What a step of B accounts measures of itself, summed over the accounts: walk, flow, positions, units, books, trades.
//
// The first launch gives a row of partial sums for every 32 accounts, the second adds the rows up, in order, and moves
// the totals of the phase on. The twin is foxhunt_assets.simulator.measure: integers are equal, float64 sums are added
// in another, fixed order. Rows and segments seen are marked by bits, which the second launch takes back.

#define BLOCK 32   // accounts of a block, which is a warp
#define FINISH 128  // threads of the block that finishes; no fewer than ints of a partial row
#define LEVELS 10
#define FIELDS 17  // of a trade row
#define MAX_UNITS 4

typedef long long i64;
typedef unsigned long long u64;

// ROW_INTS and TOTALS of the twin, in its order, then what only the finish needs.
enum Int {
    STARTS, AGE, TERMINATED, TRUNCATED, ANCHOR, ANCHOR_MIN, ANCHOR_MAX, ANCHOR_DISTINCT, SEGMENT_DISTINCT,
    SEGMENT_ROWS_LEFT_MIN, PURGE_MARGIN_MIN, UNITS_ADDED, INEFFECTIVE, CLOSES, PNL, EQUITY, CASH, NET_NOTIONAL,
    GROSS_NOTIONAL, OPEN, OPEN_MIN, ACCOUNT_HIGH, ACCOUNT_LOW, PROFITABLE, LOTS_ABS, LOTS_ABS_MAX, LOTS_NET, LONG,
    SHORT, FLAT_STEPS_MAX, HOLD_STEPS, UNITS, UNITS_MAX, FULL_STACK, CLOSED_SINGLY, TIGHTENED, LOOSENED, TRAIL_CLOSES,
    ORDERS, POLICY_ORDERS, FILLS, FILL_LOTS, BUY_LOTS, REJECTED, LEVELS_MAX, SLIPPAGE, FEES, TOUCH_FILLS, LAG,
    TWO_SIDED, SPREAD, SPREAD_MAX, UNIT, DEPTH = UNIT + 3 * MAX_UNITS, ROW_INTS = DEPTH + 10,
    TRADES = ROW_INTS, WINS, TRADE_PNL, WIN_PNL, TRADE_HOLD, FORCED_PNL, LONG_PNL, LARGE_PNL, TRAIL_PNL, TOTAL_FEES,
    TOTAL_SLIPPAGE, MARKET, ACCOUNT_STEPS, AGREE_PNL, STEPS = AGREE_PNL + 3, TRAIL_STEPS = STEPS + 3,
    CLOSES_OF = TRAIL_STEPS + 3, CLOSE_HOLD = CLOSES_OF + 3, EQUITY_HIGH = CLOSE_HOLD + 3, DRAWDOWN_HIGH, TRADE_HIGH,
    TRADE_LOW, TOTALS_END, PNL_SQUARES = TOTALS_END, OFF, INTS
};
enum Float { DISTANCE, DISTANCE_MIN, DISTANCE_MAX, INITIAL_R, OPEN_R, TOUCH_TAKE, MICROPRICE_DEV, ACCOUNT_STD,
             IMBALANCE, FLOATS = IMBALANCE + 3 };
enum Kind { SUM, LEAST, MOST };
enum Field { TRADE_SIDE = 1, ENTRY_STEP = 3, EXIT_STEP = 4, TRADE_CENTS = 10, REASON = 11, ENTRY_ACTION = 12,
             SIGN = 14 };
enum Reason { TRAIL = 2, FIRST_FORCED = 3 };
enum Action { SHORT_LARGE = 0, LONG_LARGE = 6 };

#define NEVER (-0x7fffffffffffffffll - 1)
#define FAR 1.7976931348623157e308  // beyond every distance

__device__ static int kind_of(int k)
{
    switch (k) {
    case ANCHOR_MIN: case SEGMENT_ROWS_LEFT_MIN: case PURGE_MARGIN_MIN: case OPEN_MIN: case ACCOUNT_LOW: case TRADE_LOW:
        return LEAST;
    case ANCHOR_MAX: case ACCOUNT_HIGH: case LOTS_ABS_MAX: case FLAT_STEPS_MAX: case UNITS_MAX: case LEVELS_MAX:
    case SPREAD_MAX: case TRADE_HIGH:
        return MOST;
    default:
        return SUM;
    }
}

__device__ static int float_kind_of(int k) { return k == DISTANCE_MIN ? LEAST : k == DISTANCE_MAX ? MOST : SUM; }

template <class T> __device__ static T join(int kind, T a, T b)
{
    return kind == SUM ? a + b : kind == LEAST ? (b < a ? b : a) : b > a ? b : a;
}

struct Outcome {
    const i64 *anchor, *episode_age, *mark, *mark_change, *lots, *units_before, *open, *equity, *realised,
        *fees, *orders, *policy_orders, *fills, *fill_lots, *buy_lots, *rejected, *levels_max, *slippage, *touch_fills,
        *lag, *units_added, *closed_singly, *tightened, *loosened, *trades;
    const bool *episode_start, *terminated, *truncated, *ineffective, *trade_mask;
    const double* touch_take;
};

struct Market {
    const int *bid_px, *ask_px, *bid_sz, *ask_sz, *segment;
    const i64* segment_last;
    i64 last_usable_row, tick_cents;
    int absent;
};

struct Units {
    const i64 *lots, *entry_step, *open_tick_lots;
    const float *initial_r, *distance;
};

struct Row {  // an account's column of the block's words in shared memory
    i64* words;
    double* reals;
    __device__ i64& operator[](Int k) { return words[k * BLOCK]; }
    __device__ double& operator()(int k) { return reals[k * BLOCK]; }
};

// Of all that mark a place one is the first; who that is may change, how many there are does not.
__device__ static bool first_to_mark(int* bits, i64 at)
{
    int bit = (int)(1u << (at & 31));
    return !(atomicOr(bits + (at >> 5), bit) & bit);
}

__device__ static void walk(Row row, const Outcome& o, const Market& m, i64 i, int* rows_seen, int* segments_seen)
{
    i64 anchor = o.anchor[i];
    row[STARTS] = o.episode_start[i];
    row[AGE] = o.episode_age[i];
    row[TERMINATED] = o.terminated[i];
    row[TRUNCATED] = o.truncated[i];
    row[ANCHOR] = row[ANCHOR_MIN] = row[ANCHOR_MAX] = anchor;
    row[ANCHOR_DISTINCT] = first_to_mark(rows_seen, anchor);
    row[SEGMENT_DISTINCT] = first_to_mark(segments_seen, m.segment[anchor] + 1);
    row[SEGMENT_ROWS_LEFT_MIN] = m.segment_last[anchor] - anchor;
    row[PURGE_MARGIN_MIN] = m.last_usable_row - anchor;
}

__device__ static void flow(Row row, const Outcome& o, i64 i)
{
    row[UNITS_ADDED] = o.units_added[i];
    row[INEFFECTIVE] = o.ineffective[i];
    row[PNL] = o.realised[i];
    row[CLOSED_SINGLY] = o.closed_singly[i];
    row[TIGHTENED] = o.tightened[i];
    row[LOOSENED] = o.loosened[i];
    row[ORDERS] = o.orders[i];
    row[POLICY_ORDERS] = o.policy_orders[i];
    row[FILLS] = o.fills[i];
    row[FILL_LOTS] = o.fill_lots[i];
    row[BUY_LOTS] = o.buy_lots[i];
    row[REJECTED] = o.rejected[i];
    row[LEVELS_MAX] = o.levels_max[i];
    row[SLIPPAGE] = row[TOTAL_SLIPPAGE] = o.slippage[i];
    row[FEES] = row[TOTAL_FEES] = o.fees[i];
    row[TOUCH_FILLS] = o.touch_fills[i];
    row[LAG] = o.lag[i];
    row[MARKET] = o.mark_change[i];
    row[ACCOUNT_STEPS] = 1;
    row(TOUCH_TAKE) = o.touch_take[i];
}

// off: equity less that of account 0, so that the spread of equity loses no digits to its level.
__device__ static void position(Row row, const Outcome& o, const Market& m, i64 i, i64 cash, i64 flat_steps,
                                i64 hold_steps)
{
    i64 lots = o.lots[i], size = lots < 0 ? -lots : lots, value = (lots * o.mark[i] * m.tick_cents) >> 1;
    i64 equity = o.equity[i], off = equity - o.equity[0];
    row[EQUITY] = row[ACCOUNT_HIGH] = row[ACCOUNT_LOW] = equity;
    row[PROFITABLE] = equity > 0;
    row[CASH] = cash;
    row[NET_NOTIONAL] = value;
    row[GROSS_NOTIONAL] = value < 0 ? -value : value;
    row[OPEN] = row[OPEN_MIN] = o.open[i];
    row[LOTS_ABS] = row[LOTS_ABS_MAX] = size;
    row[LOTS_NET] = lots;
    row[LONG] = lots > 0;
    row[SHORT] = lots < 0;
    row[FLAT_STEPS_MAX] = flat_steps;
    row[HOLD_STEPS] = size > 0 ? hold_steps : 0;
    row[OFF] = off;
    row(ACCOUNT_STD) = (double)off * (double)off;
}

__device__ static void units(Row row, const Units& u, i64 at, int max_units, i64 side, i64 mark, i64 step)
{
    i64 count = 0;
    double mid = (double)mark / 2, distance = 0, least = FAR, most = 0, initial_r = 0, open_r = 0;
    for (int k = 0; k < MAX_UNITS; ++k) {
        i64 lots = k < max_units ? u.lots[at + k] : 0, age = 0;
        if (lots > 0) {
            double trail = u.distance[at + k], entry = (double)u.open_tick_lots[at + k] / (double)lots;
            float r = u.initial_r[at + k];
            age = step - 1 - u.entry_step[at + k];
            ++count;
            distance += trail;
            least = join((int)LEAST, least, trail), most = join((int)MOST, most, trail);
            initial_r += r;
            open_r += (double)side * (mid - entry) / (double)(r < 1e-6f ? 1e-6f : r);
        }
        row[(Int)(UNIT + 3 * k)] = lots > 0;
        row[(Int)(UNIT + 3 * k + 1)] = lots;
        row[(Int)(UNIT + 3 * k + 2)] = age;
    }
    row[UNITS] = row[UNITS_MAX] = count;
    row[FULL_STACK] = count == max_units;
    row(DISTANCE) = distance, row(DISTANCE_MIN) = least, row(DISTANCE_MAX) = most;
    row(INITIAL_R) = initial_r, row(OPEN_R) = open_r;
}

__device__ static double imbalance(i64 bid, i64 ask)
{
    i64 both = bid + ask;
    return (double)(bid - ask) / (double)(both < 1 ? 1 : both);
}

__device__ static void books(Row row, const Market& m, i64 anchor)
{
    const int deep[5] = {1, 2, 3, 5, 10};
    i64 at = anchor * LEVELS, bids = 0, asks = 0;
    int bid = m.bid_px[at], ask = m.ask_px[at], d = 0;
    bool two = bid != m.absent && ask != m.absent;
    i64 spread = two ? (i64)ask - bid : 0;
#pragma unroll
    for (int l = 0; l < LEVELS; ++l) {
        bids += m.bid_sz[at + l], asks += m.ask_sz[at + l];
        if (l + 1 == deep[d]) row[(Int)(DEPTH + d)] = bids, row[(Int)(DEPTH + 5 + d)] = asks, ++d;
        // size-weighted touch - mid = spread x (bid size - ask size) / (2 x (bid size + ask size))
        if (l == 0) row(MICROPRICE_DEV) = (double)spread * imbalance(bids, asks) / 2;
        if (l == 0) row(IMBALANCE) = imbalance(bids, asks);
        if (l == 4) row(IMBALANCE + 1) = imbalance(bids, asks);
        if (l == 9) row(IMBALANCE + 2) = imbalance(bids, asks);
    }
    row[TWO_SIDED] = two;
    row[SPREAD] = spread;
    row[SPREAD_MAX] = two ? spread : NEVER;
}

__device__ static void closes(Row row, const Outcome& o, i64 i, int max_units)
{
    int places = 3 * max_units;
    i64 n = 0, wins = 0, pnl = 0, win_pnl = 0, held = 0, forced = 0, lng = 0, large = 0, trail_pnl = 0, trails = 0;
    i64 agree[3] = {0, 0, 0}, high = NEVER, low = -(NEVER + 1), squares = 0;
    for (int r = 0; r < places; ++r) {
        if (!o.trade_mask[i * places + r]) continue;
        const i64* t = o.trades + (i * places + r) * FIELDS;
        i64 cents = t[TRADE_CENTS], reason = t[REASON], side = t[TRADE_SIDE], action = t[ENTRY_ACTION];
        ++n;
        wins += cents > 0;
        pnl += cents;
        if (cents > 0) win_pnl += cents;
        held += t[EXIT_STEP] - t[ENTRY_STEP];
        if (reason >= FIRST_FORCED) forced += cents;
        if (side > 0) lng += cents;
        if (action == SHORT_LARGE || action == LONG_LARGE) large += cents;
        if (reason == TRAIL) trail_pnl += cents, ++trails;
        for (int h = 0; h < 3; ++h) if (t[SIGN + h] == side) agree[h] += cents;
        high = join((int)MOST, high, cents), low = join((int)LEAST, low, cents);
        squares += cents * cents;
    }
    row[CLOSES] = row[TRADES] = n, row[TRAIL_CLOSES] = trails;
    row[WINS] = wins, row[TRADE_PNL] = pnl, row[WIN_PNL] = win_pnl, row[TRADE_HOLD] = held, row[FORCED_PNL] = forced;
    row[LONG_PNL] = lng, row[LARGE_PNL] = large, row[TRAIL_PNL] = trail_pnl, row[PNL_SQUARES] = squares;
    row[TRADE_HIGH] = high, row[TRADE_LOW] = low, row[EQUITY_HIGH] = row[DRAWDOWN_HIGH] = 0;
    i64 units = o.units_before[i], of = units * 4 <= max_units ? 0 : units * 2 <= max_units ? 1 : 2;
    for (int h = 0; h < 3; ++h) {
        bool among = units > 0 && of == h;
        row[(Int)(AGREE_PNL + h)] = agree[h];
        row[(Int)(STEPS + h)] = among;
        row[(Int)(TRAIL_STEPS + h)] = among && trails > 0;
        row[(Int)(CLOSES_OF + h)] = among ? n : 0;
        row[(Int)(CLOSE_HOLD + h)] = among ? held : 0;
    }
}

// partial: int64 [blocks, INTS], partial_floats: float64 [blocks, FLOATS]. rows_seen, segments_seen: bits, and
// distinct: int64 [2], how many were set; all zero before.
extern "C" __global__ void tally_accounts(
    const long long* __restrict__ anchor, const long long* __restrict__ episode_age,
    const long long* __restrict__ mark_half_ticks, const long long* __restrict__ mark_change_half_ticks,
    const long long* __restrict__ lots,
    const long long* __restrict__ units_before, const long long* __restrict__ open_cents,
    const long long* __restrict__ phase_equity_cents, const long long* __restrict__ realised_cents,
    const long long* __restrict__ fee_cents, const long long* __restrict__ orders,
    const long long* __restrict__ policy_orders, const long long* __restrict__ fills,
    const long long* __restrict__ fill_lots, const long long* __restrict__ buy_lots,
    const long long* __restrict__ rejected, const long long* __restrict__ levels_max,
    const long long* __restrict__ slippage_half_ticks, const long long* __restrict__ touch_fills,
    const long long* __restrict__ lag_ns, const long long* __restrict__ units_added,
    const long long* __restrict__ units_closed_singly, const long long* __restrict__ tightened,
    const long long* __restrict__ loosened, const long long* __restrict__ trades,
    const bool* __restrict__ episode_start, const bool* __restrict__ terminated, const bool* __restrict__ truncated,
    const bool* __restrict__ ineffective, const bool* __restrict__ trade_mask, const double* __restrict__ touch_take,
    const int* __restrict__ bid_px, const int* __restrict__ ask_px, const int* __restrict__ bid_sz,
    const int* __restrict__ ask_sz, const int* __restrict__ segment, const long long* __restrict__ segment_last,
    const long long* __restrict__ acct_step, const long long* __restrict__ acct_side,
    const long long* __restrict__ acct_cash_cents, const long long* __restrict__ acct_flat_steps,
    const long long* __restrict__ acct_hold_steps, const long long* __restrict__ acct_mark_half_ticks,
    const long long* __restrict__ unit_lots, const long long* __restrict__ unit_entry_step,
    const long long* __restrict__ unit_open_tick_lots, const float* __restrict__ unit_initial_r,
    const float* __restrict__ unit_trail_distance, long long accounts, long long max_units, long long tick_cents,
    long long absent, long long last_usable_row, int* rows_seen, int* segments_seen, long long* distinct,
    long long* partial, double* partial_floats)
{
    __shared__ i64 words[INTS * BLOCK];
    __shared__ double reals[FLOATS * BLOCK];
    i64 first = (i64)blockIdx.x * BLOCK, i = first + threadIdx.x;
    int t = threadIdx.x, there = accounts - first < BLOCK ? (int)(accounts - first) : BLOCK;
    if (t < there) {
        Outcome o{anchor, episode_age, mark_half_ticks, mark_change_half_ticks, lots, units_before,
                  open_cents, phase_equity_cents, realised_cents, fee_cents, orders, policy_orders, fills, fill_lots,
                  buy_lots, rejected, levels_max, slippage_half_ticks, touch_fills, lag_ns, units_added,
                  units_closed_singly, tightened, loosened, trades, episode_start, terminated, truncated,
                  ineffective, trade_mask, touch_take};
        Market m{bid_px, ask_px, bid_sz, ask_sz, segment, segment_last, last_usable_row, tick_cents, (int)absent};
        Units held{unit_lots, unit_entry_step, unit_open_tick_lots, unit_initial_r, unit_trail_distance};
        Row row{words + t, reals + t};
        walk(row, o, m, i, rows_seen, segments_seen);
        flow(row, o, i);
        position(row, o, m, i, acct_cash_cents[i], acct_flat_steps[i], acct_hold_steps[i]);
        units(row, held, i * max_units, (int)max_units, acct_side[i], acct_mark_half_ticks[i], *acct_step);
        books(row, m, anchor[i]);
        closes(row, o, i, (int)max_units);
    }
    __syncthreads();
    // A thread joins a word of the accounts, starting at its own account: no two of a warp meet in a bank.
    for (int k = t; k < INTS; k += BLOCK) {
        int kind = kind_of(k), at = t % there;
        i64 sum = words[k * BLOCK + at];
        for (int n = 1; n < there; ++n) at = at + 1 < there ? at + 1 : 0, sum = join(kind, sum, words[k * BLOCK + at]);
        if (k == ANCHOR_DISTINCT || k == SEGMENT_DISTINCT) atomicAdd((u64*)distinct + (k - ANCHOR_DISTINCT), (u64)sum);
        else partial[(i64)blockIdx.x * INTS + k] = sum;
    }
    if (t < FLOATS) {
        double sum = reals[t * BLOCK];
        for (int n = 1; n < there; ++n) sum = join(float_kind_of(t), sum, reals[t * BLOCK + n]);
        partial_floats[(i64)blockIdx.x * FLOATS + t] = sum;
    }
}

// The first block adds up and moves the totals on; a thread of the others takes back the bits of one account.
extern "C" __global__ void tally_finish(const long long* __restrict__ partial,
                                        const double* __restrict__ partial_floats,
                                        const long long* __restrict__ anchor, const int* __restrict__ segment,
                                        long long accounts, long long blocks, int* rows_seen, int* segments_seen,
                                        long long* distinct, long long* diag_sim_ints, double* diag_sim_floats,
                                        long long* diag_sim_totals, double* diag_sim_pnl_squares)
{
    __shared__ i64 sums[FINISH];
    int t = threadIdx.x;
    if (blockIdx.x > 0) {
        i64 i = (i64)(blockIdx.x - 1) * blockDim.x + t;
        if (i >= accounts) return;
        i64 row = anchor[i], at = segment[row] + 1;
        atomicAnd(rows_seen + (row >> 5), (int)~(1u << (row & 31)));
        atomicAnd(segments_seen + (at >> 5), (int)~(1u << (at & 31)));
        return;
    }
    if (t == ANCHOR_DISTINCT || t == SEGMENT_DISTINCT) {
        sums[t] = distinct[t - ANCHOR_DISTINCT];
        distinct[t - ANCHOR_DISTINCT] = 0;
    } else if (t < INTS) {
        i64 sum = partial[t];
        int kind = kind_of(t);
#pragma unroll 8
        for (i64 b = 1; b < blocks; ++b) sum = join(kind, sum, partial[b * INTS + t]);
        sums[t] = sum;
    }
    __syncthreads();
    if (t < ROW_INTS) diag_sim_ints[t] = sums[t];
    else if (t < EQUITY_HIGH) diag_sim_totals[t - TRADES] += sums[t];
    else if (t == EQUITY_HIGH) {
        i64 *high = diag_sim_totals + EQUITY_HIGH - TRADES, *drawdown = high + 1, equity = sums[EQUITY];
        *high = join((int)MOST, *high, equity);
        *drawdown = join((int)MOST, *drawdown, *high - equity);
    } else if (t == TRADE_HIGH || t == TRADE_LOW) {
        i64* total = diag_sim_totals + t - TRADES;
        *total = join(kind_of(t), *total, sums[t]);
    } else if (t == PNL_SQUARES) *diag_sim_pnl_squares += (double)sums[t];
    if (t < FLOATS) {
        double sum = partial_floats[t], n = (double)accounts;
        for (i64 b = 1; b < blocks; ++b) sum = join(float_kind_of(t), sum, partial_floats[b * FLOATS + t]);
        if (t == DISTANCE_MIN && sum == FAR) sum = 0;
        if (t == ACCOUNT_STD) {
            double mean = (double)sums[OFF] / n, variance = sum / n - mean * mean;
            sum = variance > 0 ? sqrt(variance) : 0;
        }
        diag_sim_floats[t] = sum;
    }
}
