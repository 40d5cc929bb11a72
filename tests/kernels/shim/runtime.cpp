// Runs a launch on one CPU thread: every CUDA thread is a fiber, a seed decides who runs next.
//
// Schedule 0 goes through blocks and threads in order, 1 backwards, any other draws the next fiber of any block and
// also leaves a fiber before some of its loads and stores. Every load and store is seen (-fsanitize=thread calls the
// hooks below): one outside all buffers ends the launch; two of one word by threads that no barrier orders, one of
// them a plain store, are a conflict. Between blocks nothing orders but the next launch.
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

struct Access { int thread = -1; int epoch = 0; bool atomic = false; };

struct Word { Access writer, reader, other_reader; };  // the last plain or atomic store, the last two readers

struct Buffer { char* base; int64_t bytes; int64_t item; const char* name; std::vector<Word> words; };

struct Block {
    uint3 index; int live = 0, waiting = 0, epoch = 0, line = 0; bool votes[2] = {};
    std::vector<char> shared; Buffer marks;
};

enum State { READY, WAITING, DONE };

struct Fiber {
    jmp_buf here; Block* block; uint3 thread; int number; State state; bool started;
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
    return fibers[before.thread].block == now->block && before.epoch < now->block->epoch;
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
    Access now{current->number, current->block->epoch, atomic};
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

bool release(Block* block)
{
    if (!block->waiting || block->waiting < block->live) return false;
    block->waiting = 0;
    ++block->epoch;
    block->votes[block->epoch & 1] = false;  // of two barriers ago: everybody has read it
    return true;
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
        at.live = threads;
        at.shared.assign(shared, (char)poison);
        at.marks = Buffer{nullptr, 0, 1, "shared memory", std::vector<Word>(shared)};
        for (size_t t = 0; t < threads; ++t) {
            Fiber& f = fibers[b * threads + t];
            f.block = &at;
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
    for (size_t i = 0; i < blocks.size(); ++i) {
        size_t b = backwards ? blocks.size() - 1 - i : i;
        while (blocks[b].live && !stopped) {
            for (size_t j = 0; j < threads && !stopped; ++j) {
                Fiber& f = fibers[b * threads + (backwards ? threads - 1 - j : j)];
                if (f.state != READY) continue;
                resume(&f);
                if (f.state == DONE) --blocks[b].live;
            }
            if (!stopped && release(&blocks[b]))
                for (size_t j = 0; j < threads; ++j)
                    if (fibers[b * threads + j].state == WAITING) fibers[b * threads + j].state = READY;
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
        if (f.state == READY) continue;
        ready[at] = ready.back();
        ready.pop_back();
        if (f.state == DONE) --f.block->live;
        if (!stopped && release(f.block)) {
            size_t first = (f.block - blocks.data()) * threads;
            for (size_t t = first; t < first + threads; ++t)
                if (fibers[t].state == WAITING) fibers[t].state = READY, ready.push_back(t);
        }
    }
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
    if (block->waiting && block->line != line) {
        report("threads of block %u wait at different barriers, lines %d and %d", block->index.x, block->line, line);
        stop();
    }
    block->line = line;
    block->votes[block->epoch & 1] |= vote;
    ++block->waiting;
    current->state = WAITING;
    leave();
    return block->votes[~block->epoch & 1];
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
