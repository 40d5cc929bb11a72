// Trading accounts on a tape of order books: a step, a seat at the next episode, an observation.
//
// The step does in one launch what foxhunt_assets.simulator does in torch, its twin: shift register, trailing stops,
// the policy's order, forced closes, marks, closed trades, state, and what the account sees afterwards. Money is int64
// cents, prices int32 ticks, sums int64; lots of one account, its counts of steps and closes, and every index but those
// of an outcome fit 32 bits.
//
// Four lanes of a warp are an account: each knows the account's words and holds one unit, every fourth level of a book
// side and every fourth word of an outcome. A warp takes every branch with a shuffle in it together, accounts that have
// no part in it along, so that lanes can ask each other anywhere. A word of memory is written by one lane, and read by
// another only before `__syncwarp`.
//
// Of few accounts the chain of reads decides the speed: what depends on no other word is read at once. Of many it is
// what they move: the memory of a book side is read only where there is some, and the words of an outcome that were and
// stay zero are left alone.

#define LANES 4    // of an account, which has at most as many units
#define PLACES 3   // levels of a book side that a lane holds at most
#define SEEN 12    // values an account sees of itself
#define FIELDS 17  // of a trade row
#define SIGNS 3
#define EVERYBODY 0xffffffffu
#define EACH(k, n) _Pragma("unroll") for (int k = 0; k < n; ++k)

typedef long long i64;

enum Action { SHORT_LARGE, SHORT_SMALL, HOLD, FLAT_LONG, FLAT_SHORT, LONG_SMALL, LONG_LARGE, TIGHTEN, LOOSEN, HALF_LONG,
              HALF_SHORT, ACTIONS };
enum Reason { NONE, POLICY, TRAIL, SESSION, GAP, LENGTH, BLOWN, PHASE_END };
enum Phase { STOPS, ORDER, FORCED, PHASES };
enum Stirred { TRADED = 1, MOVED = 2, CLOSED = 4 };  // bits: parts of an outcome that hold something
enum Row { OF_EVERY = 0, OF_TRADED = 14, OF_MOVED = 32 };  // first rows of `ints` of its parts, as in op.py

struct Market {
    const int *px[2], *sz[2];  // bids (0) and asks (1), [rows, levels]
    const i64* facts;
    const unsigned char* session_end;
    int levels, absent;
    i64 tick_cents;
};

// Of a row, in one sector of memory: ts, ts_event, place | fee, high_ask | low_bid, each pair the high word first.
// place: 2 x rows left of the stretch, plus 1 where a whole window lies behind the row.
__device__ static i64 ts_of(const i64* facts, int row) { return facts[4 * row]; }
__device__ static i64 ts_event_of(const i64* facts, int row) { return facts[4 * row + 1]; }
__device__ static int fee_of(const i64* facts, int row) { return (int)facts[4 * row + 2]; }
__device__ static int place_of(const i64* facts, int row) { return (int)(facts[4 * row + 2] >> 32); }
__device__ static i64 extremes_of(const i64* facts, int row) { return facts[4 * row + 3]; }

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

struct Memory {  // what accounts took of bids (0) and asks (1), [accounts, levels]
    int *px[2], *lots[2], *sz[2];
};

struct Pending {  // actions on their way to the book, [accounts, latency - 1], with their signs
    i64* action;
    signed char* signs;
};

struct Settings {
    int max_units, min_hold, latency, lots_small, lots_large;
    i64 episode_length, start_equity;
    float initial_r, distance, tighten, loosen, least, most;
    bool phase_end, drain;
    const float* scales;
};

struct Outcome {
    i64 *ints, *trades;
    int accounts;
    bool* flags;
    double* touch_take;
    unsigned char *trade_mask, *stirred;
};

struct Unit {  // an empty one has no lots
    int lots, age, best_px;
    float distance;
    bool triggered;
    i64 open_tick_lots, open_fee;
};

struct Entry {  // the rest of a unit, read only where one closes
    i64 lots, ts, tick_lots, fee, action;
    float initial_r;
    signed char signs[SIGNS];
};

struct Order {
    int side, total, want, lots;  // want, lots: what this lane's unit is to have of it, and has
    bool force, opens, stop;
    i64 tick_lots;  // paid for this lane's lots
};

struct Account {
    int account, lane, slot;  // slot: of this lane's unit
    bool there, mine;         // the account exists, and so does the slot
    int anchor, row, side, last_bid, last_ask, place, next_place, age, streak, flat, hold, executed, due, reason, was;
    int lots_before, units_before, lots, number, tightened, loosened;
    i64 step, extremes, mark, mark_before, cash, realised, realised_before, phase_realised, equity_before, equity,
        open_cents, open_tick_lots, open_fee;
    bool sound, two_sided, mark_known, started, illegal, flat_between, parts, sorted, opened, reached, refused;
    bool live[2];              // something of a book side was taken before
    unsigned trades, touched;  // a bit a trade row; a bit a book side whose memory changes
    int orders, levels_max, added, singly;
    i64 slippage, lag, fee, cash_change;
    double touch_take;
    Unit unit;  // from here on: of this lane
    bool fired, moved, followed;
    int taken[2][PLACES];  // of its levels
    signed char sign;      // of its horizon
    int counts, rests;     // one of orders, fills, lots, bought; one of refused, cancelled, beyond the book, at a touch
};

// --- lanes ----------------------------------------------------------------------------------------

template <class T> __device__ static T from(T x, int lane)
{
    return __shfl_sync(EVERYBODY, x, lane, LANES);
}

__device__ static bool anyone(bool x) { return __any_sync(EVERYBODY, x); }  // of the warp

template <class T> __device__ static T sum(T x)
{
    EACH(k, 2) x += from(x, threadIdx.x ^ (k + 1));
    return x;
}

__device__ static unsigned bits(unsigned x)  // those of all lanes
{
    EACH(k, 2) x |= from(x, threadIdx.x ^ (k + 1));
    return x;
}

template <class T> __device__ static T least(T x)
{
    EACH(k, 2) {
        T other = from(x, threadIdx.x ^ (k + 1));
        if (other < x) x = other;
    }
    return x;
}

__device__ static int before(int x)  // sum of the lanes before
{
    int lane = threadIdx.x % LANES, found = 0;
    EACH(k, LANES - 1) {
        int other = from(x, lane - 1 - k);
        if (k < lane) found += other;
    }
    return found;
}

template <class T> __device__ static T pick(int k, T a, T b, T c, T d) { return k & 2 ? k & 1 ? d : c : k & 1 ? b : a; }

// Four rows of an outcome, or the first few of them, a lane each. out: the account's word of row `lane`, n: of a row.
template <class T, class V>
__device__ static void put(const Account& a, T* out, int row, int n, int rows, V x, V y, V z, V w)
{
    if (a.lane < rows) out[(i64)row * n] = pick(a.lane, x, y, z, w);
}

// --- what an account sees and may do --------------------------------------------------------------

__device__ static i64 stop_px(const Unit& h, int side) { return h.best_px - side * (i64)ceilf(h.distance); }

__device__ static void sum_up(Account& a)
{
    a.lots = sum(a.unit.lots), a.number = sum((int)(a.unit.lots > 0));
    a.open_tick_lots = sum(a.unit.open_tick_lots), a.open_fee = sum(a.unit.open_fee);
}

__device__ static void load(Account& a, const Slots& s)
{
    Unit& h = a.unit;
    if (!a.mine) return;  // empty slots are zeros of the same sector: no load waits for another
    h.lots = (int)s.lots[a.slot], h.best_px = (int)s.best_px[a.slot], h.distance = s.distance[a.slot];
    h.age = (int)(a.step - s.entry_step[a.slot]), h.open_tick_lots = s.open_tick_lots[a.slot];
}

// A bit an action: which the account may choose `later` steps from now. A whole close is legal when every unit was
// held min_hold steps, a half close when the oldest ones that it would touch were.
__device__ static unsigned legal_actions(const Account& a, int later, bool warm, const Settings& s)
{
    const Unit& h = a.unit;
    int ahead = before(h.lots);
    bool young = h.lots > 0 && h.age + later < s.min_hold;
    unsigned keeps = bits(!young ? 0 : ahead < (a.lots + 1) / 2 ? 3 : 1);  // from a whole close, from a half one
    bool close = !(keeps & 1), halve = !(keeps & 2), room = a.number < s.max_units, lng = a.side > 0, shrt = a.side < 0;
    unsigned mask = 1u << HOLD;
    if (!warm) return mask;
    if (shrt ? close : room) mask |= 1u << LONG_SMALL | 1u << LONG_LARGE;
    if (lng ? close : room) mask |= 1u << SHORT_SMALL | 1u << SHORT_LARGE;
    if (lng | shrt) mask |= 1u << TIGHTEN | 1u << LOOSEN;
    if ((lng | shrt) & close) mask |= 1u << (lng ? FLAT_LONG : FLAT_SHORT);
    if ((lng | shrt) & halve) mask |= 1u << (lng ? HALF_LONG : HALF_SHORT);
    return mask;
}

__device__ static void put_legal(const Account& a, unsigned may, unsigned char* legal)
{
    unsigned char* out = legal + a.account * ACTIONS;
    EACH(j, PLACES) if (LANES * j + a.lane < ACTIONS) out[LANES * j + a.lane] = may >> (LANES * j + a.lane) & 1;
}

struct View {  // what an account sees of itself; hold: steps since it was flat, wait: until the last unit may be closed
    int lots, number, hold, wait, streak;
    i64 pnl, left;
    float open, nearest;
};

// left: steps to the end of the stretch or of the episode; hold, streak, equity, mark: as in the state.
__device__ static View view(const Account& a, int later, i64 mark, i64 equity, int hold, int place, i64 episode_age,
                            const Settings& s)
{
    const Unit& h = a.unit;
    float mid = (float)mark / 2.0f, gap = (float)a.side * (mid - (float)stop_px(h, a.side));
    float nearest = least(h.lots > 0 ? gap : 3e38f), entry = (float)a.open_tick_lots / (float)(a.lots > 0 ? a.lots : 1);
    int over = h.age + later - s.min_hold, early = least(h.lots > 0 && over < 0 ? over : 0);
    float open = (float)a.side * (mid - entry);
    i64 length = s.episode_length - episode_age, left = place >> 1;
    bool flat = a.lots == 0;
    return {a.side * a.lots, a.number, hold, -early, a.streak, equity - s.start_equity, left < length ? left : length,
            flat ? 0.0f : open, flat ? 0.0f : nearest};
}

// float32(value) / scale each, in the order of foxhunt_assets.simulator.observe.
__device__ static void put_seen(const Account& a, const View& v, const Settings& s, float* seen)
{
    float* out = seen + a.account * SEEN + a.lane;
    int k = a.lane;
    float x = k == 3 ? v.open : (float)pick(k, v.lots, v.number, v.hold, 0);
    float y = k == 0 ? v.nearest : (float)pick<i64>(k, 0, v.pnl, 0, v.streak);
    float z = (float)pick<i64>(k, 0, v.wait, s.max_units, v.left);
    out[0] = x / s.scales[k], out[LANES] = y / s.scales[LANES + k], out[2 * LANES] = z / s.scales[2 * LANES + k];
}

// --- a step of every account ----------------------------------------------------------------------

// What every account needs, read before anything is written: first what stands under its number, then its rows.
__device__ static void arrive(Account& a, const State& b, const Slots& slots, const Memory& memory, const Market& m,
                              const Settings& s)
{
    int i = a.account, last_bid = 0, last_ask = 0, pairs = m.levels / 2;
    i64 live[2] = {};
    if (a.there) {
        a.anchor = (int)b.row[i], a.side = (int)b.side[i], a.age = (int)b.age[i], a.realised_before = b.realised[i];
        a.equity_before = b.equity[i], a.phase_realised = b.phase_realised[i], a.mark_before = b.mark[i];
        a.streak = (int)b.streak[i], a.flat = (int)b.flat[i], a.hold = (int)b.hold[i], a.cash = b.cash[i];
        a.mark_known = b.mark_valid[i], a.started = b.started[i];
        last_bid = (int)b.last_bid[i], last_ask = (int)b.last_ask[i];
        EACH(side, 2) EACH(j, 2) {  // two levels a word
            int pair = LANES * j + a.lane;
            if (pair < pairs) live[side] |= ((const i64*)memory.lots[side])[i * pairs + pair];
        }
    }
    load(a, slots);
    if (a.mine) a.unit.open_fee = slots.open_fee[a.slot], a.unit.triggered = slots.triggered[a.slot];
    a.row = s.drain ? a.anchor : a.anchor + 1;
    int bid = m.px[0][a.row * m.levels], ask = m.px[1][a.row * m.levels];
    a.extremes = extremes_of(m.facts, a.row);
    a.place = place_of(m.facts, a.anchor), a.next_place = place_of(m.facts, a.row);
    a.two_sided = bid != m.absent && ask != m.absent;
    a.sound = a.two_sided && bid < ask;
    a.mark = a.two_sided ? (i64)bid + ask : a.mark_before;
    a.last_bid = a.sound ? bid : last_bid, a.last_ask = a.sound ? ask : last_ask;
    a.flat_between = a.side == 0;
    unsigned found = bits((live[0] != 0) | (live[1] != 0) << 1);
    a.live[0] = found & 1, a.live[1] = found >> 1;
    sum_up(a);
    a.lots_before = a.side * a.lots, a.units_before = a.number;
}

// The decision as it counts, and what is due now. A drain decides nothing.
__device__ static void decide(Account& a, i64 action, const Pending& p, const Settings& s)
{
    unsigned may = legal_actions(a, 0, a.place & 1, s);
    a.illegal = !s.drain && !(action >= 0 && action < ACTIONS && (may >> action & 1));
    a.executed = s.drain || a.illegal ? HOLD : (int)action;
    a.due = a.executed;
    if (s.latency > 1 && !s.drain && a.there) a.due = (int)p.action[a.account * (s.latency - 1)];
}

// Push the decision into the shift register; three lanes push a horizon's sign each and get the one that is due.
__device__ static void shift(Account& a, const signed char* signs, const Pending& p, const Settings& s)
{
    int wait = s.latency - 1, first = a.account * wait;
    if (a.lane == 0 && wait > 0) {
        for (int w = first + 1; w < first + wait; ++w) p.action[w - 1] = p.action[w];
        p.action[first + wait - 1] = a.executed;
    }
    if (a.lane >= SIGNS) return;
    signed char given = signs[SIGNS * a.account + a.lane], *place = p.signs + SIGNS * first + a.lane;
    a.sign = wait > 0 ? *place : given;
    for (int w = 1; w < wait; ++w, place += SIGNS) *place = place[SIGNS];
    if (wait > 0) *place = given;
}

// Stops touched by the interval's lowest bid or highest ask, or before and not yet filled.
__device__ static void stops(Account& a, Order& o, const Market& m)
{
    int extreme = (int)(a.side > 0 ? a.extremes : a.extremes >> 32);
    Unit& h = a.unit;
    i64 stop = stop_px(h, a.side);
    bool touched = extreme != m.absent && (a.side > 0 ? extreme <= stop : extreme >= stop);
    a.fired = h.lots > 0 && touched && !h.triggered;
    h.triggered |= a.fired;
    o.stop = true;
    o.want = h.triggered ? h.lots : 0, o.total = sum(o.want);
}

// The order of the action due on the account as it is now. Returns whether it was an intent to trade.
__device__ static bool policy(const Account& a, Order& o, const Settings& s)
{
    int due = a.due, wanted = (due == LONG_SMALL || due == LONG_LARGE) - (due == SHORT_SMALL || due == SHORT_LARGE);
    bool enters = wanted != 0 && (a.side == 0 || a.side == wanted), lng = a.side > 0, shrt = a.side < 0;
    bool closes = (wanted != 0 && !enters) || (due == FLAT_LONG && lng) || (due == FLAT_SHORT && shrt);
    bool halves = (due == HALF_LONG && lng) || (due == HALF_SHORT && shrt);
    o.opens = enters && a.number < s.max_units;
    if (o.opens) o.side = wanted, o.total = due == LONG_LARGE || due == SHORT_LARGE ? s.lots_large : s.lots_small;
    else if (closes || halves) o.total = closes ? a.lots : (a.lots + 1) / 2;
    o.want = o.opens ? (a.lane == a.number ? o.total : 0) : closes || halves ? a.unit.lots : 0;
    return due != HOLD && due != TIGHTEN && due != LOOSEN;
}

__device__ static void move_trails(Account& a, const Settings& s)
{
    float old = a.unit.distance, now = old * (a.due == TIGHTEN ? s.tighten : s.loosen);
    now = now < s.least ? s.least : now > s.most ? s.most : now;
    a.moved = (a.due == TIGHTEN || a.due == LOOSEN) && a.unit.lots > 0 && now != old;
    if (a.moved) a.unit.distance = now;
    a.tightened = sum((int)(a.moved && now < old)), a.loosened = sum((int)(a.moved && now > old));
}

__device__ static void follow(Account& a)  // units follow the touch of a sound book
{
    int touch = a.side > 0 ? a.last_bid : a.last_ask;
    Unit& h = a.unit;
    a.followed = a.sound && h.lots > 0 && (a.side > 0 ? touch > h.best_px : touch < h.best_px);
    if (a.followed) h.best_px = touch;
}

// Open pnl at the mark, half a cent rounded down, and the equity with it.
__device__ static void value(Account& a, const Market& m, const Settings& s)
{
    i64 worth = ((i64)(a.side * a.lots) * a.mark * m.tick_cents) >> 1, paid = a.open_tick_lots * m.tick_cents;
    a.open_cents = worth - (a.side < 0 ? -paid : a.side > 0 ? paid : 0) - a.open_fee;
    a.equity = s.start_equity + a.realised_before + a.realised + a.open_cents;
}

__device__ static int end_reason(const Account& a, const Market& m, const Settings& s)
{
    int left = a.place >> 1;
    if (!a.there) return NONE;
    if (!s.drain && left <= 1 && m.session_end[a.anchor + left]) return SESSION;
    if (a.equity <= 0) return BLOWN;
    if (!s.drain && left <= 1) return GAP;
    if (!s.drain && a.age + 1 >= s.episode_length) return LENGTH;
    return s.phase_end || s.drain ? PHASE_END : NONE;
}

__device__ static void report(const Account& a, const Outcome& out, int max_units)
{
    int n = out.accounts;
    i64 *ints = out.ints + (i64)a.lane * n + a.account;  // of the lane's first row
    i64 moved = a.mark_known ? a.mark - a.mark_before : 0;
    i64 change = a.equity - a.equity_before, phase = a.phase_realised + a.realised + a.open_cents;
    bool *flags = out.flags + (i64)a.lane * n + a.account, trails = a.tightened + a.loosened > 0;
    put(a, ints, OF_EVERY, n, 4, a.anchor, a.row, a.age, a.executed);
    put(a, ints, OF_EVERY + 4, n, 4, change, change + a.fee, a.equity, phase);
    put(a, ints, OF_EVERY + 8, n, 4, a.open_cents, a.mark, moved, (i64)a.lots_before);
    put(a, ints, OF_EVERY + 12, n, 2, a.units_before, a.side * a.lots, 0, 0);
    bool terminated = a.reason == SESSION || a.reason == BLOWN, idle = a.due != HOLD && !a.reached && !trails;
    put(a, flags, 0, n, 4, a.started, a.illegal, idle, terminated);
    put(a, flags, 4, n, 2, a.reason != NONE && !terminated, a.trades != 0, false, false);
    int is = (a.orders || a.refused || a.reason ? TRADED : 0) | (trails ? MOVED : 0) | (a.trades ? CLOSED : 0);
    if (a.lane == 0 && a.was != is) out.stirred[a.account] = (unsigned char)is;
    int either = a.was | is;
    if (either & MOVED) put(a, ints, OF_MOVED, n, 2, a.tightened, a.loosened, 0, 0);
    if (either & CLOSED) {
        unsigned char* mask = out.trade_mask + a.account * PHASES * max_units;
        for (int r = a.lane; r < PHASES * max_units; r += LANES) mask[r] = a.trades >> r & 1;
    }
    if (!(either & TRADED)) return;
    put(a, ints, OF_TRADED, n, 4, a.fee, a.realised, a.cash_change, (i64)a.reason);
    ints[(OF_TRADED + 4) * (i64)n] = a.counts, ints[(OF_TRADED + 8) * (i64)n] = a.rests;
    put(a, ints, OF_TRADED + 12, n, 4, a.slippage, a.lag, (i64)a.levels_max, (i64)a.reached);
    put(a, ints, OF_TRADED + 16, n, 2, a.added, a.singly, 0, 0);
    if (a.lane == 0) out.touch_take[a.account] = a.touch_take;
}

// The state as the step leaves it, where it changed.
__device__ static void keep_unit(const Account& a, const Slots& s)
{
    const Unit& h = a.unit;
    bool sorted = a.sorted | a.opened;
    if (sorted | a.followed) s.best_px[a.slot] = h.best_px;
    if (sorted | a.moved) s.distance[a.slot] = h.distance;
    if (sorted | a.fired) s.triggered[a.slot] = h.triggered;
    if (!(sorted | a.parts)) return;
    s.lots[a.slot] = h.lots, s.open_tick_lots[a.slot] = h.open_tick_lots, s.open_fee[a.slot] = h.open_fee;
    if (sorted) s.entry_step[a.slot] = h.lots > 0 ? a.step - h.age : 0, s.active[a.slot] = h.lots > 0;
}

__device__ static void keep(const Account& a, const State& b)
{
    int i = a.account;
    b.row[i] = a.row, b.age[i] = a.age + 1, b.equity[i] = a.equity, b.ended[i] = a.reason != NONE, b.hold[i] = a.hold;
    if (a.side == 0 || a.flat) b.flat[i] = a.side == 0 ? a.flat + 1 : 0;
    if (a.started) b.started[i] = false;
    if (a.mark != a.mark_before) b.mark[i] = a.mark;
    if (a.two_sided && !a.mark_known) b.mark_valid[i] = true;
    if (a.sound) b.last_bid[i] = a.last_bid, b.last_ask[i] = a.last_ask;
    if (a.parts | a.opened) b.side[i] = a.side, b.units[i] = a.number;
    if (a.cash_change) b.cash[i] = a.cash + a.cash_change;
    if (a.realised) b.realised[i] = a.realised_before + a.realised, b.phase_realised[i] = a.phase_realised + a.realised;
    if (a.parts) b.streak[i] = a.streak;
}

// --- orders ---------------------------------------------------------------------------------------

// What the account took at a price and size, whatever its rank was, is gone from this book too.
__device__ static void line_up(Account& a, int side, const Market& m, const Memory& memory)
{
    int px[PLACES], sz[PLACES], then_px[PLACES], then_sz[PLACES], lots[PLACES];
    EACH(j, PLACES) {
        int level = LANES * j + a.lane, now = a.row * m.levels + level, then = a.account * m.levels + level;
        bool there = a.live[side] && level < m.levels;
        px[j] = there ? m.px[side][now] : 0, sz[j] = there ? m.sz[side][now] : 0;
        then_px[j] = there ? memory.px[side][then] : 0, then_sz[j] = there ? memory.sz[side][then] : 0;
        lots[j] = there ? memory.lots[side][then] : 0;
    }
    if (a.live[side]) a.touched |= 1u << side;
    EACH(j, PLACES) EACH(k, LANES) {
        int had = from(lots[j], k);
        if (!anyone(had)) continue;
        int had_px = from(then_px[j], k), had_sz = from(then_sz[j], k);
        EACH(i, PLACES) if (px[i] == had_px && sz[i] == had_sz) a.taken[side][i] += had;
    }
}

// A side's memory as the step leaves it: a place where nothing is taken holds nothing.
__device__ static void remember(const Account& a, int side, const Market& m, const Memory& memory)
{
    EACH(j, PLACES) {
        int level = LANES * j + a.lane, now = a.row * m.levels + level, at = a.account * m.levels + level;
        int lots = a.taken[side][j];
        if (level >= m.levels) continue;
        memory.lots[side][at] = lots;
        memory.px[side][at] = lots > 0 ? m.px[side][now] : m.absent;
        memory.sz[side][at] = lots > 0 ? m.sz[side][now] : 0;
    }
}

// Take from the touch downwards until order or book is exhausted; a forced order takes the rest at the deepest price
// there is, or all of it at the last touch where the book is not sound. Lots go to the units in turn, the oldest
// first; a stop fills no better than its price. Returns the lots that the book did not show.
__device__ static int take(Account& a, Order& o, const Market& m)
{
    bool buys = o.side > 0;
    const int *px = (buys ? m.px[1] : m.px[0]) + a.row * m.levels, *sz = (buys ? m.sz[1] : m.sz[0]) + a.row * m.levels;
    int depth = a.sound ? m.levels : 0, deepest = !a.sound, price = buys ? a.last_ask : a.last_bid, rest = 0;
    int first = before(o.want), last = first + o.want, done = 0;
    i64 stop = stop_px(a.unit, -o.side);
#pragma unroll 1
    for (int l = 0; l <= m.levels && anyone(done < o.total && l <= depth); ++l) {
        int had = 0, got = 0, shown = m.absent, there = 0;
        EACH(j, PLACES) {
            int bids = a.taken[0][j], asks = a.taken[1][j];
            if (l / LANES == j) had = buys ? asks : bids;
        }
        had = from(had, l);
        if (l < depth && done < o.total) shown = px[l], there = sz[l] - had;
        if (shown != m.absent) {
            got = there < o.total - done ? there : o.total - done;
            deepest = l + 1, price = shown;
            EACH(j, PLACES) if (l == LANES * j + a.lane) {
                a.taken[0][j] += buys ? 0 : got;
                a.taken[1][j] += buys ? got : 0;
            }
        } else if (l == depth && o.force) {
            rest = got = o.total - done;
        }
        if (got > 0 && deepest > a.levels_max) a.levels_max = deepest;
        int begin = first > done ? first : done, end = last < done + got ? last : done + got;
        int part = end > begin ? end - begin : 0;
        i64 paid = price;
        if (o.stop && (buys ? stop > paid : stop < paid)) paid = stop;
        o.lots += part, o.tick_lots += part * paid;
        done += got;
    }
    return rest;
}

// Send an order to the book and count what came of it. decided: row of the decision. Of stops each unit is an order.
__device__ static void send(Account& a, Order& o, const Market& m, int decided)
{
    int asked = o.stop ? sum((int)(o.want > 0)) : o.total > 0, refused = a.sound || o.force ? 0 : asked;
    if (refused) o.total = o.want = 0;
    int rest = take(a, o, m), lots = sum(o.lots), units = sum((int)(o.lots > 0));
    i64 tick_lots = sum(o.tick_lots);
    bool buys = o.side > 0;
    int orders = asked - refused, fills = o.stop ? units : lots > 0, touch = 0;
    if (o.total > 0) {
        touch = a.sound ? (buys ? m.sz[1] : m.sz[0])[a.row * m.levels] : 0;
        i64 fee = lots * (i64)fee_of(m.facts, a.row), worth = 2 * tick_lots - lots * a.mark;
        a.slippage += buys ? worth : -worth;
        a.lag += fills * (ts_event_of(m.facts, a.row) - ts_event_of(m.facts, decided));
        a.fee += fee;
        a.cash_change -= o.side * tick_lots * m.tick_cents + fee;
        a.touched |= buys ? 2 : 1;
        if (touch > 0) a.touch_take += (double)lots / (double)touch;
    }
    a.orders += orders, a.refused |= refused > 0;
    a.counts += pick(a.lane, orders, fills, lots, buys ? lots : 0);
    a.rests += pick(a.lane, refused, o.total - lots, rest, touch > 0 ? fills : 0);
}

// --- units ----------------------------------------------------------------------------------------

__device__ static Entry read_entry(const Slots& s, int at)
{
    const signed char* signs = s.signs + SIGNS * at;
    return {s.entry_lots[at], s.entry_ts[at], s.entry_tick_lots[at], s.entry_fee[at], s.entry_action[at],
            s.initial_r[at], {signs[0], signs[1], signs[2]}};
}

__device__ static void write_entry(const Slots& s, int at, const Entry& e)
{
    s.entry_lots[at] = e.lots, s.entry_ts[at] = e.ts, s.entry_tick_lots[at] = e.tick_lots, s.entry_fee[at] = e.fee;
    s.entry_action[at] = e.action, s.initial_r[at] = e.initial_r;
    EACH(k, SIGNS) s.signs[SIGNS * at + k] = e.signs[k];
}

// Open units to the front, in order of age, empty ones after them.
__device__ static void sort(Account& a, Entry& e)
{
    Unit& h = a.unit;
    unsigned open = bits((h.lots > 0) << a.lane);
    int from_lane = LANES, found = 0;
    EACH(u, LANES) if (open >> u & 1) from_lane = found++ == a.lane ? u : from_lane;
    Unit unit{from(h.lots, from_lane), from(h.age, from_lane), from(h.best_px, from_lane), from(h.distance, from_lane),
              from(h.triggered, from_lane), from(h.open_tick_lots, from_lane), from(h.open_fee, from_lane)};
    Entry entry{from(e.lots, from_lane), from(e.ts, from_lane), from(e.tick_lots, from_lane), from(e.fee, from_lane),
                from(e.action, from_lane), from(e.initial_r, from_lane),
                {from(e.signs[0], from_lane), from(e.signs[1], from_lane), from(e.signs[2], from_lane)}};
    h = from_lane < LANES ? unit : Unit{};
    e = from_lane < LANES ? entry : Entry{};
}

__device__ static i64 floor_div(i64 a, i64 b)  // b > 0
{
    i64 q = a / b;
    return q * b > a ? q - 1 : q;
}

// A trade row: `o.lots` of this lane's unit, with their share of what its entry paid. Returns its pnl.
__device__ static i64 close_unit(const Account& a, const Order& o, const Market& m, const Entry& e, i64 paid, i64 fee,
                                 int reason, int action, i64* row)
{
    i64 fees = fee + o.lots * (i64)fee_of(m.facts, a.row), pnl = a.side * (o.tick_lots - paid) * m.tick_cents - fees;
    row[0] = a.account, row[1] = a.side, row[2] = o.lots, row[3] = a.step - a.unit.age, row[4] = a.step;
    row[5] = e.ts, row[6] = ts_of(m.facts, a.row), row[7] = paid, row[8] = o.tick_lots, row[9] = fees, row[10] = pnl;
    row[11] = reason, row[12] = e.action, row[13] = action;
    EACH(k, SIGNS) row[14 + k] = e.signs[k];
    return pnl;
}

// Book what was filled of each unit: a trade row each, its share of the entry's money, the lots that are left. The
// last part of a unit gets what is left of its entry, so that parts add up. Returns units closed if lots are left.
__device__ static int close(Account& a, const Order& o, const Slots& s, const Market& m, int phase, int reason,
                            int max_units, i64* trades)
{
    Unit& h = a.unit;
    bool part = !o.opens && o.lots > 0, last = o.lots == h.lots;
    int number = a.number, place = phase * max_units + a.lane;
    unsigned parts = bits(part << a.lane);
    bool gone = bits(part && last);
    Entry e{};
    if (a.mine && parts) e = read_entry(s, a.slot);
    i64 pnl = 0, paid = h.open_tick_lots, fee = h.open_fee;
    if (part) {
        if (!last) paid = floor_div(e.tick_lots * o.lots, e.lots), fee = floor_div(e.fee * o.lots, e.lots);
        i64* row = trades + (a.account * PHASES * max_units + place) * FIELDS;
        pnl = close_unit(a, o, m, e, paid, fee, reason, phase == STOPS ? HOLD : a.due, row);
        h.lots -= o.lots, h.open_tick_lots -= paid, h.open_fee -= fee;
    }
    unsigned won = bits((pnl > 0) << a.lane);
    EACH(u, LANES) if (parts >> u & 1) a.streak = won >> u & 1 ? 0 : a.streak + 1;
    a.trades |= parts << phase * max_units;
    a.realised += sum(pnl);
    a.parts |= parts != 0, a.sorted |= gone;
    if (anyone(gone)) {
        sort(a, e);
        if (a.mine && gone) write_entry(s, a.slot, e);
    }
    sum_up(a);
    if (a.lots > 0) return number - a.number;
    if (parts) a.side = 0, a.flat_between = true;
    return 0;
}

__device__ static void open(Account& a, const Order& o, const Slots& s, const Market& m, const Settings& set)
{
    signed char signs[SIGNS];
    EACH(k, SIGNS) signs[k] = from(a.sign, k);
    bool opened = bits(o.opens && o.lots > 0);
    if (o.opens && o.lots > 0) {
        i64 fee = o.lots * (i64)fee_of(m.facts, a.row);
        write_entry(s, a.slot, {o.lots, ts_of(m.facts, a.row), o.tick_lots, fee, a.due, set.initial_r,
                                {signs[0], signs[1], signs[2]}});
        a.unit = {o.lots, 0, o.side > 0 ? a.last_bid : a.last_ask, set.distance, false, o.tick_lots, fee};
    }
    if (opened) a.added = a.number > 0, a.side = o.side, a.opened = true;
    sum_up(a);
}

// Stops, the policy's order, forced closes: each sees what the one before left.
__device__ static void trade(Account& a, const Slots& slots, const Market& m, const Settings& s, i64* trades)
{
#pragma unroll 1
    for (int phase = s.drain ? FORCED : STOPS; phase < PHASES; ++phase) {
        Order o{};
        o.side = -a.side;
        if (phase == STOPS) stops(a, o, m);
        else if (phase == ORDER) {
            bool refused = policy(a, o, s) && o.total == 0;
            a.refused |= refused, a.rests += refused && a.lane == 0;
        } else {
            value(a, m, s);
            a.reason = end_reason(a, m, s);
            if (!anyone(a.reason)) break;
            o.force = true;
            if (a.reason) o.want = a.unit.lots, o.total = a.lots;
        }
        if (anyone(o.total > 0)) {
            send(a, o, m, phase != ORDER ? a.anchor : a.row < s.latency ? 0 : a.row - s.latency);
            if (phase == ORDER) a.reached = o.total > 0;
            if (anyone(o.opens)) open(a, o, slots, m, s);
            int why = phase == STOPS ? TRAIL : phase == ORDER ? POLICY : a.reason, closed = 0;
            if (anyone(!o.opens && o.lots > 0)) closed = close(a, o, slots, m, phase, why, s.max_units, trades);
            if (phase == STOPS || (phase == ORDER && (a.due == HALF_LONG || a.due == HALF_SHORT))) a.singly += closed;
        }
        if (phase == ORDER) move_trails(a, s);
        if (phase == FORCED) value(a, m, s);
    }
}

__device__ static Account seat(i64 accounts, i64 max_units)
{
    Account a{};
    int thread = blockIdx.x * blockDim.x + threadIdx.x;
    a.lane = thread % LANES, a.account = thread / LANES, a.slot = a.account * (int)max_units + a.lane;
    a.there = a.account < accounts, a.mine = a.there && a.lane < max_units;
    return a;
}

// step_at may be null, then step holds; acct_step is written and not read. ints, flags: [names, accounts]. Trade rows
// are written where trade_mask says that they are there, the three phases one after another. stirred: what the last
// outcome held. acct_pending_*: null at a latency of one row.
extern "C" __global__ void __launch_bounds__(128, 3) account_step(
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
    Market m{{bid_px, ask_px}, {bid_sz, ask_sz}, facts, session_end, (int)levels, (int)absent, tick_cents};
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
    Pending pending{acct_pending_action, acct_pending_signs};
    Outcome out{ints, trades, (int)accounts, flags, touch_take, trade_mask, stirred};
    Account a = seat(accounts, max_units);
    a.step = step_at ? *step_at : step;
    i64 action = a.there ? actions[a.account] : HOLD;
    a.was = a.there ? stirred[a.account] : 0;
    arrive(a, state, slots, memory, m, s);
    decide(a, action, pending, s);
    __syncwarp();  // every lane has read what one of them will write
    if (a.account == 0 && a.lane == 0) *acct_step = a.step + 1;
    if (a.there && !s.drain) shift(a, entry_signs, pending, s);
    EACH(side, 2) if (anyone(a.live[side])) line_up(a, side, m, memory);
    trade(a, slots, m, s, trades);
    follow(a);
    a.hold = a.flat_between ? 0 : a.hold + 1;
    unsigned may = legal_actions(a, 1, a.next_place & 1, s);
    View looks = view(a, 1, a.mark, a.equity, a.hold, a.next_place, a.age + 1, s);
    if (!a.there) return;
    report(a, out, s.max_units);
    if (a.mine) keep_unit(a, slots);
    if (a.lane == 0) keep(a, state);
    EACH(side, 2) if (a.touched >> side & 1) remember(a, side, m, memory);
    put_legal(a, may, legal);
    put_seen(a, looks, s, seen);
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
    Account a = seat(accounts, max_units);
    int i = a.account;
    bool ended = a.there && acct_ended[i], first = a.lane == 0;
    if (a.there && first) acct_episode_start[i] = ended;
    if (!anyone(ended)) return;
    int row = ended ? (int)acct_row[i] : 0;
    if (ended && starts) {
        unsigned int now = (unsigned int)((step_at ? *step_at : step) + 1);
        i64 word = philox4x32(0, (unsigned int)i, now, (unsigned int)purpose, (unsigned int)key0, (unsigned int)key1);
        row = (int)starts[word * n_starts >> 32];
    } else if (ended) {
        i64 target = next_anchor[row];
        if (target >= row && target <= last_anchor[i]) row = (int)target;
    }
    int place = place_of(facts, row), bid = bid_px[row * levels], ask = ask_px[row * levels];
    bool two_sided = bid != (int)absent && ask != (int)absent, sound = two_sided && bid < ask;
    i64 mark = two_sided ? (i64)bid + ask : 0;
    Settings s{};
    s.max_units = (int)max_units, s.min_hold = (int)min_hold, s.scales = scales;
    s.episode_length = episode_length, s.start_equity = start_equity;
    unsigned may = legal_actions(a, 0, place & 1, s);
    View looks = view(a, 0, mark, start_equity, 0, place, 0, s);
    __syncwarp();  // every lane has read what one of them will write
    if (!ended) return;
    put_legal(a, may, legal);
    put_seen(a, looks, s, seen);
    for (int l = i * (int)levels + a.lane; l < (i + 1) * (int)levels; l += LANES) {
        acct_taken_bid_px[l] = acct_taken_ask_px[l] = (int)absent;
        acct_taken_bid_lots[l] = acct_taken_ask_lots[l] = acct_taken_bid_sz[l] = acct_taken_ask_sz[l] = 0;
    }
    for (int w = i * ((int)latency - 1); w < (i + 1) * ((int)latency - 1); ++w) {
        if (first) acct_pending_action[w] = HOLD;
        if (a.lane < SIGNS) acct_pending_signs[SIGNS * w + a.lane] = 0;
    }
    if (!first) return;
    acct_ended[i] = false;
    acct_row[i] = row;
    acct_episode_age[i] = acct_realised_cents[i] = acct_loss_streak[i] = acct_hold_steps[i] = 0;
    acct_equity_cents[i] = start_equity;
    acct_mark_half_ticks[i] = mark, acct_mark_valid[i] = two_sided;
    acct_last_bid[i] = sound ? bid : 0, acct_last_ask[i] = sound ? ask : 0;
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
    Account a = seat(accounts, max_units);
    Slots slots{};
    slots.lots = unit_lots, slots.entry_step = unit_entry_step, slots.open_tick_lots = unit_open_tick_lots;
    slots.distance = unit_trail_distance, slots.best_px = unit_best_px;
    Settings s{};
    s.max_units = (int)max_units, s.min_hold = (int)min_hold, s.scales = scales;
    s.episode_length = episode_length, s.start_equity = start_equity;
    int i = a.there ? a.account : 0, place = place_of(facts, (int)acct_row[i]);
    a.step = *acct_step, a.side = a.there ? (int)acct_side[i] : 0, a.streak = (int)acct_loss_streak[i];
    load(a, slots);
    sum_up(a);
    unsigned may = legal_actions(a, 0, place & 1, s);
    View looks = view(a, 0, acct_mark_half_ticks[i], acct_equity_cents[i], (int)acct_hold_steps[i], place,
                         acct_episode_age[i], s);
    if (!a.there) return;
    put_legal(a, may, legal);
    put_seen(a, looks, s, seen);
}
