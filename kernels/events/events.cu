// One block marks the events that a step reached. places[k]: where event k lies in `seen`, in the order of op.py.

#define THREADS 128

// trades [accounts, slots, fields], whose field `reason` tells why. The pointers from executed on are null outside
// training.
extern "C" __global__ void events_mark(const bool* __restrict__ closed, const long long* __restrict__ trades,
                                       const bool* __restrict__ mask, const long long* __restrict__ end_reason,
                                       long long accounts, long long slots, long long fields, long long reason,
                                       long long trail, long long session, long long gap, long long length,
                                       const long long* executed, const long long* inserted,
                                       const long long* windows, const long long* stops, long long replay_rows,
                                       long long capacity, long long actions, bool* actions_seen,
                                       const long long* __restrict__ places, bool* seen)
{
    bool any_closed = false, trailed = false, segment = false, long_enough = false, all = true;
    for (long long i = threadIdx.x; i < accounts; i += THREADS) {
        any_closed |= closed[i];
        segment |= end_reason[i] == session || end_reason[i] == gap;
        long_enough |= end_reason[i] == length;
        for (long long k = i * slots; k < (i + 1) * slots; ++k)
            trailed |= mask[k] && trades[k * fields + reason] == trail;
    }
    bool now[9] = {};
    now[0] = __syncthreads_or(any_closed);
    now[1] = __syncthreads_or(trailed);
    now[2] = __syncthreads_or(segment);
    now[3] = __syncthreads_or(long_enough);
    for (long long a = 0; executed && a < actions; ++a) {
        bool taken = false;
        for (long long i = threadIdx.x; i < accounts; i += THREADS) taken |= executed[i] == a;
        taken = __syncthreads_or(taken);
        if (threadIdx.x > 0) continue;
        actions_seen[a] |= taken;
        all &= actions_seen[a];
    }
    if (threadIdx.x > 0) return;
    if (executed) {
        now[4] = *inserted >= replay_rows;
        now[5] = *inserted > capacity;
        now[6] = *windows > 0;
        now[7] = *stops > 0;
        now[8] = all;
    }
    for (int k = 0; k < 9; ++k)
        if (now[k]) seen[places[k]] = true;
}
