// Trading accounts on a tape of order books: a step, a seat at the next episode, an observation; one thread an account.
//
// The step does in one launch what foxhunt_assets.simulator does in torch, its twin: shift register, trailing stops,
// the policy's order, forced closes, marks, closed trades, state, and what the account sees afterwards. Money is int64
// cents, prices int32 ticks, sums int64; lots of one account fit 32 bits. Words change hands only between launches.
//
// Memory decides the speed: an account reads the units, the levels and the memory of a book side only where it has
// some, writes what changed, and leaves the words of an outcome alone that were and stay zero.

#define UNITS 4      // unit slots an account has at most
#define LEVELS 10    // levels of a book side at most
#define THREADS 64   // accounts of a block at most
#define SEEN 12      // values an account sees of itself
#define FIELDS 17    // of a trade row
#define SIDE (LEVELS * THREADS)  // words of shared memory for what accounts took of bids, then of asks
#define SIGNS 3
#define EACH_UNIT(u) _Pragma("unroll") for (int u = 0; u < UNITS; ++u)

typedef long long i64;

enum Action { SHORT_LARGE, SHORT_SMALL, HOLD, FLAT_LONG, FLAT_SHORT, LONG_SMALL, LONG_LARGE, TIGHTEN, LOOSEN, HALF_LONG,
              HALF_SHORT, ACTIONS };
enum Reason { NONE, POLICY, TRAIL, SESSION, GAP, LENGTH, BLOWN, PHASE_END };
enum Phase { STOPS, ORDER, FORCED, PHASES };
enum Stirred { TRADED = 1, MOVED = 2 };  // bits: parts of an outcome that hold something
// Rows of `ints` and `flags`, in the order of op.py.
enum Int { ANCHOR, NEXT_ROW, AGE, EXECUTED, EQUITY_CHANGE, CORE, FEES, REALISED, CASH_CHANGE, EPISODE_EQUITY,
           PHASE_EQUITY, OPEN, MARK, MARK_CHANGE, END_REASON, LOTS_BEFORE, UNITS_BEFORE, LOTS_AFTER, ORDERS,
           POLICY_ORDERS, FILLS, FILL_LOTS, BUY_LOTS, REJECTED, CANCELLED, FORCED_REST, LEVELS_MAX, SLIPPAGE,
           TOUCH_FILLS, LAG, UNITS_ADDED, CLOSED_SINGLY, TIGHTENED, LOOSENED };
enum Flag { EPISODE_START, ILLEGAL, INEFFECTIVE, TERMINATED, TRUNCATED, TRADE_CLOSED };

struct Memory {  // what accounts took of bids (0) and asks (1), [accounts, levels]
    int *px[2], *lots[2], *sz[2];
};

struct Market {
    const int *bid_px, *ask_px, *bid_sz, *ask_sz;
    const i64* facts;
    const unsigned char* session_end;
    i64 levels, tick_cents;
    int absent;
};

// Of a row, in one sector of memory: ts, ts_event, place | fee, high_ask | low_bid, each pair the high word first.
// place: 2 x rows left of the stretch, plus 1 where a whole window lies behind the row.
__device__ static i64 ts_of(const i64* facts, i64 row) { return facts[4 * row]; }
__device__ static i64 ts_event_of(const i64* facts, i64 row) { return facts[4 * row + 1]; }
__device__ static int fee_of(const i64* facts, i64 row) { return (int)facts[4 * row + 2]; }
__device__ static int place_of(const i64* facts, i64 row) { return (int)(facts[4 * row + 2] >> 32); }
__device__ static int extreme_of(const i64* facts, i64 row, int side)
{
    i64 both = facts[4 * row + 3];
    return (int)(side > 0 ? both : both >> 32);
}

struct State {  // of accounts
    i64 *row, *age, *side, *realised, *equity, *phase_realised, *cash, *mark, *last_bid, *last_ask, *streak, *flat,
        *hold, *units;
    bool *started, *ended, *mark_valid;
};

struct Slots {  // of units, [accounts, max_units]
    i64 *lots, *entry_lots, *entry_step, *entry_ts, *entry_tick_lots, *open_tick_lots, *entry_fee, *open_fee,
        *entry_action, *best_px;
    signed char* signs;
    float *initial_r, *distance;
    bool* triggered;
    unsigned char* active;
};

struct Settings {
    int max_units, min_hold, latency, lots_small, lots_large;
    i64 episode_length, start_equity;
    float initial_r, distance, tighten, loosen, least, most;
    bool phase_end, drain;
    const float* scales;
};

struct Outcome {
    i64 *ints, *trades, accounts;
    bool* flags;
    double* touch_take;
    unsigned char* stirred;
};

// The open units of an account, the oldest first. Of the buffers they hold what every step needs; the rest stays in
// the slot (four bits of `slots` each) where it was until `store` sorts it.
struct Held {
    int number, lots[UNITS], age[UNITS], best_px[UNITS];
    float distance[UNITS];
    unsigned slots, triggered;
    i64 open_tick_lots, open_fee;  // of all
};

struct Order {
    int side, total;
    bool force, opens, stop;
    int want[UNITS];  // lots of each unit it may close; the lots of an order that opens one stand in the first place
};

struct Filled {
    int lots[UNITS];
    i64 tick_lots[UNITS];
};

struct Tally {
    int orders, fills, fill_lots, buy_lots, rejected, cancelled, forced_rest, levels_max, touch_fills, added, singly,
        tightened, loosened;
    i64 slippage, lag, fee, cash;
    double touch_take;
};

struct Account {
    i64 account, anchor, row, step, realised, streak, equity_before, realised_before, phase_realised, open_cents;
    i64 age, mark, mark_before, flat, hold, cash;
    int side, last_bid, last_ask, extreme, here, there, due, reason;
    unsigned trades, touched, stirred;  // a bit a trade row; a bit a book side whose memory is in shared memory
    bool sound, two_sided, mark_known, started, flat_between, parts, emptied, opened, followed, fired, reached;
    signed char signs[SIGNS];
    Held held;
    Tally tally;
};

__device__ static i64 floor_div(i64 a, i64 b)  // b > 0
{
    i64 q = a / b;
    return q * b > a ? q - 1 : q;
}

__device__ static i64 stop_px(const Held& h, int u, int side)
{
    return h.best_px[u] - side * (i64)ceilf(h.distance[u]);
}

__device__ static int slot_of(const Held& h, int u) { return h.slots >> 4 * u & 15; }

__device__ static int lots_of(const Held& h)
{
    int lots = 0;
    EACH_UNIT(u) if (u < h.number) lots += h.lots[u];
    return lots;
}

// at: first slot of the account.
__device__ static void load(Held& h, const Slots& s, i64 at, i64 step, int max_units)
{
    h.slots = 0x3210;
    EACH_UNIT(u) if (u < max_units) {  // empty slots are zeros of the same sector: no load waits for another
        h.lots[u] = (int)s.lots[at + u];
        h.age[u] = (int)(step - s.entry_step[at + u]);
        h.best_px[u] = (int)s.best_px[at + u];
        h.distance[u] = s.distance[at + u];
        h.open_tick_lots += s.open_tick_lots[at + u];
    }
    EACH_UNIT(u) h.number += h.lots[u] > 0;
}

// A bit an action: which the account may choose `later` steps from now. A whole close is legal when every unit was
// held min_hold steps, a half close when the oldest ones that it would touch were.
__device__ static unsigned legal_actions(const Held& h, int side, int later, bool warm, const Settings& s)
{
    if (!warm) return 1u << HOLD;
    bool close = true, halve = true, room = h.number < s.max_units, lng = side > 0, shrt = side < 0;
    int before = 0, half = (lots_of(h) + 1) / 2;
    EACH_UNIT(u) if (u < h.number) {
        bool young = h.age[u] + later < s.min_hold;
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

// What an account sees of itself, float32(value) / scale each, in the order of foxhunt_assets.simulator.observe.
__device__ static void see(const Held& h, int side, int later, i64 mark, i64 age, i64 equity, i64 streak, i64 rows_left,
                           i64 episode_age, const Settings& s, float* out)
{
    int lots = lots_of(h), hold = 0;
    i64 length = s.episode_length - episode_age;
    float mid = (float)mark / 2.0f, nearest = 0.0f, open = 0.0f;
    EACH_UNIT(u) if (u < h.number) {
        int left = s.min_hold - (h.age[u] + later);
        if (left > hold) hold = left;
        float gap = (float)side * (mid - (float)stop_px(h, u, side));
        if (u == 0 || gap < nearest) nearest = gap;
    }
    if (lots > 0) open = (float)side * (mid - (float)h.open_tick_lots / (float)lots);
    float values[SEEN] = {
        (float)(side * lots), (float)h.number, (float)age, open, nearest, (float)(equity - s.start_equity), 0.0f,
        (float)streak, 0.0f, (float)hold, (float)s.max_units, (float)(rows_left < length ? rows_left : length),
    };
#pragma unroll
    for (int k = 0; k < SEEN; ++k) out[k] = values[k] / s.scales[k];
}

__device__ static void put_legal(unsigned may, unsigned char* out)
{
    for (int k = 0; k < ACTIONS; ++k) out[k] = may >> k & 1;
}

// --- orders ---------------------------------------------------------------------------------------

// What the account took at a price and size, whatever its rank was, is gone from this book too.
__device__ static void line_up(int* taken, const Market& m, const Memory& memory, int side, i64 row, i64 account)
{
    const int *px = (side ? m.ask_px : m.bid_px) + row * m.levels, *sz = (side ? m.ask_sz : m.bid_sz) + row * m.levels;
    const int *old_px = side ? memory.px[1] : memory.px[0], *old_sz = side ? memory.sz[1] : memory.sz[0];
    const int* old_lots = side ? memory.lots[1] : memory.lots[0];
    int price[LEVELS], size[LEVELS], levels = (int)m.levels;
    i64 at = account * m.levels;
#pragma unroll
    for (int l = 0; l < LEVELS; ++l) if (l < levels) price[l] = px[l], size[l] = sz[l], taken[l * THREADS] = 0;
#pragma unroll 1
    for (int k = 0; k < levels; ++k) {
        int lots = old_lots[at + k];
        if (lots == 0) continue;
        int then_px = old_px[at + k], then_sz = old_sz[at + k];
#pragma unroll
        for (int l = 0; l < LEVELS; ++l)
            if (l < levels && price[l] == then_px && size[l] == then_sz) taken[l * THREADS] += lots;
    }
}

// A side's memory as the step leaves it: a place where nothing is taken holds nothing.
__device__ static void remember(const int* taken, const Market& m, const Memory& memory, int side, i64 row, i64 account)
{
    const int *px = (side ? m.ask_px : m.bid_px) + row * m.levels, *sz = (side ? m.ask_sz : m.bid_sz) + row * m.levels;
    int *to_px = side ? memory.px[1] : memory.px[0], *to_sz = side ? memory.sz[1] : memory.sz[0];
    int* to_lots = side ? memory.lots[1] : memory.lots[0];
    i64 at = account * m.levels;
    for (int l = 0; l < (int)m.levels; ++l) {
        int lots = taken[l * THREADS];
        to_lots[at + l] = lots;
        to_px[at + l] = lots > 0 ? px[l] : m.absent;
        to_sz[at + l] = lots > 0 ? sz[l] : 0;
    }
}

// Lots at one place of the book go to the units in turn, the oldest first; a stop fills no better than its price.
__device__ static void deal(Order& order, Filled& filled, int lots, i64 price, const Held& h)
{
    EACH_UNIT(u) {
        int part = lots < order.want[u] ? lots : order.want[u];
        i64 px = price;
        if (order.stop && part > 0) {
            i64 stop = stop_px(h, u, -order.side);
            if (order.side > 0 ? stop > px : stop < px) px = stop;
        }
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
    if (!a.sound) depth = 0, deepest = 1, last_px = order.side > 0 ? a.last_ask : a.last_bid;
#pragma unroll 1
    for (int l = 0; l <= depth && left > 0; ++l) {
        int got = 0;
        if (l < depth) {
            int price = px[l], had = taken[l * THREADS], there = sz[l] - had;
            if (price == m.absent) continue;
            got = there < left ? there : left;
            deepest = l + 1, last_px = price;
            taken[l * THREADS] = had + got;
        } else if (order.force) {
            got = left;
            a.tally.forced_rest += got;
        }
        if (got == 0) continue;
        reached = deepest;
        left -= got;
        deal(order, filled, got, last_px, a.held);
    }
    if (reached > a.tally.levels_max) a.tally.levels_max = reached;
    return order.total - left;
}

// Send an order to the book and count what came of it. decided: row of the decision. Of stops each unit is an order.
__device__ static void send(Account& a, Order& order, Filled& filled, const Market& m, int* taken, i64 decided)
{
    Tally& t = a.tally;
    int orders = 0, fills = 0;
    EACH_UNIT(u) filled.lots[u] = 0, filled.tick_lots[u] = 0, orders += order.want[u] > 0;
    if (!order.stop) orders = 1;
    if (!a.sound && !order.force) {
        t.rejected += orders;
        return;
    }
    unsigned side = order.side > 0 ? 2 : 1;
    if (!(a.touched & side)) {
        for (int l = 0; l < (int)m.levels; ++l) taken[l * THREADS] = 0;
        a.touched |= side;
    }
    i64 fee_cents = fee_of(m.facts, a.row), lag = ts_event_of(m.facts, a.row) - ts_event_of(m.facts, decided);
    int touch = (order.side > 0 ? m.ask_sz : m.bid_sz)[a.row * m.levels], lots = take(a, order, filled, m, taken);
    i64 tick_lots = 0, fee = lots * fee_cents;
    EACH_UNIT(u) tick_lots += filled.tick_lots[u], fills += filled.lots[u] > 0;
    if (!order.stop) fills = lots > 0;
    t.orders += orders;
    t.fills += fills;
    t.fill_lots += lots;
    if (order.side > 0) t.buy_lots += lots;
    t.cancelled += order.total - lots;
    t.slippage += order.side * (2 * tick_lots - lots * a.mark);
    t.lag += fills * lag;
    t.fee += fee;
    t.cash += -order.side * tick_lots * m.tick_cents - fee;
    if (a.sound && touch > 0) t.touch_fills += fills, t.touch_take += (double)lots / (double)touch;
}

// --- units ----------------------------------------------------------------------------------------

__device__ static void move_down(Held& h, int u)  // the unit in place u + 1 moves to u, which is empty
{
    unsigned both = (h.slots >> 4 * u ^ h.slots >> 4 * (u + 1)) & 15;
    h.slots ^= both << 4 * u | both << 4 * (u + 1);
    h.triggered = (h.triggered & ~(3u << u)) | (h.triggered >> 1 & 1u << u);
    h.lots[u] = h.lots[u + 1], h.lots[u + 1] = 0;
    h.age[u] = h.age[u + 1];
    h.best_px[u] = h.best_px[u + 1];
    h.distance[u] = h.distance[u + 1];
}

__device__ static void compact(Held& h)  // open units to the front, in order of age
{
#pragma unroll
    for (int last = UNITS - 1; last > 0; --last)
#pragma unroll
        for (int u = 0; u < last; ++u)
            if (u + 1 < h.number && h.lots[u] == 0 && h.lots[u + 1] > 0) move_down(h, u);
    int number = 0;
    EACH_UNIT(u) number += u < h.number && h.lots[u] > 0;
    h.number = number;
}

template <class T> __device__ static T pick(const T (&of)[UNITS], int u)  // of[u] from registers
{
    T found = of[0];
    EACH_UNIT(k) if (k == u) found = of[k];
    return found;
}

// Book what was filled of each unit: a trade row each, its share of the entry's money, the lots that are left. The
// last part of a unit gets what is left of its entry, so that parts add up. Returns units closed if lots are left.
// Accounts of a warp go through their units together, whichever those are.
__device__ static int close(Account& a, const Filled& filled, const Slots& s, const Market& m, int phase, int reason,
                            int max_units, i64* trades)
{
    Held& h = a.held;
    int before = h.number;
#pragma unroll 1
    for (int u = 0; u < before; ++u) {
        while (u < before && pick(filled.lots, u) == 0) ++u;
        if (u == before) break;
        int taken = pick(filled.lots, u), lots = pick(h.lots, u), place = phase * max_units + u;
        i64 at = a.account * max_units + slot_of(h, u), entry = s.open_tick_lots[at], fee = s.open_fee[at];
        if (taken < lots) {
            i64 of = s.entry_lots[at], open_entry = entry, open_fee = fee;
            entry = floor_div(s.entry_tick_lots[at] * taken, of), fee = floor_div(s.entry_fee[at] * taken, of);
            s.open_tick_lots[at] = open_entry - entry, s.open_fee[at] = open_fee - fee;
        }
        i64 fees = fee + taken * (i64)fee_of(m.facts, a.row), exit = pick(filled.tick_lots, u);
        i64 pnl = a.side * (exit - entry) * m.tick_cents - fees;
        i64* row = trades + (a.account * PHASES * max_units + place) * FIELDS;
        row[0] = a.account, row[1] = a.side, row[2] = taken, row[3] = a.step - pick(h.age, u), row[4] = a.step;
        row[5] = s.entry_ts[at], row[6] = ts_of(m.facts, a.row), row[7] = entry, row[8] = exit;
        row[9] = fees, row[10] = pnl, row[11] = reason, row[12] = s.entry_action[at];
        row[13] = phase == STOPS ? HOLD : a.due;
        for (int k = 0; k < SIGNS; ++k) row[14 + k] = s.signs[SIGNS * at + k];
        a.trades |= 1u << place;
        a.realised += pnl;
        a.streak = pnl > 0 ? 0 : a.streak + 1;
        EACH_UNIT(k) if (k == u) h.lots[k] -= taken;
        h.open_tick_lots -= entry, h.open_fee -= fee;
        a.parts = true;
        a.emptied |= taken == lots;
    }
    if (a.emptied) compact(h);
    if (h.number > 0) return before - h.number;
    a.side = 0;
    a.flat_between = true;
    return 0;
}

__device__ static void open(Account& a, const Filled& filled, const Slots& s, int side, const Market& m,
                            const Settings& set)
{
    Held& h = a.held;
    int n = h.number, lots = filled.lots[0], free = 0;
    EACH_UNIT(k) {  // as many rounds as units could lie in the way
        bool used = false;
        EACH_UNIT(u) used |= u < n && slot_of(h, u) == free;
        free += used;
    }
    i64 at = a.account * set.max_units + free, tick_lots = filled.tick_lots[0];
    i64 fee = lots * (i64)fee_of(m.facts, a.row);
    s.entry_lots[at] = lots, s.entry_step[at] = a.step, s.entry_ts[at] = ts_of(m.facts, a.row);
    s.entry_tick_lots[at] = s.open_tick_lots[at] = tick_lots, s.entry_fee[at] = s.open_fee[at] = fee;
    s.entry_action[at] = a.due, s.initial_r[at] = set.initial_r;
    for (int k = 0; k < SIGNS; ++k) s.signs[SIGNS * at + k] = a.signs[k];
    EACH_UNIT(u) if (u == n) {
        h.lots[u] = lots, h.age[u] = 0, h.best_px[u] = side > 0 ? a.last_bid : a.last_ask;
        h.distance[u] = set.distance;
        h.slots = (h.slots & ~(15u << 4 * u)) | (unsigned)free << 4 * u;
        h.triggered &= ~(1u << u);
    }
    h.open_tick_lots += tick_lots, h.open_fee += fee;
    h.number = n + 1;
    a.side = side;
    a.opened = true;
    a.tally.added = n > 0;
}

__device__ static i64 open_cents(const Account& a, i64 tick_cents)  // half a cent is rounded down
{
    i64 value = ((i64)a.side * lots_of(a.held) * a.mark * tick_cents) >> 1;
    return value - a.side * a.held.open_tick_lots * tick_cents - a.held.open_fee;
}

// A column of the buffers sorted as the units are, empty slots zero. width: words a slot has, k: which one.
template <class T>
__device__ static void sort(T* column, i64 at, const Held& h, int max_units, int width = 1, int k = 0)
{
    T value[UNITS];
    EACH_UNIT(u) value[u] = u < h.number ? column[(at + slot_of(h, u)) * width + k] : T();
    EACH_UNIT(u) if (u < max_units) column[(at + u) * width + k] = value[u];
}

template <class T, class V>
__device__ static void put(T* column, i64 at, const V (&value)[UNITS], const Held& h, int max_units)
{
    EACH_UNIT(u) if (u < max_units) column[at + u] = u < h.number ? (T)value[u] : T();
}

__device__ static void store(const Account& a, const Slots& s, int max_units)
{
    const Held& h = a.held;
    i64 at = a.account * max_units;
    bool moved = a.emptied | a.opened;
    if (moved | a.parts) put(s.lots, at, h.lots, h, max_units);
    if (moved | a.followed) put(s.best_px, at, h.best_px, h, max_units);
    if (moved | (a.tally.tightened + a.tally.loosened > 0)) put(s.distance, at, h.distance, h, max_units);
    if (moved | a.fired) EACH_UNIT(u) if (u < max_units) s.triggered[at + u] = u < h.number && (h.triggered >> u & 1);
    if (moved) EACH_UNIT(u) if (u < max_units) s.active[at + u] = u < h.number;
    if (!a.emptied) return;
#pragma unroll 1
    for (int c = 0; c < 8; ++c) {  // one body of code, whichever the column
        i64* column = c == 0 ? s.entry_lots : c == 1 ? s.entry_step : c == 2 ? s.entry_ts : c == 3 ? s.entry_tick_lots
                    : c == 4 ? s.open_tick_lots : c == 5 ? s.entry_fee : c == 6 ? s.open_fee : s.entry_action;
        sort(column, at, h, max_units);
    }
    sort(s.initial_r, at, h, max_units);
#pragma unroll 1
    for (int k = 0; k < SIGNS; ++k) sort(s.signs, at, h, max_units, SIGNS, k);
}

// --- a step ---------------------------------------------------------------------------------------

__device__ static void no_order(Order& order, int side)
{
    order.side = side, order.total = 0, order.force = order.opens = order.stop = false;
    EACH_UNIT(u) order.want[u] = 0;
}

// Stops touched by the interval's lowest bid or highest ask, or before and not yet filled.
__device__ static void stops(Account& a, Order& order, const Market& m)
{
    Held& h = a.held;
    no_order(order, -a.side);
    order.stop = true;
    unsigned before = h.triggered;
    EACH_UNIT(u) if (u < h.number) {
        i64 stop = stop_px(h, u, a.side);
        if (a.extreme != m.absent && (a.side > 0 ? a.extreme <= stop : a.extreme >= stop)) h.triggered |= 1u << u;
        if (h.triggered >> u & 1) order.want[u] = h.lots[u], order.total += h.lots[u];
    }
    a.fired = h.triggered != before;
}

// The order of the action due on the account as it is now.
__device__ static void policy(Account& a, Order& order, const Settings& s)
{
    const Held& h = a.held;
    int due = a.due, wanted = (due == LONG_SMALL || due == LONG_LARGE) - (due == SHORT_SMALL || due == SHORT_LARGE);
    bool enters = wanted != 0 && (a.side == 0 || a.side == wanted), lng = a.side > 0, shrt = a.side < 0;
    bool closes = (wanted != 0 && !enters) || (due == FLAT_LONG && lng) || (due == FLAT_SHORT && shrt);
    bool halves = (due == HALF_LONG && lng) || (due == HALF_SHORT && shrt);
    no_order(order, enters ? wanted : -a.side);
    if (enters && h.number < s.max_units) {
        order.opens = true;
        order.total = order.want[0] = due == LONG_LARGE || due == SHORT_LARGE ? s.lots_large : s.lots_small;
    } else if (closes || halves) {
        int all = lots_of(h);
        order.total = closes ? all : (all + 1) / 2;
        EACH_UNIT(u) if (u < h.number) order.want[u] = h.lots[u];
    }
    bool intent = due != HOLD && due != TIGHTEN && due != LOOSEN;
    a.tally.rejected += intent && order.total == 0;
}

__device__ static void forced(Account& a, Order& order)
{
    no_order(order, -a.side);
    order.force = true;
    EACH_UNIT(u) if (u < a.held.number) order.want[u] = a.held.lots[u], order.total += a.held.lots[u];
}

__device__ static void move_trails(Account& a, const Settings& s)
{
    if (a.due != TIGHTEN && a.due != LOOSEN) return;
    float factor = a.due == TIGHTEN ? s.tighten : s.loosen;
    EACH_UNIT(u) if (u < a.held.number) {
        float old = a.held.distance[u], now = old * factor;
        now = now < s.least ? s.least : now > s.most ? s.most : now;
        a.held.distance[u] = now;
        a.tally.tightened += now < old;
        a.tally.loosened += now > old;
    }
}

__device__ static void follow(Account& a)  // units follow the touch of a sound book
{
    int touch = a.side > 0 ? a.last_bid : a.last_ask;
    EACH_UNIT(u) if (a.sound && u < a.held.number) {
        bool better = a.side > 0 ? touch > a.held.best_px[u] : touch < a.held.best_px[u];
        if (better) a.held.best_px[u] = touch, a.followed = true;
    }
}

__device__ static int end_reason(const Account& a, i64 equity, const Market& m, const Settings& s)
{
    int left = a.here >> 1;
    if (!s.drain && left <= 1 && m.session_end[a.anchor + left]) return SESSION;
    if (equity <= 0) return BLOWN;
    if (!s.drain && left <= 1) return GAP;
    if (!s.drain && a.age + 1 >= s.episode_length) return LENGTH;
    return s.phase_end || s.drain ? PHASE_END : NONE;
}

// What every account needs, read before anything is written.
__device__ static void arrive(Account& a, const State& b, const Slots& slots, const Memory& memory, const Market& m,
                              const Settings& s, int* taken)
{
    i64 i = a.account;
    a.anchor = b.row[i], a.row = s.drain ? a.anchor : a.anchor + 1;
    a.side = (int)b.side[i], a.age = b.age[i], a.realised_before = b.realised[i], a.equity_before = b.equity[i];
    a.phase_realised = b.phase_realised[i], a.mark_before = b.mark[i], a.streak = b.streak[i];
    a.flat = b.flat[i], a.hold = b.hold[i], a.cash = b.cash[i];
    a.mark_known = b.mark_valid[i], a.started = b.started[i];
    i64 live[2] = {0, 0}, levels = m.levels;
    const i64 *bid_pairs = (const i64*)memory.lots[0], *ask_pairs = (const i64*)memory.lots[1];  // two levels a word
#pragma unroll 5
    for (int l = 0; l < (int)levels / 2; ++l)
        live[0] |= bid_pairs[i * levels / 2 + l], live[1] |= ask_pairs[i * levels / 2 + l];
    int bid = m.bid_px[a.row * levels], ask = m.ask_px[a.row * levels];
    a.here = place_of(m.facts, a.anchor), a.there = place_of(m.facts, a.row);
    a.extreme = extreme_of(m.facts, a.row, a.side);
    if (a.side != 0) {
        load(a.held, slots, i * s.max_units, a.step, s.max_units);
        EACH_UNIT(u) if (u < s.max_units) {
            a.held.open_fee += slots.open_fee[i * s.max_units + u];
            a.held.triggered |= (unsigned)slots.triggered[i * s.max_units + u] << u;
        }
    }
#pragma unroll 1
    for (int side = 0; side < 2; ++side)
        if (side ? live[1] : live[0]) line_up(taken + side * SIDE, m, memory, side, a.row, i), a.touched |= 1u << side;
    a.two_sided = bid != m.absent && ask != m.absent;
    a.sound = a.two_sided && bid < ask;
    a.mark = a.two_sided ? (i64)bid + ask : a.mark_before;
    a.last_bid = a.sound ? bid : (int)b.last_bid[i], a.last_ask = a.sound ? ask : (int)b.last_ask[i];
    a.flat_between = a.side == 0;
}

// Push the decision and its signs into the shift register; what is due comes out. A drain decides nothing.
__device__ static void shift(Account& a, i64 executed, const signed char* signs, i64* queue, signed char* queue_signs,
                             const Settings& s)
{
    a.due = (int)executed;
    int wait = s.latency - 1;
    for (int k = 0; k < SIGNS; ++k) a.signs[k] = signs[k];
    if (wait == 0 || s.drain) return;
    a.due = (int)queue[0];
    for (int w = 1; w < wait; ++w) queue[w - 1] = queue[w];
    queue[wait - 1] = executed;
    for (int k = 0; k < SIGNS; ++k) {
        signed char given = a.signs[k], *place = queue_signs + k;
        a.signs[k] = *place;
        for (int w = 1; w < wait; ++w, place += SIGNS) *place = place[SIGNS];
        *place = given;
    }
}

// Stops, the policy's order, forced closes: each sees what the one before left.
__device__ static void trade(Account& a, const Slots& slots, const Market& m, const Settings& s, int* taken,
                             i64* trades)
{
#pragma unroll 1
    for (int phase = s.drain ? FORCED : STOPS; phase < PHASES; ++phase) {
        Order order;
        if (phase == STOPS) stops(a, order, m);
        else if (phase == ORDER) policy(a, order, s);
        else {
            i64 equity = s.start_equity + a.realised_before + a.realised + open_cents(a, m.tick_cents);
            a.reason = end_reason(a, equity, m, s);
            if (a.reason == NONE) break;
            forced(a, order);
        }
        if (order.total > 0) {
            Filled filled;
            i64 decided = phase != ORDER ? a.anchor : a.row < s.latency ? 0 : a.row - s.latency;
            send(a, order, filled, m, order.side > 0 ? taken + SIDE : taken, decided);
            if (phase == ORDER) a.reached = a.sound;
            if (order.opens) {
                if (filled.lots[0] > 0) open(a, filled, slots, order.side, m, s);
            } else {
                int why = phase == STOPS ? TRAIL : phase == ORDER ? POLICY : a.reason;
                int closed = close(a, filled, slots, m, phase, why, s.max_units, trades);
                if (phase == STOPS || (phase == ORDER && (a.due == HALF_LONG || a.due == HALF_SHORT)))
                    a.tally.singly += closed;
            }
        }
        if (phase == ORDER) move_trails(a, s);
    }
    follow(a);
    a.open_cents = open_cents(a, m.tick_cents);
}

__device__ static void report(const Account& a, const Outcome& out, i64 executed, bool illegal, i64 lots_before,
                              i64 units_before, const Settings& s)
{
    const Tally& c = a.tally;
    i64 n = out.accounts, *ints = out.ints + a.account;
    i64 equity = s.start_equity + a.realised_before + a.realised + a.open_cents, change = equity - a.equity_before;
    ints[ANCHOR * n] = a.anchor, ints[NEXT_ROW * n] = a.row, ints[AGE * n] = a.age, ints[EXECUTED * n] = executed;
    ints[EQUITY_CHANGE * n] = change, ints[CORE * n] = change + c.fee, ints[EPISODE_EQUITY * n] = equity;
    ints[PHASE_EQUITY * n] = a.phase_realised + a.realised + a.open_cents, ints[OPEN * n] = a.open_cents;
    ints[MARK * n] = a.mark, ints[MARK_CHANGE * n] = a.mark_known ? a.mark - a.mark_before : 0;
    ints[LOTS_BEFORE * n] = lots_before, ints[UNITS_BEFORE * n] = units_before;
    ints[LOTS_AFTER * n] = a.side * lots_of(a.held);
    unsigned was = a.stirred, is = 0;
    if (c.orders || c.rejected || a.reason) is |= TRADED;
    if (c.tightened || c.loosened) is |= MOVED;
    if (was != is) out.stirred[a.account] = is;
    if ((was | is) & TRADED) {
        ints[FEES * n] = c.fee, ints[REALISED * n] = a.realised, ints[CASH_CHANGE * n] = c.cash;
        ints[END_REASON * n] = a.reason, ints[ORDERS * n] = c.orders, ints[POLICY_ORDERS * n] = a.reached;
        ints[FILLS * n] = c.fills, ints[FILL_LOTS * n] = c.fill_lots, ints[BUY_LOTS * n] = c.buy_lots;
        ints[REJECTED * n] = c.rejected, ints[CANCELLED * n] = c.cancelled, ints[FORCED_REST * n] = c.forced_rest;
        ints[LEVELS_MAX * n] = c.levels_max, ints[SLIPPAGE * n] = c.slippage, ints[TOUCH_FILLS * n] = c.touch_fills;
        ints[LAG * n] = c.lag, ints[UNITS_ADDED * n] = c.added, ints[CLOSED_SINGLY * n] = c.singly;
        out.touch_take[a.account] = c.touch_take;
    }
    if ((was | is) & MOVED) ints[TIGHTENED * n] = c.tightened, ints[LOOSENED * n] = c.loosened;
    bool *flags = out.flags + a.account, terminated = a.reason == SESSION || a.reason == BLOWN;
    flags[EPISODE_START * n] = a.started, flags[ILLEGAL * n] = illegal;
    flags[INEFFECTIVE * n] = a.due != HOLD && !a.reached && c.tightened + c.loosened == 0;
    flags[TERMINATED * n] = terminated, flags[TRUNCATED * n] = a.reason != NONE && !terminated;
    flags[TRADE_CLOSED * n] = a.trades != 0;
}

__device__ static void keep(Account& a, const State& b, const Settings& s)
{
    i64 i = a.account, equity = s.start_equity + a.realised_before + a.realised + a.open_cents;
    a.hold = a.flat_between ? 0 : a.hold + 1;
    b.row[i] = a.row, b.age[i] = a.age + 1, b.equity[i] = equity, b.ended[i] = a.reason != NONE, b.hold[i] = a.hold;
    if (a.side == 0 || a.flat) b.flat[i] = a.side == 0 ? a.flat + 1 : 0;
    if (a.started) b.started[i] = false;
    if (a.parts | a.opened) b.side[i] = a.side, b.units[i] = a.held.number;
    if (a.tally.cash) b.cash[i] = a.cash + a.tally.cash;
    if (a.realised) b.realised[i] = a.realised_before + a.realised, b.phase_realised[i] = a.phase_realised + a.realised;
    if (a.parts) b.streak[i] = a.streak;
    if (a.mark != a.mark_before) b.mark[i] = a.mark;
    if (a.two_sided && !a.mark_known) b.mark_valid[i] = true;
    if (a.sound) b.last_bid[i] = a.last_bid, b.last_ask[i] = a.last_ask;
}

// Bytes of a block's accounts from shared memory to theirs, in words of four as far as they go.
__device__ static void put_bytes(unsigned char* to, const unsigned char* from, int bytes)
{
    int words = bytes / 4;
#pragma unroll 1
    for (int w = threadIdx.x; w < words; w += blockDim.x) ((int*)to)[w] = ((const int*)from)[w];
#pragma unroll 1
    for (int b = 4 * words + threadIdx.x; b < bytes; b += blockDim.x) to[b] = from[b];
}

// step_at may be null, then step holds; acct_step is written and not read. ints, flags: [names, accounts]. Trade rows
// are written where trade_mask says that they are there, the three phases one after another. stirred: what the last
// outcome held. acct_pending_*: null at a latency of one row.
extern "C" __global__ void __launch_bounds__(THREADS, 6) account_step(
    const int* __restrict__ bid_px, const int* __restrict__ ask_px, const int* __restrict__ bid_sz,
    const int* __restrict__ ask_sz, const long long* __restrict__ facts,
    const unsigned char* __restrict__ session_end, const float* __restrict__ scales,
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
    long long* trades, unsigned char* trade_mask, unsigned char* stirred, float* seen, unsigned char* legal,
    long long accounts, long long levels, long long absent, long long tick_cents, long long max_units,
    long long latency, long long min_hold, long long episode_length, long long start_equity, long long lots_small,
    long long lots_large, float initial_r, float distance, float tighten, float loosen, float least, float most,
    long long phase_end, long long drain)
{
    __shared__ int taken_here[2 * SIDE], bytes[(PHASES * UNITS + ACTIONS) * THREADS / 4];
    __shared__ float seen_here[SEEN * THREADS];
    Market m{bid_px, ask_px, bid_sz, ask_sz, facts, session_end, levels, tick_cents, (int)absent};
    State state{acct_row, acct_episode_age, acct_side, acct_realised_cents, acct_equity_cents,
                acct_phase_realised_cents, acct_cash_cents, acct_mark_half_ticks, acct_last_bid, acct_last_ask,
                acct_loss_streak, acct_flat_steps, acct_hold_steps, pyramid_units_count, acct_episode_start,
                acct_ended, acct_mark_valid};
    Slots slots{unit_lots, unit_entry_lots, unit_entry_step, unit_entry_ts, unit_entry_tick_lots, unit_open_tick_lots,
                unit_entry_fee_cents, unit_open_fee_cents, unit_entry_action, unit_best_px, unit_entry_signs,
                unit_initial_r, unit_trail_distance, unit_stop_triggered, unit_active};
    Settings s{(int)max_units, (int)min_hold, (int)latency, (int)lots_small, (int)lots_large, episode_length,
               start_equity, initial_r, distance, tighten, loosen, least, most, phase_end != 0, drain != 0, scales};
    Memory memory{{acct_taken_bid_px, acct_taken_ask_px}, {acct_taken_bid_lots, acct_taken_ask_lots},
                  {acct_taken_bid_sz, acct_taken_ask_sz}};
    int t = threadIdx.x, rows = PHASES * s.max_units, *taken = taken_here + t;
    unsigned char *mask_here = (unsigned char*)bytes, *legal_here = mask_here + PHASES * UNITS * THREADS;
    i64 first = (i64)blockIdx.x * blockDim.x, i = first + t, now = step_at ? *step_at : step;
    if (i == 0) *acct_step = now + 1;
    if (i < accounts) {
        i64 action = actions[i];
        Account a{};
        a.account = i, a.step = now, a.stirred = stirred[i];
        arrive(a, state, slots, memory, m, s, taken);
        unsigned may = legal_actions(a.held, a.side, 0, a.here & 1, s);
        bool illegal = !s.drain && !(action >= 0 && action < ACTIONS && (may >> action & 1));
        i64 executed = s.drain || illegal ? HOLD : action, before = a.side * lots_of(a.held), units = a.held.number;
        i64 queue = i * (latency - 1);
        shift(a, executed, entry_signs + SIGNS * i, acct_pending_action + queue, acct_pending_signs + SIGNS * queue, s);
        trade(a, slots, m, s, taken, trades);
        report(a, {ints, trades, accounts, flags, touch_take, stirred}, executed, illegal, before, units, s);
        store(a, slots, s.max_units);
        keep(a, state, s);
#pragma unroll 1
        for (int side = 0; side < 2; ++side)
            if (a.touched >> side & 1) remember(taken + side * SIDE, m, memory, side, a.row, i);
        for (int r = 0; r < rows; ++r) mask_here[t * rows + r] = a.trades >> r & 1;
        put_legal(legal_actions(a.held, a.side, 1, a.there & 1, s), legal_here + t * ACTIONS);
        i64 equity = start_equity + a.realised_before + a.realised + a.open_cents;
        see(a.held, a.side, 1, a.mark, a.hold, equity, a.streak, a.there >> 1, a.age + 1, s, seen_here + t * SEEN);
    }
    __syncthreads();
    int here = accounts - first < blockDim.x ? (int)(accounts - first) : (int)blockDim.x;
    put_bytes(trade_mask + first * rows, mask_here, here * rows);
    put_bytes(legal + first * ACTIONS, legal_here, here * ACTIONS);
#pragma unroll 1
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
    const int* __restrict__ bid_px, const int* __restrict__ ask_px, const long long* __restrict__ facts,
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
    int at = place_of(facts, row), bid = bid_px[row * levels], ask = ask_px[row * levels];
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
        for (int k = 0; k < SIGNS; ++k) acct_pending_signs[SIGNS * w + k] = 0;
    }
    Settings s{};
    s.max_units = (int)max_units, s.min_hold = (int)min_hold, s.scales = scales;
    s.episode_length = episode_length, s.start_equity = start_equity;
    Held none{};
    put_legal(legal_actions(none, 0, 0, at & 1, s), legal + i * ACTIONS);
    see(none, 0, 0, mark, 0, start_equity, 0, at >> 1, 0, s, seen + i * SEEN);
}

// What accounts see and may do where they stand, from the state alone.
extern "C" __global__ void account_observe(
    const long long* __restrict__ facts, const float* __restrict__ scales, const long long* __restrict__ acct_step,
    const long long* __restrict__ acct_row, const long long* __restrict__ acct_episode_age,
    const long long* __restrict__ acct_side, const long long* __restrict__ acct_equity_cents,
    const long long* __restrict__ acct_mark_half_ticks, const long long* __restrict__ acct_loss_streak,
    const long long* __restrict__ acct_hold_steps, long long* unit_lots, long long* unit_entry_step,
    long long* unit_open_tick_lots, float* unit_trail_distance, long long* unit_best_px, float* seen,
    unsigned char* legal, long long accounts, long long max_units, long long min_hold, long long episode_length,
    long long start_equity)
{
    i64 i = (i64)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= accounts) return;
    Slots slots{};
    slots.lots = unit_lots, slots.entry_step = unit_entry_step, slots.open_tick_lots = unit_open_tick_lots;
    slots.distance = unit_trail_distance, slots.best_px = unit_best_px;
    Settings s{};
    s.max_units = (int)max_units, s.min_hold = (int)min_hold, s.scales = scales;
    s.episode_length = episode_length, s.start_equity = start_equity;
    Held held{};
    load(held, slots, i * max_units, *acct_step, s.max_units);
    int side = (int)acct_side[i], at = place_of(facts, acct_row[i]);
    put_legal(legal_actions(held, side, 0, at & 1, s), legal + i * ACTIONS);
    see(held, side, 0, acct_mark_half_ticks[i], acct_hold_steps[i], acct_equity_cents[i], acct_loss_streak[i], at >> 1,
        acct_episode_age[i], s, seen + i * SEEN);
}
