/* DYNAMIC_SLICE and DYNAMIC_UPDATE: a copy of a block between two strided views, one of which is moved by the starts.
 */
#include "k_index.h"

typedef struct {
    fg_kernel base;
    int64_t es, n_tasks, rows;   /* rows: of the innermost run */
    int nd, moving_out, n_start; /* moving_out: the starts move the destination, not the source */
    int64_t size[FG_MAX_DIMS];   /* merged loops; nd >= 1 */
    fg_operand from, to;
    struct {
        int32_t slot;
        int64_t offset, most, stride; /* most: the largest legal start */
    } start[FG_MAX_DIMS];
} fg_block;

typedef struct {
    const fg_block *k;
    const char *from;
    char *to;
} block_run;

#define BLOCK_COPY(T)                                                                                                  \
    static void block_copy_##T(char *to, int64_t ts, const char *from, int64_t fs, int64_t n) {                        \
        typedef T any __attribute__((aligned(1), may_alias));                                                          \
        for (int64_t i = 0; i < n; i++) *(any *)(to + i * ts) = *(const any *)(from + i * fs);                         \
    }
BLOCK_COPY(uint8_t)
BLOCK_COPY(uint16_t)
BLOCK_COPY(uint32_t)
BLOCK_COPY(uint64_t)

static void block_row(int64_t es, char *to, int64_t ts, const char *from, int64_t fs, int64_t n) {
    if (ts == es && fs == es) memcpy(to, from, (size_t)(n * es));
    else if (es == 4) block_copy_uint32_t(to, ts, from, fs, n);
    else if (es == 2) block_copy_uint16_t(to, ts, from, fs, n);
    else if (es == 1) block_copy_uint8_t(to, ts, from, fs, n);
    else block_copy_uint64_t(to, ts, from, fs, n);
}

static void block_task(void *ctx, int64_t task) {
    const block_run *r = ctx;
    const fg_block *k = r->k;
    const int in = k->nd - 1;
    int64_t per = index_ceil(k->rows, k->n_tasks), last = index_min(k->rows, (task + 1) * per);
    for (int64_t i = task * per; i < last; i++) {
        int64_t q = i, f = 0, t = 0;
        for (int d = in - 1; d >= 0; d--) {
            int64_t x = q % k->size[d];
            q /= k->size[d];
            f += x * k->from.stride[d], t += x * k->to.stride[d];
        }
        block_row(k->es, r->to + t, k->to.stride[in], r->from + f, k->from.stride[in], k->size[in]);
    }
}

static void block_run_kernel(const fg_kernel *kernel, void *const *base) {
    const fg_block *k = (const fg_block *)kernel;
    int64_t move = 0;
    if (k->n_tasks == 0) return;
    for (int d = 0; d < k->n_start; d++) {
        int64_t i = k->start[d].offset;
        if (k->start[d].slot >= 0) i = index_load((const char *)base[k->start[d].slot] + i, 0);
        i = i < 0 ? 0 : i > k->start[d].most ? k->start[d].most : i;
        move += i * k->start[d].stride;
    }
    block_run r = {k, fg_address(&k->from, base) + (k->moving_out ? 0 : move),
                   fg_address(&k->to, base) + (k->moving_out ? move : 0)};
    fg_parallel_for(k->n_tasks, block_task, &r);
}

static void block_read_starts(fg_reader *r, fg_block *k, const int64_t *size, const int64_t *xdim,
                              const fg_operand *x) {
    for (int d = 0; d < k->nd; d++) {
        k->start[d].slot = (int32_t)fg_read(r, "a start's slot", -1, FG_MAX_SLOT);
        k->start[d].offset = fg_read(r, "a start's offset", -FG_LIMIT, FG_LIMIT);
        k->start[d].most = xdim[d] - size[d];
        k->start[d].stride = x->stride[d];
    }
    k->n_start = k->nd;
}

/* Loops of one step go, neighbours that continue each other in both views are merged. */
static void block_merge(fg_block *k) {
    int64_t *f = k->from.stride, *t = k->to.stride;
    int m = 0;
    for (int d = 0; d < k->nd; d++) {
        if (k->size[d] == 1) continue;
        if (m > 0 && f[m - 1] == f[d] * k->size[d] && t[m - 1] == t[d] * k->size[d]) {
            k->size[m - 1] *= k->size[d], f[m - 1] = f[d], t[m - 1] = t[d];
        } else {
            k->size[m] = k->size[d], f[m] = f[d], t[m] = t[d], m++;
        }
    }
    if (m == 0) k->size[0] = 1, f[0] = t[0] = k->es, m = 1;
    k->nd = m;
}

static fg_kernel *block_finish(fg_reader *r, fg_block *k) {
    if (!fg_read_end(r)) return NULL;
    int64_t n = 1;
    for (int d = 0; d < k->nd; d++) {
        n *= k->size[d];
        if (k->moving_out && k->size[d] > 1 && k->to.stride[d] == 0)
            return fg_fail(r, "out must not have a zero stride");
    }
    k->base.run = block_run_kernel;
    if (n > 0) {
        block_merge(k);
        k->rows = n / k->size[k->nd - 1];
        if (k->rows == 1 && n * k->es >= 4 * INDEX_TASK) { /* one long run: cut it in pieces */
            int64_t pieces = 2;
            while (pieces < INDEX_TASKS && k->size[0] % (2 * pieces) == 0) pieces *= 2;
            if (k->size[0] % pieces == 0) {
                k->size[1] = k->size[0] / pieces, k->size[0] = pieces;
                k->from.stride[1] = k->from.stride[0], k->to.stride[1] = k->to.stride[0];
                k->from.stride[0] *= k->size[1], k->to.stride[0] *= k->size[1];
                k->nd = 2, k->rows = pieces;
            }
        }
        k->n_tasks = n * k->es < 4 * INDEX_TASK ? 1 : index_min(k->rows, INDEX_TASKS);
    }
    return index_finish(r, k, sizeof *k);
}

static void block_read_sizes(fg_reader *r, fg_block *k, int64_t *xdim) {
    k->es = index_elem_size(r);
    k->nd = (int)fg_read(r, "the number of dimensions", 0, FG_MAX_DIMS);
    fg_read_dims(r, "size", k->nd, k->size);
    fg_read_dims(r, "xdim", k->nd, xdim);
    for (int d = 0; d < k->nd && !r->failed; d++)
        if (k->size[d] > xdim[d])
            fg_fail(r, "size[%d] must be at most %lld, got %lld", d, (long long)xdim[d], (long long)k->size[d]);
}

static void block_contiguous(const fg_block *k, fg_operand *o) {
    int64_t s = k->es;
    for (int d = k->nd - 1; d >= 0; d--) o->stride[d] = s, s *= k->size[d];
}

fg_kernel *FG_NAME(fg_dynamic_slice_new)(fg_reader *r) {
    fg_block k;
    int64_t xdim[FG_MAX_DIMS] = {0};
    memset(&k, 0, sizeof k);
    block_read_sizes(r, &k, xdim);
    fg_read_view(r, "x", 0, k.nd, xdim, &k.from);
    block_read_starts(r, &k, k.size, xdim, &k.from);
    fg_read_pointer(r, "out", 0, &k.to);
    if (r->failed) return NULL;
    block_contiguous(&k, &k.to);
    return block_finish(r, &k);
}

fg_kernel *FG_NAME(fg_dynamic_update_new)(fg_reader *r) {
    fg_block k;
    int64_t xdim[FG_MAX_DIMS] = {0};
    memset(&k, 0, sizeof k);
    k.moving_out = 1;
    block_read_sizes(r, &k, xdim);
    fg_read_view(r, "out", 0, k.nd, xdim, &k.to);
    block_read_starts(r, &k, k.size, xdim, &k.to);
    fg_read_view(r, "upd", 0, k.nd, k.size, &k.from);
    return block_finish(r, &k);
}
