// Runs a launch on one CPU thread: every CUDA thread is a fiber, a seed decides who runs next.
//
// Schedule 0 goes through blocks and threads in order, 1 backwards, any other draws the next fiber of any block and
// also leaves a fiber before some of its loads and stores. Every load and store is seen (-fsanitize=thread calls the
// hooks below): one outside all buffers ends the launch; two of one word by threads that no barrier orders, one of
// them a plain store, are a conflict. Between blocks nothing orders but the next launch. Lanes of a warp run one by
// one like any threads; they meet where they exchange values, which orders their accesses only in __syncwarp.
#include <algorithm>
#include <csetjmp>
#include <cstdarg>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <memory>
#include <sys/mman.h>
#include <ucontext.h>
#include <vector>

struct uint3 { unsigned int x, y, z; };
extern char __start_shim_shared[] __attribute__((weak));
extern char __stop_shim_shared[] __attribute__((weak));

namespace {

struct Access { int thread = -1; int epoch = 0, warp_epoch = 0; bool atomic = false; };

struct Word { Access writer, reader, other_reader; };  // the last plain or atomic store, the last two readers

struct Buffer { char* base; int64_t bytes; int64_t item; const char* name; std::vector<Word> words; };

struct Gate { int live = 0, waiting = 0, line = 0, turn = 0; };  // opens when all that live wait at it

struct Warp { Gate gate; int epoch = 0; bool live[32] = {}; uint64_t said[2][32]; };

struct Block {
    uint3 index; Gate gate; bool votes[2] = {};
    std::vector<Warp> warps; std::vector<char> shared; Buffer marks;
};

enum State { READY, WAITING, DONE };

struct Fiber {
    jmp_buf here; Block* block; Warp* warp; uint3 thread; int number, lane; State state; bool started;
    const Gate* gate; int turn;  // what it waits at, and since which turn of it
};

const size_t STACK = 32 << 10, MAX_FIBERS = 1 << 13;
const int64_t MAX_ACCESSES = 5'000'000;  // a launch that waits for a block that does not run would never end

char* stacks;
std::vector<Fiber> fibers;
std::vector<Block> blocks;
std::vector<Buffer> buffers;
Fiber* current;
Block* loaded;
jmp_buf scheduler;
uint3 grid_dim, block_dim;
void (*kernel)(void**);
void** arguments;
uint64_t random_state;
size_t resident;  // fibers that have a stack at once: all, or those of one block where blocks run one after another
int64_t seed, accesses;
char* message;
int message_size;
bool stopped;

uint64_t draw(uint64_t below)
{
    random_state ^= random_state << 13, random_state ^= random_state >> 7, random_state ^= random_state << 17;
    return (random_state >> 11) % below;
}

void report(const char* format, ...)
{
    if (message[0]) return;  // the first is the cause
    va_list args;
    va_start(args, format);
    vsnprintf(message, message_size, format, args);
    va_end(args);
}

void leave()
{
    if (!_setjmp(current->here)) _longjmp(scheduler, 1);
}

void stop()
{
    stopped = true;
    _longjmp(scheduler, 1);
}

void enter()
{
    kernel(arguments);
    current->state = DONE;
    _longjmp(scheduler, 1);
}

void swap_shared(Block* block)
{
    if (loaded == block) return;
    size_t bytes = __stop_shim_shared - __start_shim_shared;
    if (loaded) memcpy(loaded->shared.data(), __start_shim_shared, bytes);
    memcpy(__start_shim_shared, block->shared.data(), bytes);
    loaded = block;
}

__attribute__((noinline)) void resume(Fiber* fiber)
{
    current = fiber;
    swap_shared(fiber->block);
    if (_setjmp(scheduler)) return;
    if (fiber->started) _longjmp(fiber->here, 1);
    fiber->started = true;
    ucontext_t context;
    getcontext(&context);
    context.uc_stack.ss_sp = stacks + STACK * (fiber->number % resident);
    context.uc_stack.ss_size = STACK;
    context.uc_link = nullptr;
    makecontext(&context, enter, 0);
    setcontext(&context);
}

bool ordered(const Access& before, const Fiber* now)
{
    if (before.thread < 0 || before.thread == now->number) return true;
    const Fiber& then = fibers[before.thread];
    if (then.warp == now->warp && before.warp_epoch < now->warp->epoch) return true;
    return then.block == now->block && before.epoch < now->block->gate.turn;
}

void mark(Buffer& buffer, int64_t index, bool write, bool atomic)
{
    Word& word = buffer.words[index];
    bool clash = !ordered(word.writer, current) && !(atomic && word.writer.atomic);
    int with = word.writer.thread;
    for (const Access* reader : {&word.reader, &word.other_reader})
        if (write && !clash && !ordered(*reader, current)) clash = true, with = reader->thread;
    if (clash) {
        const Fiber& a = fibers[with];
        report("conflict: %s[%lld] by block %u thread %u and block %u thread %u, which no barrier orders", buffer.name,
               (long long)index, a.block->index.x, a.thread.x, current->block->index.x, current->thread.x);
    }
    Access now{current->number, current->block->gate.turn, current->warp->epoch, atomic};
    if (write) word.writer = now;
    else if (word.reader.thread != now.thread) word.other_reader = word.reader, word.reader = now;
    else word.reader = now;
}

Buffer* buffer_of(char* p, int bytes)
{
    for (Buffer& b : buffers)
        if (p >= b.base && p + bytes <= b.base + b.bytes) return &b;
    return nullptr;
}

void out_of_bounds(char* p, bool write)
{
    Buffer* near = nullptr;
    int64_t least = INT64_MAX;
    for (Buffer& b : buffers) {
        int64_t away = p < b.base ? b.base - p : p - (b.base + b.bytes);
        if (away < least) least = away, near = &b;
    }
    long long at = near ? (p - near->base - (p < near->base ? near->item - 1 : 0)) / near->item : 0;
    report("out of bounds: %s of %s[%lld] of %lld by block %u thread %u", write ? "a store" : "a load",
           near ? near->name : "no buffer", at, near ? (long long)(near->bytes / near->item) : 0LL,
           current->block->index.x, current->thread.x);
    stop();
}

void access(void* address, int bytes, bool write, bool atomic)
{
    char* p = static_cast<char*>(address);
    if (!current || (p >= stacks && p < stacks + STACK * MAX_FIBERS)) return;
    if (++accesses > MAX_ACCESSES) {
        report("does not end: still running after %lld loads and stores", (long long)MAX_ACCESSES);
        stop();
    }
    if (p >= __start_shim_shared && p + bytes <= __stop_shim_shared) {
        mark(current->block->marks, p - __start_shim_shared, write, atomic);  // a word is known by its first byte
        return;
    }
    Buffer* buffer = buffer_of(p, bytes);
    if (!buffer) out_of_bounds(p, write);
    if (seed > 1 && draw(write ? 4 : 32) == 0) leave();
    for (int64_t at = (p - buffer->base) / buffer->item; at * buffer->item < p + bytes - buffer->base; ++at)
        mark(*buffer, at, write, atomic);
}

bool opens(Gate& gate)
{
    if (!gate.waiting || gate.waiting < gate.live) return false;
    gate.waiting = 0;
    ++gate.turn;
    return true;
}

// After a fiber of a block came to a gate or its end: let those on whom somebody waits no more go on.
void release(Fiber* fiber)
{
    Block* block = fiber->block;
    Warp* warp = fiber->warp;
    if (fiber->state == DONE) --block->gate.live, --warp->gate.live, warp->live[fiber->lane] = false;
    if (opens(warp->gate))
        for (int lane = 0; lane < 32; ++lane)
            if (!warp->live[lane]) warp->said[~warp->gate.turn & 1][lane] = 0;
    if (opens(block->gate)) block->votes[block->gate.turn & 1] = false;  // of two barriers ago: everybody has read it
}

void wait(Gate& gate, int line, const char* what)
{
    if (gate.waiting && gate.line != line) {
        report("%s of block %u wait at different barriers, lines %d and %d", what, current->block->index.x, gate.line,
               line);
        stop();
    }
    gate.line = line;
    ++gate.waiting;
    current->state = WAITING, current->gate = &gate, current->turn = gate.turn;
    leave();
}

bool may_go(Fiber& f)
{
    if (f.state == WAITING && f.gate->turn != f.turn) f.state = READY;
    return f.state == READY;
}

void stuck(const Block& block)
{
    report("does not end: threads of block %u wait at line %d for others that never come", block.index.x,
           block.gate.waiting ? block.gate.line : 0);
    stopped = true;
}

void prepare(uint3 grid, uint3 block, int poison)
{
    size_t threads = block.x * block.y * block.z, n = (size_t)grid.x * grid.y * grid.z;
    size_t shared = __stop_shim_shared - __start_shim_shared;
    blocks.assign(n, Block());
    fibers.resize(n * threads);
    for (size_t b = 0; b < n; ++b) {
        Block& at = blocks[b];
        at.index = {(unsigned)(b % grid.x), (unsigned)(b / grid.x % grid.y), (unsigned)(b / grid.x / grid.y)};
        at.gate.live = threads;
        at.warps.assign((threads + 31) / 32, Warp());
        at.shared.assign(shared, (char)poison);
        at.marks = Buffer{nullptr, 0, 1, "shared memory", std::vector<Word>(shared)};
        for (size_t t = 0; t < threads; ++t) {
            Fiber& f = fibers[b * threads + t];
            f.block = &at;
            f.warp = &at.warps[t / 32];
            f.lane = t % 32;
            ++f.warp->gate.live, f.warp->live[f.lane] = true;
            f.number = b * threads + t;
            f.thread = {(unsigned)(t % block.x), (unsigned)(t / block.x % block.y), (unsigned)(t / block.x / block.y)};
            f.state = READY;
            f.started = false;
        }
    }
}

// Runs block by block, so that fibers of one block only take turns at its barriers: in order or backwards.
void run_in_order(bool backwards, size_t threads)
{
    for (size_t i = 0; i < blocks.size() && !stopped; ++i) {
        size_t b = backwards ? blocks.size() - 1 - i : i;
        while (blocks[b].gate.live && !stopped) {
            bool moved = false;
            for (size_t j = 0; j < threads && !stopped; ++j) {
                Fiber& f = fibers[b * threads + (backwards ? threads - 1 - j : j)];
                if (!may_go(f)) continue;
                moved = true;
                resume(&f);
                if (!stopped) release(&f);
            }
            if (!moved) stuck(blocks[b]);
        }
    }
}

void run_at_random(size_t threads)
{
    std::vector<int> ready(fibers.size());
    for (size_t i = 0; i < ready.size(); ++i) ready[i] = i;
    while (!ready.empty() && !stopped) {
        size_t at = draw(ready.size());
        Fiber& f = fibers[ready[at]];
        resume(&f);
        if (f.state == READY || stopped) continue;
        ready[at] = ready.back();
        ready.pop_back();
        release(&f);
        size_t first = (f.block - blocks.data()) * threads;
        for (size_t t = first; t < first + threads; ++t)
            if (fibers[t].state == WAITING && may_go(fibers[t])) ready.push_back(t);
    }
    for (Block& block : blocks)
        if (block.gate.live && !stopped) stuck(block);
}

}  // namespace

extern "C" {

uint3 shim_thread() { return current->thread; }
uint3 shim_block() { return current->block->index; }
uint3 shim_block_dim() { return block_dim; }
uint3 shim_grid_dim() { return grid_dim; }
void shim_atomic(void* word, int bytes) { access(word, bytes, true, true); }
void shim_switch() { if (seed > 1) leave(); }

int shim_barrier(int line, int vote)
{
    Block* block = current->block;
    block->votes[block->gate.turn & 1] |= vote;
    wait(block->gate, line, "threads");
    return block->votes[~block->gate.turn & 1];
}

// What every lane of the warp said, once all have; of lanes that ended, 0.
const uint64_t* shim_exchange(int line, uint64_t said)
{
    Warp* warp = current->warp;
    warp->said[warp->gate.turn & 1][current->lane] = said;
    wait(warp->gate, line, "lanes of a warp");
    return warp->said[~warp->gate.turn & 1];
}

void shim_warp_barrier(int line)
{
    Warp* warp = current->warp;
    int before = warp->gate.turn;
    wait(warp->gate, line, "lanes of a warp");
    if (warp->epoch <= before) warp->epoch = before + 1;
}

// Run a launch; 0, or 1 with what was found in `text`.
int shim_run(void (*entry)(void**), void** args, int n_buffers, char** bases, int64_t* bytes, int64_t* items,
             const char** names, const unsigned* grid, const unsigned* block, int64_t schedule, int poison, char* text,
             int text_size)
{
    if (!stacks) {
        void* found = mmap(nullptr, STACK * MAX_FIBERS, PROT_READ | PROT_WRITE,
                           MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (found == MAP_FAILED) {
            snprintf(text, text_size, "no memory for %zu stacks of %zu bytes", MAX_FIBERS, STACK);
            return 1;
        }
        stacks = static_cast<char*>(found);
    }
    kernel = entry, arguments = args, seed = schedule, message = text, message_size = text_size;
    message[0] = 0, accesses = 0, stopped = false, loaded = nullptr, current = nullptr;
    random_state = 0x9E3779B97F4A7C15ull * (schedule + 1);
    grid_dim = {grid[0], grid[1], grid[2]}, block_dim = {block[0], block[1], block[2]};
    buffers.clear();
    for (int i = 0; i < n_buffers; ++i)
        buffers.push_back({bases[i], bytes[i], items[i], names[i], std::vector<Word>(bytes[i] / items[i])});
    size_t threads = block[0] * block[1] * block[2];
    resident = schedule > 1 ? threads * grid[0] * grid[1] * grid[2] : threads;
    if (resident > MAX_FIBERS) {
        report("more than %zu threads: use a smaller case", MAX_FIBERS);
        return 1;
    }
    prepare(grid_dim, block_dim, poison);
    if (schedule > 1) run_at_random(threads);
    else run_in_order(schedule == 1, threads);
    current = nullptr;
    return message[0] != 0;
}

// Hooks of -fsanitize=thread.
#define HOOKS(n) \
    void __tsan_read##n(void* p) { access(p, n, false, false); } \
    void __tsan_write##n(void* p) { access(p, n, true, false); } \
    void __tsan_unaligned_read##n(void* p) { access(p, n, false, false); } \
    void __tsan_unaligned_write##n(void* p) { access(p, n, true, false); } \
    void __tsan_volatile_read##n(void* p) { access(p, n, false, false); } \
    void __tsan_volatile_write##n(void* p) { access(p, n, true, false); }
HOOKS(1) HOOKS(2) HOOKS(4) HOOKS(8) HOOKS(16)
void __tsan_read_range(void* p, unsigned long n) { access(p, (int)n, false, false); }
void __tsan_write_range(void* p, unsigned long n) { access(p, (int)n, true, false); }
void __tsan_init() {}
void __tsan_func_entry(void*) {}
void __tsan_func_exit() {}
}
