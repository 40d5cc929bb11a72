// Quantities of each account, then their folds over the batch. Everything is float64 from float32 or integer inputs.
// table [quantities, accounts] in the twin's order: a thread writes the rows of its part for its account.

#define THREADS 64  // of a block that folds
typedef long long i64;

enum { SUM, SQUARES, LEAST, LARGEST, COUNT };
enum { FLOOR, KEPT, NEAR_TIE, POINT_LOT_CENTS, TAIL, RATE };  // of scale
enum { VALUES = 11, POLICY = 12, HORIZON = 8, REWARD = 12 };  // rows of a part; one more an action in two

__device__ static double larger(double a, double b) { return a != a || a > b ? a : b; }  // NaN stays

struct Down {  // the rows of the table for one account, from above
    double* at;
    i64 stride;
    __device__ void put(double x) { *at = x, at += stride; }
};

struct Softmax {
    double top, total, entropy, mean;
    int best;  // first of the largest
    __device__ double share(double logit) const { return exp(logit - top) / total; }
};

// Over the n logits that are allowed; `may` null allows all. mean: of value(k).
template <class Value> __device__ static Softmax softmax(const float* logits, const bool* may, i64 n, Value value)
{
    Softmax s = {0, 0, 0, 0, -1};
    for (int k = 0; k < n; ++k)
        if ((!may || may[k]) && (s.best < 0 || logits[k] > s.top)) s.top = logits[k], s.best = k;
    double weighted = 0;
#pragma unroll 4
    for (int k = 0; k < n; ++k)
        if (!may || may[k]) {
            double off = logits[k] - s.top, e = exp(off);
            s.total += e;
            s.mean += e * value(k);
            weighted += e == 0 ? 0 : e * off;
        }
    s.entropy = log(s.total) - weighted / s.total;
    s.mean /= s.total;
    return s;
}

__device__ static void values(Down out, const float* logits, const float* q, const float* pi_logits, const bool* legal,
                              int taken, float v_min, float v_max, float v, i64 actions, i64 atoms)
{
    auto atom = [&](int k) -> double { return v_min + (v_max - v_min) * ((float)k / (float)(atoms - 1)); };
    Softmax s = softmax(logits, 0, atoms, atom);
    double square = 0;
#pragma unroll 4
    for (int k = 0; k < atoms; ++k) square += exp(logits[k] - s.top) * (atom(k) - s.mean) * (atom(k) - s.mean);
    double top = q[0], second = 0, least = q[0];
    int best = 0, best_legal = -1, chosen = -1;
    for (int a = 0; a < actions; ++a) {
        if (a > 0 && (a == 1 || q[a] > second)) second = q[a];
        if (q[a] > top) second = top, top = q[a], best = a;
        if (q[a] < least) least = q[a];
        if (!legal[a]) continue;
        if (best_legal < 0 || q[a] > q[best_legal]) best_legal = a;
        if (chosen < 0 || pi_logits[a] > pi_logits[chosen]) chosen = a;
    }
    out.put(q[taken]), out.put(top), out.put(top - second), out.put(top - least);
    out.put(s.entropy), out.put(sqrt(square / s.total)), out.put(s.share(logits[0])), out.put(s.share(logits[atoms - 1]));
    out.put(best_legal == chosen), out.put(best), out.put(v);
    for (int a = 0; a < actions; ++a) out.put(q[a]);
}

__device__ static void policy(Down out, const float* logits, const float* pi, const bool* legal, i64 sampled, i64 draw,
                              i64 executed, bool starts, const double* scale, bool first, double* shares,
                              i64* last_action, i64 actions)
{
    Softmax s = softmax(logits, legal, actions, [](int) { return 0.0; });
    double largest = 0, floored = 0, n_legal = 0, top = pi[0], second = 0, spread = 0, taken = 0;
    Down each = {out.at + POLICY * out.stride, out.stride};
    for (int a = 0; a < actions; ++a) {
        double p = legal[a] ? s.share(logits[a]) : 0;
        each.put(p);
        if (a == sampled) taken = p;
        largest = larger(fabs((double)logits[a]), largest);
        if (a > 0 && (a == 1 || pi[a] > second)) second = pi[a];
        if (pi[a] > top) second = top, top = pi[a];
        n_legal += legal[a];
        floored += legal[a] && p < scale[FLOOR];
        double now = executed == a, share = first ? now : shares[a] + scale[RATE] * (now - shares[a]);
        shares[a] = share;
        if (share > 0) spread -= share * log(share);
    }
    double kept = log((1.0 - scale[KEPT] * n_legal) * taken + scale[KEPT] * legal[sampled]);
    out.put(s.entropy), out.put(1 / s.total), out.put(largest), out.put(taken), out.put(kept > 0 ? 0 : kept);
    out.put(floored), out.put((double)(draw >> 8) * 0x1p-24), out.put(top - second < scale[NEAR_TIE]);
    out.put(executed != *last_action && !starts), out.put(spread), out.put(sampled), out.put(executed);
    *last_action = executed;
}

__device__ static void horizon(Down out, const float* logits, const double* values, i64 label, i64 atoms)
{
    Softmax s = softmax(logits, 0, atoms, [&](int k) { return values[k]; });
    bool valid = label >= 0;
    out.put(s.entropy), out.put(s.best), out.put(valid ? log(s.total) - (logits[label] - s.top) : 0);
    out.put(valid && s.best == label), out.put(valid), out.put(s.mean);
    out.put(s.share(logits[atoms - 1])), out.put(s.share(logits[0]));
}

__device__ static void reward(Down out, double raw, double scaled, double final, i64 core_cents, i64 fee_cents,
                              bool closed, const double* scale)
{
    double core = core_cents / scale[POINT_LOT_CENTS], fees = -fee_cents / scale[POINT_LOT_CENTS], size = fabs(raw);
    out.put(final), out.put(raw), out.put(size), out.put(raw != 0), out.put(closed ? size : 0);
    out.put(closed ? raw : 0), out.put(core), out.put(fees), out.put(fabs(raw - (core + fees)));
    out.put(fabs(final - scaled)), out.put(fabs(scaled)), out.put(fabs(final) > scale[TAIL]);
}

// Block (x, y): accounts of x, one a thread; y is the part: values, policy, each horizon, reward. row: a copy of *rows,
// which the next launch counts on.
extern "C" __global__ void acting_quantities(
    const float* __restrict__ q_logits, const float* __restrict__ q_values, const float* __restrict__ v_min,
    const float* __restrict__ v_max, const float* __restrict__ v, const float* __restrict__ pi_logits,
    const float* __restrict__ pi, const bool* __restrict__ legal, const float* __restrict__ frd_logits,
    const double* __restrict__ frd_atoms, const long long* __restrict__ sampled, const long long* __restrict__ draw,
    const long long* __restrict__ executed, const bool* __restrict__ starts, const long long* __restrict__ anchor,
    const long long* __restrict__ labels, const float* __restrict__ raw, const float* __restrict__ scaled,
    const float* __restrict__ final, const long long* __restrict__ core_cents,
    const long long* __restrict__ fee_cents, const bool* __restrict__ closed, double* shares, long long* last_action,
    const long long* __restrict__ rows, const double* __restrict__ scale, long long accounts, long long actions,
    long long atoms, long long horizons, long long frd_n, double* __restrict__ table, long long* __restrict__ row)
{
    i64 i = (i64)blockIdx.x * blockDim.x + threadIdx.x, part = blockIdx.y, m = part - 2;
    if (i >= accounts) return;
    if (i == 0 && part == 0) *row = *rows;
    Down out = {table + i, accounts};
    const bool* may = legal + i * actions;
    const float* logits = pi_logits + i * actions;
    if (part == 0)
        return values(out, q_logits + (i * actions + executed[i]) * atoms, q_values + i * actions, logits, may,
                      (int)executed[i], *v_min, *v_max, v[i], actions, atoms);
    out.at += (VALUES + actions) * accounts;
    if (part == 1)
        return policy(out, logits, pi + i * actions, may, sampled[i], draw[i], executed[i], starts[i], scale,
                      *rows == 0, shares + i * actions, last_action + i, actions);
    out.at += (POLICY + actions + m * HORIZON) * accounts;
    i64 label = m < horizons ? labels[anchor[i] * horizons + m] : 0;
    if (m < horizons) return horizon(out, frd_logits + (i * horizons + m) * frd_n, frd_atoms, label, frd_n);
    reward(out, raw[i], scaled[i], final[i], core_cents[i], fee_cents[i], closed[i], scale);
}

// x of every thread folded pairwise; every thread gets it.
__device__ static double fold(double x, int how, double* words)
{
    int t = threadIdx.x;
    words[t] = x;
    for (int half = THREADS / 2; half > 0; half /= 2) {
        __syncthreads();
        if (t >= half) continue;
        double a = words[t], b = words[t + half];
        words[t] = how == LEAST ? -larger(-a, -b) : how == LARGEST ? larger(a, b) : a + b;
    }
    __syncthreads();
    double all = words[0];
    __syncthreads();
    return all;
}

// Block e folds entry e (quantity, fold, operand) of the table. The next ones, one an action, count the executed
// actions in their column of the history and add the column up; the last adds to the running sum of closes and counts
// the row.
extern "C" __global__ void acting_folds(const double* __restrict__ table, const long long* __restrict__ entries,
                                        long long n_entries, long long accounts, long long actions,
                                        long long executed_row, long long closed_row, long long window,
                                        const long long* __restrict__ row_before, long long* counts,
                                        double* closed_raw, long long* __restrict__ rows, double* __restrict__ out)
{
    __shared__ double words[THREADS];
    int t = threadIdx.x;
    i64 action = (i64)blockIdx.x - n_entries, row = action < actions ? executed_row : closed_row, operand = action;
    int how = action < actions ? COUNT : SUM;
    if (action < 0) {
        const long long* entry = entries + 3 * blockIdx.x;
        row = entry[0], how = (int)entry[1], operand = entry[2];
    }
    const double* x = table + row * accounts;
    double own = how == LEAST || how == LARGEST ? x[0] : 0;
    for (i64 i = t; i < accounts; i += THREADS)
        own = how == LEAST ? -larger(-x[i], -own) : how == LARGEST ? larger(x[i], own)
            : own + (how == COUNT ? x[i] == operand : x[i]);
    double all = fold(own, how, words);
    if (how == SQUARES) {
        double mean = all / accounts;
        own = 0;
        for (i64 i = t; i < accounts; i += THREADS) own += (x[i] - mean) * (x[i] - mean);
        all = fold(own, SUM, words);
    }
    if (action == actions) {
        if (t != 0) return;
        *rows = *row_before + 1;
        out[blockIdx.x] = *row_before + 1 < window ? *row_before + 1 : window;
        out[blockIdx.x + 1] = *closed_raw += all;
        return;
    }
    if (action >= 0) {
        i64 now = *row_before % window;
        own = 0;
        for (i64 i = t; i < window; i += THREADS) own += i == now ? all : counts[i * actions + action];
        if (t == 0) counts[now * actions + action] = (i64)all;
        all = fold(own, SUM, words);
    }
    if (t == 0) out[blockIdx.x] = all;
}
