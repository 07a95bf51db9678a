/* TILES: several kernels, one after another, for each of many independent parts of their data.
 *
 * What one of them writes for the next to read is then a piece that stays in the cache, in memory of the thread's own,
 * instead of a whole array. The parts are shared out to the threads; within one, everything runs on its thread. */
#include <pthread.h>

#include "internal.h"

#define TILES_MOST_DIMS 8
#define TILES_MOST_KERNELS 64
#define TILES_MOST_OPERANDS 1024
#define TILES_TASKS 64

typedef struct {
    int32_t slot; /* or ~number of a piece of scratch */
    int64_t step[TILES_MOST_DIMS];
} tiles_operand;

typedef struct {
    fg_kernel *kernel;
    int32_t n_operands;
    tiles_operand *operand;
} tiles_part;

typedef struct {
    fg_kernel base;
    int32_t nd, n_scratch, n_parts;
    int64_t dim[TILES_MOST_DIMS], total, scratch_bytes, most_operands;
    int64_t *scratch; /* offsets */
    tiles_part *part;
    void *spare; /* scratch for when memory is out */
} tiles_kernel;

typedef struct {
    const tiles_kernel *k;
    void *const *base;
} tiles_run;

static void tiles_one(const tiles_kernel *k, void *const *base, char *scratch, int64_t tile, void **table) {
    int64_t index[TILES_MOST_DIMS];
    for (int d = k->nd - 1; d >= 0; d--) index[d] = tile % k->dim[d], tile /= k->dim[d];
    for (int i = 0; i < k->n_parts; i++) {
        const tiles_part *p = &k->part[i];
        for (int j = 0; j < p->n_operands; j++) {
            const tiles_operand *o = &p->operand[j];
            if (o->slot < 0) {
                table[j] = scratch + k->scratch[~o->slot];
                continue;
            }
            int64_t at = 0;
            for (int d = 0; d < k->nd; d++) at += index[d] * o->step[d];
            table[j] = (char *)base[o->slot] + at;
        }
        p->kernel->run(p->kernel, table);
    }
}

static void tiles_task(void *ctx, int64_t task) {
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    const tiles_run *r = ctx;
    const tiles_kernel *k = r->k;
    const int64_t n = (k->total + TILES_TASKS - 1) / TILES_TASKS, first = task * n;
    const int64_t last = first + n < k->total ? first + n : k->total;
    void *table[TILES_MOST_OPERANDS];
    char *scratch = k->scratch_bytes ? fg_alloc(k->scratch_bytes) : NULL;
    const int shared = k->scratch_bytes && !scratch; /* out of memory: one task at a time */
    if (shared) pthread_mutex_lock(&lock);
    for (int64_t t = first; t < last; t++) tiles_one(k, r->base, scratch ? scratch : k->spare, t, table);
    if (shared) pthread_mutex_unlock(&lock);
    fg_free(scratch);
}

static void tiles_run_all(const fg_kernel *kernel, void *const *base) {
    const tiles_kernel *k = (const tiles_kernel *)kernel;
    tiles_run r = {k, base};
    const int64_t n = (k->total + TILES_TASKS - 1) / TILES_TASKS;
    if (k->total == 0) return;
    fg_parallel_for((k->total + n - 1) / n, tiles_task, &r);
}

static void tiles_destroy(fg_kernel *kernel) {
    tiles_kernel *k = (tiles_kernel *)kernel;
    for (int i = 0; k->part && i < k->n_parts; i++) {
        fg_kernel_free(k->part[i].kernel);
        free(k->part[i].operand);
    }
    free(k->part), free(k->scratch), free(k->spare);
    free(k);
}

static void tiles_read_part(fg_reader *r, tiles_kernel *k, tiles_part *p) {
    const int kind = (int)fg_read(r, "a kernel's kind", 0, FG_TILES - 1);
    p->n_operands = (int32_t)fg_read(r, "a kernel's number of operands", 0, TILES_MOST_OPERANDS);
    p->operand = calloc((size_t)p->n_operands + 1, sizeof *p->operand);
    if (!p->operand) fg_fail(r, "out of memory");
    for (int j = 0; j < p->n_operands && !r->failed; j++) {
        p->operand[j].slot = (int32_t)fg_read(r, "an operand's slot or scratch", -k->n_scratch, FG_MAX_SLOT);
        for (int d = 0; d < k->nd; d++) p->operand[j].step[d] = fg_read(r, "an operand's step", -FG_LIMIT, FG_LIMIT);
    }
    const int64_t n = fg_read(r, "a kernel's number of words", 0, FG_LIMIT);
    if (r->failed) return;
    if (n > r->n - r->pos) {
        fg_fail(r, "a kernel has more words than there are");
        return;
    }
    char message[256];
    p->kernel = fg_kernel_new(kind, r->word + r->pos, n, message, sizeof message);
    if (!p->kernel) fg_fail(r, "%s", message);
    r->pos += n;
}

static int tiles_read(fg_reader *r, tiles_kernel *k) {
    k->nd = (int32_t)fg_read(r, "the number of dimensions", 1, TILES_MOST_DIMS);
    k->total = fg_read_dims(r, "a dimension", k->nd, k->dim);
    k->n_scratch = (int32_t)fg_read(r, "the number of scratch arrays", 0, TILES_MOST_OPERANDS);
    k->scratch = calloc((size_t)k->n_scratch + 1, sizeof *k->scratch);
    if (!k->scratch) fg_fail(r, "out of memory");
    for (int i = 0; i < k->n_scratch && !r->failed; i++) {
        k->scratch[i] = k->scratch_bytes;
        /* 64 bytes more, so that arrays of a power of two do not compete for the same sets of the cache */
        k->scratch_bytes += ((fg_read(r, "bytes of scratch", 0, (int64_t)1 << 40) + 63) & -64) + 64;
    }
    k->n_parts = (int32_t)fg_read(r, "the number of kernels", 1, TILES_MOST_KERNELS);
    k->part = r->failed ? NULL : calloc((size_t)k->n_parts, sizeof *k->part);
    if (!k->part) fg_fail(r, "out of memory");
    for (int i = 0; i < k->n_parts && !r->failed; i++) tiles_read_part(r, k, &k->part[i]);
    int64_t inner = 0;
    for (int i = 0; i < k->n_parts && !r->failed; i++) { /* which run within a task, on its thread alone */
        const fg_kernel *p = k->part[i].kernel;
        if (p->once + p->each > inner) inner = p->once + p->each;
    }
    k->base.each = k->scratch_bytes + inner, k->base.tasks = k->total < TILES_TASKS ? k->total : TILES_TASKS;
    k->spare = k->scratch_bytes && !r->failed ? malloc((size_t)k->scratch_bytes) : NULL;
    if (k->scratch_bytes && !k->spare) fg_fail(r, "out of memory");
    return fg_read_end(r);
}

fg_kernel *fg_tiles_new(fg_reader *r) {
    tiles_kernel *k = calloc(1, sizeof *k);
    if (!k) return fg_fail(r, "out of memory");
    k->base.run = tiles_run_all;
    k->base.destroy = tiles_destroy;
    if (!tiles_read(r, k)) {
        tiles_destroy(&k->base);
        return NULL;
    }
    return &k->base;
}
