// Trading accounts on a tape of order books: a step, a seat at the next episode, an observation; one thread an account.
//
// The step does in one launch what foxhunt_assets.simulator does in torch, its twin: shift register, trailing stops,
// the policy's order, forced closes, marks, closed trades, state, and what the account sees afterwards. Money is int64
// cents, prices int32 ticks, sums int64; lots of one account fit 32 bits. Words change hands only between launches.

#define UNITS 4      // unit slots an account has at most
#define LEVELS 10    // levels of a book side at most
#define THREADS 128  // accounts of a block at most
#define SEEN 12      // values an account sees of itself
#define FIELDS 17    // of a trade row

#define NO_LIMIT 0x7fffffffffffffffll

typedef long long i64;

enum Action { SHORT_LARGE, SHORT_SMALL, HOLD, FLAT_LONG, FLAT_SHORT, LONG_SMALL, LONG_LARGE, TIGHTEN, LOOSEN, HALF_LONG,
              HALF_SHORT, ACTIONS };
enum Reason { NONE, POLICY, TRAIL, SESSION, GAP, LENGTH, BLOWN, PHASE_END };
enum Phase { STOPS, ORDER, FORCED, PHASES };
// Rows of `ints` and `flags`, in the order of op.py.
enum Int { ANCHOR, NEXT_ROW, AGE, EXECUTED, EQUITY_CHANGE, CORE, FEES, REALISED, CASH_CHANGE, EPISODE_EQUITY,
           PHASE_EQUITY, OPEN, MARK, MARK_CHANGE, END_REASON, LOTS_BEFORE, UNITS_BEFORE, LOTS_AFTER, ORDERS,
           POLICY_ORDERS, FILLS, FILL_LOTS, BUY_LOTS, REJECTED, CANCELLED, FORCED_REST, LEVELS_MAX, SLIPPAGE,
           TOUCH_FILLS, LAG, UNITS_ADDED, CLOSED_SINGLY, TIGHTENED, LOOSENED };
enum Flag { EPISODE_START, ILLEGAL, INEFFECTIVE, TERMINATED, TRUNCATED, TRADE_CLOSED };

struct Market {
    const int *bid_px, *ask_px, *bid_sz, *ask_sz, *low_bid, *high_ask, *place;
    const i64 *ts, *ts_event, *fee;
    i64 levels, tick_cents;
    int absent;
};

struct Slots {  // the buffers of units, [accounts, max_units]
    i64 *lots, *entry_lots, *entry_step, *entry_ts, *entry_tick_lots, *open_tick_lots, *entry_fee, *open_fee,
        *entry_action, *best_px;
    signed char* signs;
    float *initial_r, *distance;
    bool* triggered;
    unsigned char* active;
};

struct Rules {
    i64 max_units, min_hold, episode_length, start_equity;
    const float* scales;
};

// The open units of an account, the oldest first. `slot` says where in the buffers the rest of a unit still lies.
struct Held {
    int number, lots[UNITS], slot[UNITS];
    i64 entry_step[UNITS], open_tick_lots[UNITS], open_fee[UNITS], best_px[UNITS];
    float distance[UNITS];
    bool triggered[UNITS];
};

struct Order {
    int side, total;
    bool force, opens;
    int want[UNITS];    // lots of each unit it may close; of an order that opens one, all of them in the first place
    i64 limit[UNITS];   // a stop fills no better than this
};

struct Filled {
    int lots[UNITS];
    i64 tick_lots[UNITS];
};

struct Tally {
    int orders, fills, fill_lots, buy_lots, rejected, cancelled, forced_rest, levels_max, touch_fills;
    i64 slippage, lag, fee, cash;
    double touch_take;
};

struct Account {
    i64 account, row, step, mark, last_bid, last_ask, realised, streak;
    int side;
    bool sound, flat_between, parts, emptied, opened;  // the last three: what happened to the units
    unsigned trades, touched;  // a bit a trade row; a bit a book side whose memory was written
    Held held;
    Tally tally;
};

#define EACH_UNIT(u) _Pragma("unroll") for (int u = 0; u < UNITS; ++u)

__device__ static i64 floor_div(i64 a, i64 b)  // b > 0
{
    i64 q = a / b;
    return q * b > a ? q - 1 : q;
}

__device__ static i64 stop_px(const Held& h, int u, int side) { return h.best_px[u] - side * (i64)ceilf(h.distance[u]); }

__device__ static int lots_of(const Held& h)
{
    int lots = 0;
    EACH_UNIT(u) if (u < h.number) lots += h.lots[u];
    return lots;
}

__device__ static void load(Held& h, const Slots& s, i64 at, int number)
{
    h.number = number;
    EACH_UNIT(u) if (u < number) {
        h.lots[u] = (int)s.lots[at + u];
        h.slot[u] = u;
        h.entry_step[u] = s.entry_step[at + u];
        h.open_tick_lots[u] = s.open_tick_lots[at + u];
        h.best_px[u] = s.best_px[at + u];
        h.distance[u] = s.distance[at + u];
    }
}

// A bit an action: which the account may choose at `step`. A whole close is legal when every unit was held min_hold
// steps, a half close when the oldest ones that it would touch were.
__device__ static unsigned legal_actions(const Held& h, int side, i64 step, bool warm, const Rules& rules)
{
    if (!warm) return 1u << HOLD;
    bool close = true, halve = true, room = h.number < rules.max_units, lng = side > 0, shrt = side < 0;
    int before = 0, half = (lots_of(h) + 1) / 2;
    EACH_UNIT(u) if (u < h.number) {
        bool young = rules.min_hold - (step - h.entry_step[u]) > 0;
        close &= !young;
        halve &= !young || before >= half;
        before += h.lots[u];
    }
    unsigned mask = 1u << HOLD;
    if (shrt ? close : room) mask |= 1u << LONG_SMALL | 1u << LONG_LARGE;
    if (lng ? close : room) mask |= 1u << SHORT_SMALL | 1u << SHORT_LARGE;
    if (lng | shrt) mask |= 1u << TIGHTEN | 1u << LOOSEN;
    if ((lng | shrt) & close) mask |= 1u << (lng ? FLAT_LONG : FLAT_SHORT);
    if ((lng | shrt) & halve) mask |= 1u << (lng ? HALF_LONG : HALF_SHORT);
    return mask;
}

// The twelve values, each float32(value) / scale, in the order of foxhunt_assets.simulator.observe.
__device__ static void see(const Held& h, int side, i64 step, i64 mark, i64 age, i64 equity, i64 streak, i64 rows_left,
                           i64 episode_age, const Rules& rules, float* out)
{
    int lots = lots_of(h);
    i64 tick_lots = 0, hold = 0, length = rules.episode_length - episode_age;
    float mid = (float)mark / 2.0f, nearest = 0.0f, open = 0.0f;
    EACH_UNIT(u) if (u < h.number) {
        i64 left = rules.min_hold - (step - h.entry_step[u]);
        if (left > hold) hold = left;
        tick_lots += h.open_tick_lots[u];
        float gap = (float)side * (mid - (float)stop_px(h, u, side));
        if (u == 0 || gap < nearest) nearest = gap;
    }
    if (lots > 0) open = (float)side * (mid - (float)tick_lots / (float)lots);
    float values[SEEN] = {
        (float)(side * lots), (float)h.number, (float)age, open, nearest,
        (float)(equity - rules.start_equity), 0.0f, (float)streak, 0.0f, (float)hold, (float)rules.max_units,
        (float)(rows_left < length ? rows_left : length),
    };
#pragma unroll
    for (int k = 0; k < SEEN; ++k) out[k] = values[k] / rules.scales[k];
}

// Bytes of a block's accounts from shared memory to theirs, in words of four as far as they go.
__device__ static void put_bytes(unsigned char* to, const unsigned char* from, int bytes)
{
    int words = bytes / 4;
    for (int w = threadIdx.x; w < words; w += blockDim.x) ((int*)to)[w] = ((const int*)from)[w];
    for (int b = 4 * words + threadIdx.x; b < bytes; b += blockDim.x) to[b] = from[b];
}

// --- orders ---------------------------------------------------------------------------------------

// What the account took at a price and size, whatever its rank was, is gone from this book too.
__device__ static void line_up(int* taken, const int* px, const int* sz, const int* old_px, const int* old_lots,
                               const int* old_sz, int levels)
{
    int price[LEVELS], size[LEVELS];
#pragma unroll
    for (int l = 0; l < LEVELS; ++l) if (l < levels) price[l] = px[l], size[l] = sz[l], taken[l * THREADS] = 0;
#pragma unroll 1
    for (int m = 0; m < levels; ++m) {
        int lots = old_lots[m];
        if (lots == 0) continue;
        int then_px = old_px[m], then_sz = old_sz[m];
#pragma unroll
        for (int l = 0; l < LEVELS; ++l)
            if (l < levels && price[l] == then_px && size[l] == then_sz) taken[l * THREADS] += lots;
    }
}

// Lots at one place of the book go to the units in turn, the oldest first.
__device__ static void deal(Order& order, Filled& filled, int lots, i64 price)
{
    EACH_UNIT(u) {
        int part = lots < order.want[u] ? lots : order.want[u];
        i64 px = order.side > 0 ? (price > order.limit[u] ? price : order.limit[u])
                                : (price < order.limit[u] ? price : order.limit[u]);
        order.want[u] -= part;
        lots -= part;
        filled.lots[u] += part;
        filled.tick_lots[u] += part * px;
    }
}

// Take from the touch downwards until order or book is exhausted; a forced order takes the rest at the deepest price
// there is, or all of it at the last touch where the book is not sound. Returns the lots filled.
__device__ static int take(Account& a, Order& order, Filled& filled, const Market& m, int* taken)
{
    const int *px = (order.side > 0 ? m.ask_px : m.bid_px) + a.row * m.levels,
              *sz = (order.side > 0 ? m.ask_sz : m.bid_sz) + a.row * m.levels;
    int left = order.total, depth = (int)m.levels, reached = 0, deepest = 0, last_px = 0;
#pragma unroll 1
    for (int l = 0; a.sound && l < depth && left > 0; ++l) {
        int price = px[l];
        if (price == m.absent) continue;
        int had = taken[l * THREADS], shown = sz[l] - had, got = shown < left ? shown : left;
        deepest = l + 1, last_px = price;
        if (got == 0) continue;
        taken[l * THREADS] = had + got;
        reached = l + 1;
        left -= got;
        deal(order, filled, got, price);
    }
    int rest = order.force ? left : 0;
    if (rest > 0) {
        reached = a.sound ? deepest : 1;
        deal(order, filled, rest, a.sound ? last_px : order.side > 0 ? a.last_ask : a.last_bid);
    }
    a.tally.forced_rest += rest;
    if (reached > a.tally.levels_max) a.tally.levels_max = reached;
    return order.total - left + rest;
}

// Send an order to the book and count what came of it. decided: row of the decision. several: a unit is an order.
__device__ static void send(Account& a, Order& order, Filled& filled, const Market& m, int* taken, i64 decided,
                            bool several)
{
    Tally& t = a.tally;
    int orders = 0, fills = 0;
    EACH_UNIT(u) filled.lots[u] = 0, filled.tick_lots[u] = 0, orders += order.want[u] > 0;
    if (!several) orders = order.total > 0;
    if (!a.sound && !order.force) {
        t.rejected += orders;
        return;
    }
    if (orders == 0) return;
    unsigned side = order.side > 0 ? 2u : 1u;
    if (!(a.touched & side)) {
        for (int l = 0; l < (int)m.levels; ++l) taken[l * THREADS] = 0;
        a.touched |= side;
    }
    int lots = take(a, order, filled, m, taken);
    i64 tick_lots = 0, fee = lots * m.fee[a.row];
    EACH_UNIT(u) tick_lots += filled.tick_lots[u], fills += filled.lots[u] > 0;
    if (!several) fills = lots > 0;
    int touch = (order.side > 0 ? m.ask_sz : m.bid_sz)[a.row * m.levels];
    t.orders += orders;
    t.fills += fills;
    t.fill_lots += lots;
    if (order.side > 0) t.buy_lots += lots;
    t.cancelled += order.total - lots;
    t.slippage += order.side * (2 * tick_lots - lots * a.mark);
    t.lag += fills * (m.ts_event[a.row] - m.ts_event[decided]);
    t.fee += fee;
    t.cash += -order.side * tick_lots * m.tick_cents - fee;
    if (a.sound && touch > 0) t.touch_fills += fills, t.touch_take += (double)lots / (double)touch;
}

// --- units ----------------------------------------------------------------------------------------

__device__ static void swap_down(Held& h, int u)  // the unit in place u + 1 moves to u
{
    int slot = h.slot[u];
    h.lots[u] = h.lots[u + 1], h.lots[u + 1] = 0;
    h.slot[u] = h.slot[u + 1], h.slot[u + 1] = slot;
    h.entry_step[u] = h.entry_step[u + 1];
    h.open_tick_lots[u] = h.open_tick_lots[u + 1];
    h.open_fee[u] = h.open_fee[u + 1];
    h.best_px[u] = h.best_px[u + 1];
    h.distance[u] = h.distance[u + 1];
    h.triggered[u] = h.triggered[u + 1];
}

__device__ static void compact(Held& h)  // open units to the front, in order of age
{
#pragma unroll
    for (int last = UNITS - 1; last > 0; --last)
#pragma unroll
        for (int u = 0; u < last; ++u)
            if (u + 1 < h.number && h.lots[u] == 0 && h.lots[u + 1] > 0) swap_down(h, u);
    int number = 0;
    EACH_UNIT(u) number += u < h.number && h.lots[u] > 0;
    h.number = number;
}

// Book what was filled of each unit: a trade row each, its share of the entry's money, the lots that are left. The
// last part of a unit gets what is left of its entry, so that parts add up. Returns units closed if lots are left.
__device__ static int close(Account& a, const Filled& filled, const Slots& s, const Market& m, int phase, int reason,
                            i64 action, i64 max_units, i64* trades)
{
    Held& h = a.held;
    int before = h.number;
    EACH_UNIT(u) if (u < before && filled.lots[u] > 0) {
        i64 at = a.account * max_units + h.slot[u], entry = h.open_tick_lots[u], fee = h.open_fee[u];
        int taken = filled.lots[u], place = phase * (int)max_units + u;
        if (taken < h.lots[u]) {
            i64 of = s.entry_lots[at] > 1 ? s.entry_lots[at] : 1;
            entry = floor_div(s.entry_tick_lots[at] * taken, of), fee = floor_div(s.entry_fee[at] * taken, of);
        }
        i64 fees = fee + taken * m.fee[a.row], exit = filled.tick_lots[u];
        i64 pnl = a.side * (exit - entry) * m.tick_cents - fees;
        i64* row = trades + (a.account * PHASES * max_units + place) * FIELDS;
        row[0] = a.account, row[1] = a.side, row[2] = taken, row[3] = h.entry_step[u], row[4] = a.step;
        row[5] = s.entry_ts[at], row[6] = m.ts[a.row], row[7] = entry, row[8] = exit, row[9] = fees, row[10] = pnl;
        row[11] = reason, row[12] = s.entry_action[at], row[13] = action;
        for (int k = 0; k < 3; ++k) row[14 + k] = s.signs[3 * at + k];
        a.trades |= 1u << place;
        a.realised += pnl;
        a.streak = pnl > 0 ? 0 : a.streak + 1;
        h.lots[u] -= taken, h.open_tick_lots[u] -= entry, h.open_fee[u] -= fee;
        a.parts = true;
        a.emptied |= h.lots[u] == 0;
    }
    if (a.emptied) compact(h);
    if (h.number > 0) return before - h.number;
    a.side = 0;
    a.flat_between = true;
    return 0;
}

struct Entry { i64 action, ts, fee; float initial_r, distance; const signed char* signs; };

__device__ static void open(Account& a, const Filled& filled, const Slots& s, int side, const Entry& entry,
                            i64 max_units)
{
    Held& h = a.held;
    int n = h.number, lots = filled.lots[0], free = 0;
    EACH_UNIT(k) {  // as many rounds as units could lie in the way
        bool used = false;
        EACH_UNIT(u) used |= u < n && h.slot[u] == free;
        free += used;
    }
    i64 at = a.account * max_units + free, tick_lots = filled.tick_lots[0], fee = lots * entry.fee;
    s.entry_lots[at] = lots, s.entry_ts[at] = entry.ts, s.entry_tick_lots[at] = tick_lots, s.entry_fee[at] = fee;
    s.entry_action[at] = entry.action, s.initial_r[at] = entry.initial_r;
    for (int k = 0; k < 3; ++k) s.signs[3 * at + k] = entry.signs[k];
    EACH_UNIT(u) if (u == n) {
        h.lots[u] = lots, h.slot[u] = free, h.entry_step[u] = a.step, h.open_tick_lots[u] = tick_lots;
        h.open_fee[u] = fee, h.best_px[u] = side > 0 ? a.last_bid : a.last_ask, h.distance[u] = entry.distance;
        h.triggered[u] = false;
    }
    h.number = n + 1;
    a.side = side;
    a.opened = true;
}

__device__ static i64 open_cents(const Account& a, i64 tick_cents)  // half a cent is rounded down
{
    i64 tick_lots = 0, fee = 0;
    EACH_UNIT(u) if (u < a.held.number) tick_lots += a.held.open_tick_lots[u], fee += a.held.open_fee[u];
    return (((i64)a.side * lots_of(a.held) * a.mark * tick_cents) >> 1) - a.side * tick_lots * tick_cents - fee;
}

template <class T> __device__ static void permute(T* column, i64 at, const Held& h, i64 max_units, int width = 1, int k = 0)
{
    T value[UNITS];
    EACH_UNIT(u) value[u] = u < h.number ? column[(at + h.slot[u]) * width + k] : T();
    EACH_UNIT(u) if (u < max_units) column[(at + u) * width + k] = value[u];
}

template <class T, class V> __device__ static void put(T* column, i64 at, const V (&value)[UNITS], const Held& h, i64 max_units)
{
    EACH_UNIT(u) if (u < max_units) column[at + u] = u < h.number ? (T)value[u] : T();
}

// The units back to their buffers, empty slots all zeros. followed, fired, trailed: what moved beside lots.
__device__ static void store(const Account& a, const Slots& s, i64 max_units, bool followed, bool fired, bool trailed)
{
    const Held& h = a.held;
    i64 at = a.account * max_units;
    bool moved = a.emptied | a.opened;
    if (moved | a.parts) {
        put(s.lots, at, h.lots, h, max_units);
        put(s.open_tick_lots, at, h.open_tick_lots, h, max_units);
        put(s.open_fee, at, h.open_fee, h, max_units);
    }
    if (moved | followed) put(s.best_px, at, h.best_px, h, max_units);
    if (moved | fired) put(s.triggered, at, h.triggered, h, max_units);
    if (moved | trailed) put(s.distance, at, h.distance, h, max_units);
    if (moved) {
        put(s.entry_step, at, h.entry_step, h, max_units);
        EACH_UNIT(u) if (u < max_units) s.active[at + u] = u < h.number;
    }
    if (!a.emptied) return;
    permute(s.entry_lots, at, h, max_units);
    permute(s.entry_ts, at, h, max_units);
    permute(s.entry_tick_lots, at, h, max_units);
    permute(s.entry_fee, at, h, max_units);
    permute(s.entry_action, at, h, max_units);
    permute(s.initial_r, at, h, max_units);
    for (int k = 0; k < 3; ++k) permute(s.signs, at, h, max_units, 3, k);
}

// --- a step ---------------------------------------------------------------------------------------

struct Settings {
    Rules rules;
    i64 latency, tick_cents;
    int lots_small, lots_large;
    float initial_r, distance, tighten, loosen, least, most;
};

__device__ static void no_order(Order& order, int side, bool force)
{
    order.side = side, order.total = 0, order.force = force, order.opens = false;
    EACH_UNIT(u) order.want[u] = 0, order.limit[u] = side > 0 ? -NO_LIMIT : NO_LIMIT;
}

// Stops touched by the interval's lowest bid or highest ask, or before and not yet filled. Returns whether a
// trigger changed.
__device__ static bool stops(Account& a, Order& order, const Market& m)
{
    Held& h = a.held;
    no_order(order, -a.side, false);
    if (a.side == 0) return false;
    int extreme = (a.side > 0 ? m.low_bid : m.high_ask)[a.row];
    bool changed = false;
    EACH_UNIT(u) if (u < h.number) {
        i64 stop = stop_px(h, u, a.side);
        bool fires = h.triggered[u] || (extreme != m.absent && (a.side > 0 ? extreme <= stop : extreme >= stop));
        changed |= fires != h.triggered[u];
        h.triggered[u] = fires;
        order.limit[u] = stop;
        if (fires) order.want[u] = h.lots[u], order.total += h.lots[u];
    }
    return changed;
}

// The order of the action due on the account as it is now.
__device__ static void policy(Account& a, Order& order, int due, const Settings& s)
{
    const Held& h = a.held;
    int wanted = due == LONG_SMALL || due == LONG_LARGE ? 1 : due == SHORT_SMALL || due == SHORT_LARGE ? -1 : 0;
    bool enters = wanted != 0 && (a.side == 0 || a.side == wanted), lng = a.side > 0, shrt = a.side < 0;
    bool closes = (wanted != 0 && !enters) || (due == FLAT_LONG && lng) || (due == FLAT_SHORT && shrt);
    bool halves = (due == HALF_LONG && lng) || (due == HALF_SHORT && shrt);
    no_order(order, enters ? wanted : -a.side, false);
    int all = lots_of(h);
    if (enters && h.number < s.rules.max_units) {
        order.opens = true;
        order.total = order.want[0] = due == LONG_LARGE || due == SHORT_LARGE ? s.lots_large : s.lots_small;
    } else if (closes || halves) {
        order.total = closes ? all : (all + 1) / 2;
        EACH_UNIT(u) order.want[u] = u < h.number ? h.lots[u] : 0;
    }
    bool intent = wanted != 0 || due == FLAT_LONG || due == FLAT_SHORT || due == HALF_LONG || due == HALF_SHORT;
    a.tally.rejected += intent && order.total == 0;
}

__device__ static void forced(Account& a, Order& order)
{
    no_order(order, -a.side, true);
    EACH_UNIT(u) if (u < a.held.number) order.want[u] = a.held.lots[u], order.total += a.held.lots[u];
}

__device__ static void move_trails(Held& h, float factor, const Settings& s, int& tightened, int& loosened)
{
    EACH_UNIT(u) if (u < h.number) {
        float old = h.distance[u], now = old * factor;
        now = now < s.least ? s.least : now > s.most ? s.most : now;
        h.distance[u] = now;
        tightened += now < old;
        loosened += now > old;
    }
}

// Units follow the touch of a sound book; returns whether one did.
__device__ static bool follow(Account& a)
{
    i64 touch = a.side > 0 ? a.last_bid : a.last_ask;
    bool moved = false;
    EACH_UNIT(u) if (a.sound && u < a.held.number) {
        bool better = a.side > 0 ? touch > a.held.best_px[u] : touch < a.held.best_px[u];
        if (better) a.held.best_px[u] = touch, moved = true;
    }
    return moved;
}

// place: 2 x rows left of the stretch, plus 1 where the window is full.
__device__ static int end_reason(bool blown, i64 anchor, int place, i64 age, bool phase_end, bool drain,
                                 const unsigned char* session_end, const Settings& s)
{
    int left = place >> 1;
    if (!drain && left <= 1 && session_end[anchor + left]) return SESSION;
    if (blown) return BLOWN;
    if (!drain && left <= 1) return GAP;
    if (!drain && age + 1 >= s.rules.episode_length) return LENGTH;
    return phase_end || drain ? PHASE_END : NONE;
}

// A side's memory as the step leaves it: a place where nothing is taken holds nothing.
__device__ static void remember(const int* taken, const int* px, const int* sz, int* to_px, int* to_lots, int* to_sz,
                                const Market& m)
{
    for (int l = 0; l < (int)m.levels; ++l) {
        int lots = taken[l * THREADS];
        to_lots[l] = lots;
        to_px[l] = lots > 0 ? px[l] : m.absent;
        to_sz[l] = lots > 0 ? sz[l] : 0;
    }
}

// place, session_end: by row; see end_reason. step_at may be null, then step holds; acct_step is written and not read.
// Trade rows are written where trade_mask says that they are there, the three phases one after another. ints, flags:
// [names, accounts]. acct_pending_*: null at a latency of one row.
extern "C" __global__ void account_step(
    const int* __restrict__ bid_px, const int* __restrict__ ask_px, const int* __restrict__ bid_sz,
    const int* __restrict__ ask_sz, const int* __restrict__ low_bid_px, const int* __restrict__ high_ask_px,
    const long long* __restrict__ ts, const long long* __restrict__ ts_event, const long long* __restrict__ fee_cents,
    const int* __restrict__ place, const unsigned char* __restrict__ session_end, const float* __restrict__ scales,
    const long long* __restrict__ actions, const signed char* __restrict__ entry_signs,
    const long long* __restrict__ step_at, long long step, long long* acct_step, long long* acct_row,
    bool* acct_episode_start, long long* acct_episode_age, bool* acct_ended, long long* acct_side,
    long long* acct_realised_cents, long long* acct_equity_cents, long long* acct_phase_realised_cents,
    long long* acct_cash_cents, long long* acct_mark_half_ticks, bool* acct_mark_valid, long long* acct_last_bid,
    long long* acct_last_ask, long long* acct_loss_streak, long long* acct_flat_steps, long long* acct_hold_steps,
    long long* pyramid_units_count, unsigned char* unit_active, long long* unit_lots, long long* unit_entry_lots,
    long long* unit_entry_step, long long* unit_entry_ts, long long* unit_entry_tick_lots,
    long long* unit_open_tick_lots, long long* unit_entry_fee_cents, long long* unit_open_fee_cents,
    long long* unit_entry_action, signed char* unit_entry_signs, float* unit_initial_r, float* unit_trail_distance,
    long long* unit_best_px, bool* unit_stop_triggered, int* acct_taken_bid_px, int* acct_taken_bid_lots,
    int* acct_taken_bid_sz, int* acct_taken_ask_px, int* acct_taken_ask_lots, int* acct_taken_ask_sz,
    long long* acct_pending_action, signed char* acct_pending_signs, long long* ints, bool* flags, double* touch_take,
    long long* trades, unsigned char* trade_mask, float* seen, unsigned char* legal, long long accounts,
    long long levels, long long absent, long long tick_cents, long long max_units, long long latency,
    long long min_hold, long long episode_length, long long start_equity, long long lots_small, long long lots_large,
    float initial_r, float distance, float tighten, float loosen, float least, float most, long long phase_end,
    long long drain)
{
    __shared__ int taken[2 * LEVELS * THREADS];
    __shared__ float seen_here[SEEN * THREADS];
    __shared__ int bytes_here[(PHASES * UNITS + SEEN) * THREADS / 4];  // masks of trades, then of actions
    i64 first = (i64)blockIdx.x * blockDim.x, i = first + threadIdx.x;
    int t = threadIdx.x, rows = PHASES * (int)max_units;
    unsigned char *mask_here = (unsigned char*)bytes_here, *legal_here = mask_here + PHASES * UNITS * THREADS;
    Market m{bid_px, ask_px, bid_sz, ask_sz, low_bid_px, high_ask_px, place, ts, ts_event, fee_cents, levels,
             tick_cents, (int)absent};
    Settings s{{max_units, min_hold, episode_length, start_equity, scales}, latency, tick_cents, (int)lots_small,
               (int)lots_large, initial_r, distance, tighten, loosen, least, most};
    Slots slots{unit_lots, unit_entry_lots, unit_entry_step, unit_entry_ts, unit_entry_tick_lots, unit_open_tick_lots,
                unit_entry_fee_cents, unit_open_fee_cents, unit_entry_action, unit_best_px, unit_entry_signs,
                unit_initial_r, unit_trail_distance, unit_stop_triggered, unit_active};
    i64 now = step_at ? *step_at : step;
    if (i == 0) *acct_step = now + 1;
    if (i < accounts) {
        // What every account needs, before the first store.
        i64 anchor = acct_row[i], row = drain ? anchor : anchor + 1, action = actions[i], age = acct_episode_age[i];
        i64 realised = acct_realised_cents[i], equity_before = acct_equity_cents[i], mark_before = acct_mark_half_ticks[i];
        i64 phase_realised = acct_phase_realised_cents[i], flat = acct_flat_steps[i], hold = acct_hold_steps[i];
        i64 last_bid = acct_last_bid[i], last_ask = acct_last_ask[i];
        bool mark_known = acct_mark_valid[i], started = acct_episode_start[i];
        Account a{};
        a.account = i, a.row = row, a.step = now, a.side = (int)acct_side[i], a.streak = acct_loss_streak[i];
        int here = place[anchor], there = place[row], bid = bid_px[row * levels], ask = ask_px[row * levels];
        int live[2] = {0, 0};
#pragma unroll 5
        for (int l = 0; l < (int)levels; ++l)
            live[0] |= acct_taken_bid_lots[i * levels + l], live[1] |= acct_taken_ask_lots[i * levels + l];
        if (a.side != 0) {
            load(a.held, slots, i * max_units, (int)pyramid_units_count[i]);
            EACH_UNIT(u) if (u < a.held.number) {
                a.held.open_fee[u] = unit_open_fee_cents[i * max_units + u];
                a.held.triggered[u] = unit_stop_triggered[i * max_units + u];
            }
        }
        int *bid_taken = taken + t, *ask_taken = taken + LEVELS * THREADS + t;
        if (live[0]) {
            line_up(bid_taken, bid_px + row * levels, bid_sz + row * levels, acct_taken_bid_px + i * levels,
                    acct_taken_bid_lots + i * levels, acct_taken_bid_sz + i * levels, (int)levels);
            a.touched |= 1u;
        }
        if (live[1]) {
            line_up(ask_taken, ask_px + row * levels, ask_sz + row * levels, acct_taken_ask_px + i * levels,
                    acct_taken_ask_lots + i * levels, acct_taken_ask_sz + i * levels, (int)levels);
            a.touched |= 2u;
        }
        // The book, and what is due on it.
        bool two_sided = bid != m.absent && ask != m.absent;
        a.sound = two_sided && bid < ask;
        a.mark = two_sided ? (i64)bid + ask : mark_before;
        a.last_bid = a.sound ? bid : last_bid, a.last_ask = a.sound ? ask : last_ask;
        a.flat_between = a.side == 0;
        unsigned may = legal_actions(a.held, a.side, now, here & 1, s.rules);
        bool is_legal = action >= 0 && action < ACTIONS && (may >> action & 1);
        i64 executed = is_legal && !drain ? action : HOLD, due = executed;
        signed char signs[3] = {entry_signs[3 * i], entry_signs[3 * i + 1], entry_signs[3 * i + 2]};
        if (latency > 1 && !drain) {
            i64 wait = latency - 1, *queue = acct_pending_action + i * wait;
            signed char* queue_signs = acct_pending_signs + 3 * i * wait;
            due = queue[0];
            for (i64 w = 0; w < wait; ++w) queue[w] = w + 1 < wait ? queue[w + 1] : executed;
            for (int k = 0; k < 3; ++k) {
                signed char given = signs[k];
                signs[k] = queue_signs[k];
                for (i64 w = 0; w < wait; ++w) queue_signs[3 * w + k] = w + 1 < wait ? queue_signs[3 * w + 3 + k] : given;
            }
        }
        i64 lots_before = a.side * lots_of(a.held), units_before = a.held.number;
        i64 equity = 0;
        int reason = NONE, single = 0, added = 0, tightened = 0, loosened = 0;
        bool fired = false, reached = false;
#pragma unroll 1
        for (int phase = drain ? FORCED : STOPS; phase < PHASES; ++phase) {
            Order order;
            if (phase == STOPS) fired = stops(a, order, m);
            else if (phase == ORDER) policy(a, order, (int)due, s);
            else {
                equity = start_equity + realised + a.realised + open_cents(a, tick_cents);
                reason = end_reason(equity <= 0, anchor, here, age, phase_end, drain, session_end, s);
                no_order(order, -a.side, true);
                if (reason) forced(a, order);
            }
            if (order.total > 0) {
                Filled filled;
                i64 decided = phase == ORDER ? (row < latency ? 0 : row - latency) : anchor;
                int orders = a.tally.orders, before = a.held.number;
                send(a, order, filled, m, order.side > 0 ? ask_taken : bid_taken, decided, phase == STOPS);
                if (phase == ORDER) reached = a.tally.orders > orders;
                if (order.opens) {
                    if (filled.lots[0] > 0) {
                        open(a, filled, slots, order.side, {due, ts[row], fee_cents[row], initial_r, distance, signs},
                             max_units);
                        added = before > 0;
                    }
                } else {
                    int why = phase == STOPS ? TRAIL : phase == ORDER ? POLICY : reason;
                    int closed = close(a, filled, slots, m, phase, why, phase == STOPS ? HOLD : due, max_units, trades);
                    if (phase == STOPS || (phase == ORDER && (due == HALF_LONG || due == HALF_SHORT))) single += closed;
                }
            }
            if (phase == ORDER && (due == TIGHTEN || due == LOOSEN))
                move_trails(a.held, due == TIGHTEN ? tighten : loosen, s, tightened, loosened);
        }
        bool followed = follow(a);
        i64 opened_cents = open_cents(a, tick_cents);
        equity = start_equity + realised + a.realised + opened_cents;
        // The outcome.
        const Tally& c = a.tally;
        i64 change = equity - equity_before, lots = (i64)a.side * lots_of(a.held);
        i64* out = ints + i;
        out[ANCHOR * accounts] = anchor, out[NEXT_ROW * accounts] = row, out[AGE * accounts] = age;
        out[EXECUTED * accounts] = executed, out[EQUITY_CHANGE * accounts] = change;
        out[CORE * accounts] = change + c.fee, out[FEES * accounts] = c.fee, out[REALISED * accounts] = a.realised;
        out[CASH_CHANGE * accounts] = c.cash, out[EPISODE_EQUITY * accounts] = equity;
        out[PHASE_EQUITY * accounts] = phase_realised + a.realised + opened_cents, out[OPEN * accounts] = opened_cents;
        out[MARK * accounts] = a.mark, out[MARK_CHANGE * accounts] = mark_known ? a.mark - mark_before : 0;
        out[END_REASON * accounts] = reason, out[LOTS_BEFORE * accounts] = lots_before;
        out[UNITS_BEFORE * accounts] = units_before, out[LOTS_AFTER * accounts] = lots;
        out[ORDERS * accounts] = c.orders, out[POLICY_ORDERS * accounts] = reached, out[FILLS * accounts] = c.fills;
        out[FILL_LOTS * accounts] = c.fill_lots, out[BUY_LOTS * accounts] = c.buy_lots;
        out[REJECTED * accounts] = c.rejected, out[CANCELLED * accounts] = c.cancelled;
        out[FORCED_REST * accounts] = c.forced_rest, out[LEVELS_MAX * accounts] = c.levels_max;
        out[SLIPPAGE * accounts] = c.slippage, out[TOUCH_FILLS * accounts] = c.touch_fills;
        out[LAG * accounts] = c.lag, out[UNITS_ADDED * accounts] = added, out[CLOSED_SINGLY * accounts] = single;
        out[TIGHTENED * accounts] = tightened, out[LOOSENED * accounts] = loosened;
        bool *flag = flags + i, terminated = reason == SESSION || reason == BLOWN;
        flag[EPISODE_START * accounts] = started, flag[ILLEGAL * accounts] = !is_legal && !drain;
        flag[INEFFECTIVE * accounts] = due != HOLD && !reached && tightened + loosened == 0;
        flag[TERMINATED * accounts] = terminated, flag[TRUNCATED * accounts] = reason != NONE && !terminated;
        flag[TRADE_CLOSED * accounts] = a.trades != 0;
        touch_take[i] = c.touch_take;
        for (int r = 0; r < rows; ++r) mask_here[t * rows + r] = a.trades >> r & 1;
        // The state.
        hold = a.flat_between ? 0 : hold + 1;
        store(a, slots, max_units, followed, fired, tightened + loosened > 0);
        acct_row[i] = row, acct_episode_age[i] = age + 1, acct_equity_cents[i] = equity;
        acct_flat_steps[i] = a.side == 0 ? flat + 1 : 0, acct_hold_steps[i] = hold;
        acct_ended[i] = reason != NONE;
        if (started) acct_episode_start[i] = false;
        if (a.parts || a.opened) acct_side[i] = a.side, pyramid_units_count[i] = a.held.number;
        if (c.cash) acct_cash_cents[i] += c.cash;
        if (a.realised) acct_realised_cents[i] = realised + a.realised;
        if (a.realised) acct_phase_realised_cents[i] = phase_realised + a.realised;
        if (a.parts) acct_loss_streak[i] = a.streak;
        if (a.mark != mark_before) acct_mark_half_ticks[i] = a.mark;
        if (two_sided && !mark_known) acct_mark_valid[i] = true;
        if (a.last_bid != last_bid) acct_last_bid[i] = a.last_bid;
        if (a.last_ask != last_ask) acct_last_ask[i] = a.last_ask;
        if (a.touched & 1u)
            remember(bid_taken, bid_px + row * levels, bid_sz + row * levels, acct_taken_bid_px + i * levels,
                     acct_taken_bid_lots + i * levels, acct_taken_bid_sz + i * levels, m);
        if (a.touched & 2u)
            remember(ask_taken, ask_px + row * levels, ask_sz + row * levels, acct_taken_ask_px + i * levels,
                     acct_taken_ask_lots + i * levels, acct_taken_ask_sz + i * levels, m);
        // What the account sees now.
        may = legal_actions(a.held, a.side, now + 1, there & 1, s.rules);
        for (int k = 0; k < ACTIONS; ++k) legal_here[t * ACTIONS + k] = may >> k & 1;
        see(a.held, a.side, now + 1, a.mark, hold, equity, a.streak, there >> 1, age + 1, s.rules, seen_here + t * SEEN);
    }
    __syncthreads();
    int here = accounts - first < blockDim.x ? (int)(accounts - first) : blockDim.x;
    put_bytes(trade_mask + first * rows, mask_here, here * rows);
    put_bytes(legal + first * ACTIONS, legal_here, here * ACTIONS);
    for (int w = t; w < here * SEEN; w += blockDim.x) seen[first * SEEN + w] = seen_here[w];
}

// --- the next episode -----------------------------------------------------------------------------

__device__ static unsigned int philox4x32(unsigned int c0, unsigned int c1, unsigned int c2, unsigned int c3,
                                          unsigned int k0, unsigned int k1)  // Salmon et al. 2011; output word 0
{
    for (int round = 0; round < 10; ++round) {
        unsigned long long p0 = 0xD2511F53ull * c0, p1 = 0xCD9E8D57ull * c2;
        c0 = (unsigned int)(p1 >> 32) ^ c1 ^ k0;
        c1 = (unsigned int)p1;
        c2 = (unsigned int)(p0 >> 32) ^ c3 ^ k1;
        c3 = (unsigned int)p0;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    return c0;
}

// Ended accounts, flat, become new ones where their next episode starts; the others only have their flag taken down.
// starts: rows drawn from by (key, purpose, step + 1, account), or null: then the account goes on at next_anchor of
// its row where that lies ahead and not past its last one. Writes what the new account sees.
extern "C" __global__ void account_advance(
    const int* __restrict__ bid_px, const int* __restrict__ ask_px, const int* __restrict__ place,
    const float* __restrict__ scales, const long long* __restrict__ starts, long long n_starts,
    const long long* __restrict__ next_anchor, const long long* __restrict__ last_anchor, long long purpose,
    long long key0, long long key1, const long long* __restrict__ step_at, long long step, long long* acct_row,
    bool* acct_episode_start, long long* acct_episode_age, bool* acct_ended, long long* acct_realised_cents,
    long long* acct_equity_cents, long long* acct_mark_half_ticks, bool* acct_mark_valid, long long* acct_last_bid,
    long long* acct_last_ask, long long* acct_loss_streak, long long* acct_hold_steps, int* acct_taken_bid_px,
    int* acct_taken_bid_lots, int* acct_taken_bid_sz, int* acct_taken_ask_px, int* acct_taken_ask_lots,
    int* acct_taken_ask_sz, long long* acct_pending_action, signed char* acct_pending_signs, float* seen,
    unsigned char* legal, long long accounts, long long levels, long long absent, long long max_units,
    long long latency, long long min_hold, long long episode_length, long long start_equity)
{
    i64 i = (i64)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= accounts) return;
    bool ended = acct_ended[i];
    acct_episode_start[i] = ended;
    if (!ended) return;
    acct_ended[i] = false;
    i64 row = acct_row[i], now = (step_at ? *step_at : step) + 1;
    if (starts) {
        i64 word = philox4x32(0, (unsigned int)i, (unsigned int)now, (unsigned int)purpose, (unsigned int)key0,
                              (unsigned int)key1);
        row = starts[word * n_starts >> 32];
    } else {
        i64 target = next_anchor[row];
        if (target >= row && target <= last_anchor[i]) row = target;
    }
    int at = place[row], bid = bid_px[row * levels], ask = ask_px[row * levels];
    bool two_sided = bid != (int)absent && ask != (int)absent, sound = two_sided && bid < ask;
    i64 mark = two_sided ? (i64)bid + ask : 0;
    acct_row[i] = row;
    acct_episode_age[i] = acct_realised_cents[i] = acct_loss_streak[i] = acct_hold_steps[i] = 0;
    acct_equity_cents[i] = start_equity;
    acct_mark_half_ticks[i] = mark, acct_mark_valid[i] = two_sided;
    acct_last_bid[i] = sound ? bid : 0, acct_last_ask[i] = sound ? ask : 0;
    for (i64 l = i * levels; l < (i + 1) * levels; ++l) {
        acct_taken_bid_px[l] = acct_taken_ask_px[l] = (int)absent;
        acct_taken_bid_lots[l] = acct_taken_ask_lots[l] = acct_taken_bid_sz[l] = acct_taken_ask_sz[l] = 0;
    }
    for (i64 w = i * (latency - 1); w < (i + 1) * (latency - 1); ++w) {
        acct_pending_action[w] = HOLD;
        for (int k = 0; k < 3; ++k) acct_pending_signs[3 * w + k] = 0;
    }
    Rules rules{max_units, min_hold, episode_length, start_equity, scales};
    Held none{};
    unsigned may = legal_actions(none, 0, now, at & 1, rules);
    for (int k = 0; k < ACTIONS; ++k) legal[i * ACTIONS + k] = may >> k & 1;
    see(none, 0, now, mark, 0, start_equity, 0, at >> 1, 0, rules, seen + i * SEEN);
}

// What accounts see and may do where they stand, from the state alone.
extern "C" __global__ void account_observe(
    const int* __restrict__ place, const float* __restrict__ scales, const long long* __restrict__ acct_step,
    const long long* __restrict__ acct_row, const long long* __restrict__ acct_episode_age,
    const long long* __restrict__ acct_side, const long long* __restrict__ acct_equity_cents,
    const long long* __restrict__ acct_mark_half_ticks, const long long* __restrict__ acct_loss_streak,
    const long long* __restrict__ acct_hold_steps, const long long* __restrict__ pyramid_units_count,
    long long* unit_lots, long long* unit_entry_step, long long* unit_open_tick_lots, float* unit_trail_distance,
    long long* unit_best_px, float* seen, unsigned char* legal, long long accounts, long long max_units,
    long long min_hold, long long episode_length, long long start_equity)
{
    i64 i = (i64)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= accounts) return;
    Slots slots{};
    slots.lots = unit_lots, slots.entry_step = unit_entry_step, slots.open_tick_lots = unit_open_tick_lots;
    slots.distance = unit_trail_distance, slots.best_px = unit_best_px;
    Rules rules{max_units, min_hold, episode_length, start_equity, scales};
    Held held{};
    load(held, slots, i * max_units, (int)pyramid_units_count[i]);
    int side = (int)acct_side[i], at = place[acct_row[i]];
    i64 now = *acct_step;
    unsigned may = legal_actions(held, side, now, at & 1, rules);
    for (int k = 0; k < ACTIONS; ++k) legal[i * ACTIONS + k] = may >> k & 1;
    see(held, side, now, acct_mark_half_ticks[i], acct_hold_steps[i], acct_equity_cents[i], acct_loss_streak[i],
        at >> 1, acct_episode_age[i], rules, seen + i * SEEN);
}
