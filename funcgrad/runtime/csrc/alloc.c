/* Device memory of the CPU: 64-byte aligned blocks, kept by size class.
 *
 * Freed blocks stay here, so that a training step touches the same pages each time instead of faulting in new ones. The
 * cache is bounded by what was really needed: a new block is taken from the system only after cached ones have been
 * given back, oldest first, until all blocks together are no more than the most that was ever in use (or SLACK). */
#if defined(__linux__) && !defined(_GNU_SOURCE)
#define _GNU_SOURCE
#endif
#include <pthread.h>
#include <sys/mman.h>
#include <unistd.h>

#include "internal.h"

#ifndef MAP_ANONYMOUS
#define MAP_ANONYMOUS MAP_ANON
#endif

#define STEPS_LOG2 3 /* size classes per power of two: at most 12.5 % of a block is not asked for */
#define N_CLASSES (48 << STEPS_LOG2)
#define SLACK ((int64_t)64 << 20)
#define MAPPED ((int64_t)1 << 20) /* blocks from this size on come from mmap */
#define HUGE ((int64_t)8 << 20)   /* and from this size on ask for huge pages */
#define HUGE_PAGE ((int64_t)2 << 20)
#define IN_USE 0x66676c76u
#define CACHED 0x66676361u

typedef struct block {
    int64_t size;  /* of the whole block, this header included */
    int64_t asked; /* bytes counted as in use */
    int64_t held;  /* bytes of size that are in memory or about to be: all but what was released or only reserved */
    uint32_t class, state;
    struct block *older, *newer; /* among all cached blocks */
    struct block *below, *above; /* in the stack of its class */
} block;

_Static_assert(sizeof(block) <= 64, "a block's header must fit before its 64-byte aligned data");

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static block *top[N_CLASSES];
static block *oldest, *newest;
static int64_t in_use, most_in_use, cached, in_use_size, peak_size; /* *in_use count bytes asked for, *_size whole blocks */

static void before_fork(void) { pthread_mutex_lock(&lock); }
static void after_fork(void) { pthread_mutex_unlock(&lock); }
static uintptr_t page = 4096;
static int64_t physical; /* the machine's memory: systems that overcommit would grant more, and kill later */

static void start(void) {
    pthread_atfork(before_fork, after_fork, after_fork);
    physical = (int64_t)sysconf(_SC_PHYS_PAGES) * (int64_t)sysconf(_SC_PAGESIZE);
    if (physical <= 0) physical = FG_LIMIT;
    if (sysconf(_SC_PAGESIZE) > 0) page = (uintptr_t)sysconf(_SC_PAGESIZE);
}

/* The smallest class whose blocks hold n >= 64 bytes; *size is what they hold. */
static uint32_t size_class(int64_t n, int64_t *size) {
    int top_bit = 63 - __builtin_clzll((uint64_t)n);
    int shift = top_bit - STEPS_LOG2;
    int64_t step = (int64_t)1 << (shift < 6 ? 6 : shift);
    *size = (n + step - 1) & -step;
    top_bit = 63 - __builtin_clzll((uint64_t)*size);
    shift = top_bit - STEPS_LOG2;
    return (uint32_t)((top_bit << STEPS_LOG2) + (int)((*size >> (shift < 0 ? 0 : shift)) & ((1 << STEPS_LOG2) - 1)));
}

static void unlink_block(block *b) {
    if (b->above) b->above->below = b->below;
    else top[b->class] = b->below;
    if (b->below) b->below->above = b->above;
    if (b->older) b->older->newer = b->newer;
    else oldest = b->newer;
    if (b->newer) b->newer->older = b->older;
    else newest = b->older;
    cached -= b->held;
}

static void link_block(block *b) {
    b->above = NULL;
    b->below = top[b->class];
    if (b->below) b->below->above = b;
    top[b->class] = b;
    b->newer = NULL;
    b->older = newest;
    if (newest) newest->newer = b;
    else oldest = b;
    newest = b;
    cached += b->held;
}

static void give_back(block *b) {
    if (b->size >= MAPPED) munmap(b, (size_t)b->size);
    else free(b);
}

/* Huge pages only where they are used as a whole: an array of a power of two and its header would take one more. */
static block *take_from_system(int64_t size, int64_t used) {
    void *p = NULL;
    if (size < MAPPED) return posix_memalign(&p, 64, (size_t)size) ? NULL : p;
    p = mmap(NULL, (size_t)size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED) return NULL;
#ifdef MADV_HUGEPAGE
    if (size >= HUGE) madvise(p, (size_t)(used & -HUGE_PAGE), MADV_HUGEPAGE);
#endif
    return p;
}

static void shrink(int64_t bound) {
    while (oldest && in_use_size + cached > bound) {
        block *b = oldest;
        unlink_block(b);
        give_back(b);
    }
}

static block *find_cached(uint32_t class, int64_t size) {
    /* a large block may be up to a quarter larger than asked for: the next two classes */
    uint32_t last = size >= MAPPED ? class + 2 : class;
    for (; class <= last && class < N_CLASSES; class++) {
        if (top[class]) return top[class];
    }
    return NULL;
}

static block *new_block(uint32_t class, int64_t size, int64_t used) {
    int64_t need = in_use_size + size, most = need > peak_size ? need : peak_size;
    if (need > physical) return NULL;
    shrink((most > SLACK ? most : SLACK) - size);
    block *b = take_from_system(size, used);
    if (!b && cached) {
        shrink(0);
        b = take_from_system(size, used);
    }
    if (!b) return NULL;
    b->size = b->held = size;
    b->class = class;
    return b;
}

/* Counts a block as in use; under the lock. */
static void count_in(block *b, int64_t n_bytes) {
    b->state = IN_USE;
    b->asked = n_bytes;
    b->held = b->size;
    in_use += n_bytes;
    if (in_use > most_in_use) most_in_use = in_use;
    in_use_size += b->size;
    if (in_use_size > peak_size) peak_size = in_use_size;
}

/* Gives cached blocks back until all together are within the bound, with so much more in use. */
static void make_room(int64_t more) {
    int64_t need = in_use_size + more, most = need > peak_size ? need : peak_size;
    shrink((most > SLACK ? most : SLACK) - more);
}

void *fg_alloc(int64_t n_bytes) {
    if (n_bytes < 0 || n_bytes > FG_LIMIT) return NULL;
    pthread_once(&once, start);
    int64_t size;
    uint32_t class = size_class((n_bytes ? n_bytes : 1) + 64, &size);
    pthread_mutex_lock(&lock);
    block *b = find_cached(class, size);
    if (b) {
        unlink_block(b);
        if (b->held < b->size) make_room(b->size); /* what was released comes back */
    } else {
        b = new_block(class, size, n_bytes + 64);
    }
    if (b) count_in(b, n_bytes);
    pthread_mutex_unlock(&lock);
    return b ? (char *)b + 64 : NULL;
}

void *fg_reserve(int64_t n_bytes) {
    if (n_bytes < MAPPED || n_bytes > FG_LIMIT) return fg_alloc(n_bytes);
    pthread_once(&once, start);
    int64_t size;
    uint32_t class = size_class(n_bytes + 64, &size);
    pthread_mutex_lock(&lock);
    block *b = size > physical ? NULL : take_from_system(size, n_bytes + 64); /* a cached one would be in memory already */
    if (b) {
        b->size = size;
        b->class = class;
        b->asked = b->held = 0;
        b->state = IN_USE;
    }
    pthread_mutex_unlock(&lock);
    return b ? (char *)b + 64 : NULL;
}

void fg_commit(void *p, int64_t n_bytes) {
    block *b = (block *)((char *)p - 64);
    pthread_mutex_lock(&lock);
    if (b->state == IN_USE && !b->held) {
        make_room(b->size);
        count_in(b, n_bytes);
    }
    pthread_mutex_unlock(&lock);
}

/* Pages that are partly outside of the range stay. */
void fg_release(void *p, int64_t offset, int64_t n_bytes) {
#ifdef MADV_DONTNEED
    block *b = (block *)((char *)p - 64);
    const uintptr_t at = (uintptr_t)p + (uintptr_t)offset;
    const uintptr_t first = (at + page - 1) & ~(page - 1), end = (at + (uintptr_t)n_bytes) & ~(page - 1);
    pthread_mutex_lock(&lock);
    if (b->state == IN_USE && b->size >= MAPPED && n_bytes <= b->held && n_bytes <= b->asked && first < end) {
        (void)madvise((void *)first, (size_t)(end - first), MADV_DONTNEED);
        b->asked -= n_bytes, in_use -= n_bytes;
        b->held -= n_bytes, in_use_size -= n_bytes;
    }
    pthread_mutex_unlock(&lock);
#endif
}

void fg_free(void *p) {
    if (!p) return;
    block *b = (block *)((char *)p - 64);
    pthread_mutex_lock(&lock);
    if (b->state == IN_USE) { /* a second fg_free of the same block does nothing */
        b->state = CACHED;
        in_use -= b->asked;
        in_use_size -= b->held;
        link_block(b);
    }
    pthread_mutex_unlock(&lock);
}

int64_t fg_alloc_in_use(void) {
    pthread_mutex_lock(&lock);
    int64_t n = in_use;
    pthread_mutex_unlock(&lock);
    return n;
}

int64_t fg_alloc_peak(void) {
    pthread_mutex_lock(&lock);
    int64_t n = most_in_use;
    most_in_use = in_use;
    pthread_mutex_unlock(&lock);
    return n;
}

int64_t fg_alloc_cached(void) {
    pthread_mutex_lock(&lock);
    int64_t n = cached;
    pthread_mutex_unlock(&lock);
    return n;
}

/* Gives every cached block back and forgets the peak. */
void fg_alloc_trim(void) {
    pthread_mutex_lock(&lock);
    shrink(0);
    peak_size = in_use_size;
    pthread_mutex_unlock(&lock);
}
