/* MAP: a small program of vector instructions, run block by block so that its registers stay in the nearest cache. */
#include <pthread.h>

#include "internal.h"
#include "k_map_box.h"
#include "k_map_plan.h"

typedef struct {
    const map_kernel *k;
    void *const *base;
} map_run;

/* One thread's view of a task. */
typedef struct {
    const map_kernel *k;
    char **in, **out;  /* where index 0 of each operand lies */
    void **place;      /* the table of pointers */
    uint32_t *buffers; /* k->n_buffers blocks */
    int64_t block;     /* elements of each */
} map_state;

static uint32_t *buffer_at(const map_state *s, int32_t i) { return s->buffers + i * s->block; }

static int64_t position(const map_kernel *k, const fg_operand *o, const int64_t *index) {
    int64_t p = 0;
    for (int d = 0; d < k->nd; d++) p += index[d] * o->stride[d];
    return p;
}

/* ---- walking the flat index range of a block as boxes of the last two dimensions ---- */

static void index_of(const map_kernel *k, int64_t flat, int64_t *index) {
    for (int d = k->nd - 1; d > 0; d--) {
        int64_t q = flat / k->dim[d];
        index[d] = flat - q * k->dim[d];
        flat = q;
    }
    index[0] = flat;
}

static void carry(const map_kernel *k, int64_t *index, int d) {
    for (; d > 0 && index[d] == k->dim[d]; d--) {
        index[d] = 0;
        index[d - 1]++;
    }
}

/* The next box at index with at most n elements; then index moves behind it. */
static box next_box(const map_kernel *k, int64_t *index, int64_t n) {
    int last = k->nd - 1;
    int64_t cols = k->dim[last] - index[last];
    box b = {1, cols < n ? cols : n, 0, 0};
    if (last > 0 && index[last] == 0 && cols <= n) {
        int64_t rows = k->dim[last - 1] - index[last - 1];
        b.rows = n / cols < rows ? n / cols : rows;
        index[last - 1] += b.rows;
    } else {
        index[last] += b.cols;
        if (index[last] < k->dim[last] || last == 0) return b;
        index[last] = 0;
        index[last - 1]++;
    }
    carry(k, index, last - 1);
    return b;
}

static box with_strides(const map_kernel *k, box b, const fg_operand *o) {
    b.row_stride = k->nd > 1 ? o->stride[k->nd - 2] : 0;
    b.col_stride = o->stride[k->nd - 1];
    return b;
}

static void load_one(const map_state *s, int i, int64_t at, uint32_t *dst, box b) {
    const fg_operand *o = &s->k->in[i].o;
    if (o->slot < 0) iota_box(dst, (uint32_t)o->offset + (uint32_t)at, b);
    else load_box(dst, s->in[i] + at, o->dtype, b);
}

/* Loads the whole planes of the last two dimensions that come next at index, where there are at least two among n
 * elements, and moves index behind them; the number of elements. An operand that does not change from plane to plane is
 * read once. */
static int64_t load_planes(const map_state *s, int i, uint32_t *dst, int64_t *index, int64_t n) {
    const map_kernel *k = s->k;
    const fg_operand *o = &k->in[i].o;
    int last = k->nd - 1, up = k->nd - 3;
    if (up < 0 || index[last] != 0 || index[last - 1] != 0) return 0;
    int64_t plane = k->dim[last - 1] * k->dim[last], left = k->dim[up] - index[up];
    int64_t planes = n / plane < left ? n / plane : left, at = position(k, o, index);
    if (planes < 2) return 0;
    box b = {k->dim[last - 1], k->dim[last], o->stride[last - 1], o->stride[last]};
    int64_t distinct = o->stride[up] == 0 ? 1 : planes;
    for (int64_t p = 0; p < distinct; p++) load_one(s, i, at + p * o->stride[up], dst + p * plane, b);
    if (distinct < planes) repeat_row(dst, (box){planes, plane, 0, 0});
    index[up] += planes;
    carry(k, index, up);
    return planes * plane;
}

static int is_row(box b, int64_t n) { return b.rows == 1 && b.cols == n && b.col_stride == 4; }

/* Inputs of the block: in place where the memory is a row of words, else copied. whole: n is a multiple of FG_LANES. */
static void load_flat(const map_state *s, int i, int64_t start, const int64_t *first, int64_t n, int whole) {
    const map_kernel *k = s->k;
    const map_operand *o = &k->in[i];
    uint32_t *dst = buffer_at(s, o->buffer);
    s->place[o->place] = dst;
    if (o->flat) {
        int64_t size = fg_dtype_size(o->o.dtype);
        char *p = s->in[i] + start * size;
        if (whole && o->keep) s->place[o->place] = p;
        else load_box(dst, p, o->o.dtype, (box){1, n, 0, size});
        return;
    }
    int64_t index[FG_MAX_DIMS];
    memcpy(index, first, sizeof(int64_t) * (size_t)k->nd);
    while (n > 0) {
        int64_t done = load_planes(s, i, dst, index, n);
        dst += done;
        n -= done;
        if (n == 0) return;
        int64_t at = position(k, &o->o, index);
        box b = with_strides(k, next_box(k, index, n), &o->o);
        if (whole && o->keep && is_row(b, n) && dst == s->place[o->place]) { /* the whole block at once */
            s->place[o->place] = s->in[i] + at;
            return;
        }
        load_one(s, i, at, dst, b);
        dst += b.rows * b.cols;
        n -= b.rows * b.cols;
    }
}

/* Where instructions write output i directly; then nothing is left to store. */
static int aim_output(const map_state *s, int i, int64_t start, const int64_t *first, int64_t n, int whole) {
    const map_kernel *k = s->k;
    const map_operand *o = &k->out[i];
    int32_t own = k->n_buffers + k->n_in + i;
    if (!o->keep) return 0;
    s->place[own] = buffer_at(s, o->buffer);
    if (!whole) return 0;
    if (o->flat) {
        s->place[own] = s->out[i] + start * 4;
        return 1;
    }
    int64_t index[FG_MAX_DIMS];
    memcpy(index, first, sizeof(int64_t) * (size_t)k->nd);
    int64_t at = position(k, &o->o, index);
    if (!is_row(with_strides(k, next_box(k, index, n), &o->o), n)) return 0;
    s->place[own] = s->out[i] + at;
    return 1;
}

static void store_flat(const map_state *s, int i, int64_t start, const int64_t *first, int64_t n) {
    const map_kernel *k = s->k;
    const map_operand *o = &k->out[i];
    const uint32_t *src = s->place[o->place];
    if (o->flat) {
        int64_t size = fg_dtype_size(o->o.dtype);
        char *p = s->out[i] + start * size;
        if (p != (const char *)src) store_box(src, p, o->o.dtype, (box){1, n, 0, size});
        return;
    }
    int64_t index[FG_MAX_DIMS];
    memcpy(index, first, sizeof(int64_t) * (size_t)k->nd);
    while (n > 0) {
        int64_t at = position(k, &o->o, index);
        box b = with_strides(k, next_box(k, index, n), &o->o);
        char *p = s->out[i] + at;
        if (p != (const char *)src) store_box(src, p, o->o.dtype, b);
        src += b.rows * b.cols;
        n -= b.rows * b.cols;
    }
}

static void run_program(const map_state *s, int64_t n, map_ahead *ahead) {
    const map_kernel *k = s->k;
    void *const *place = s->place;
    n = (n + FG_LANES - 1) & -FG_LANES;
    for (const map_instr *i = k->instr, *end = i + k->n_instr; i < end; i++) {
        const void *src[4] = {place[i->src[0]], place[i->src[1]], place[i->src[2]], place[i->src[3]]};
        i->fn(place[i->dst], src, n);
        if (ahead->n) ahead_step(ahead);
    }
}

/* What the block behind start will read where it lies. */
static void look_ahead(const map_state *s, int64_t start, int64_t n, map_ahead *a) {
    const map_kernel *k = s->k;
    a->n = 0;
    if (k->total * 4 * k->n_in < AHEAD_BYTES || n < s->block) return;
    for (int i = 0; i < k->n_in && a->n < AHEAD_MOST; i++) {
        if (k->in[i].flat && k->in[i].keep) a->p[a->n++] = s->in[i] + (start + n) * 4;
    }
    ahead_plan(a, n * 4, k->n_instr);
}

static void run_flat_block(const map_state *s, int64_t start, int64_t n) {
    const map_kernel *k = s->k;
    int64_t first[FG_MAX_DIMS];
    uint64_t stored[FG_MAP_MAX_OPERANDS / 64];
    int whole = n % FG_LANES == 0;
    index_of(k, start, first);
    for (int i = 0; i < k->n_in; i++) {
        if (!k->in[i].splat) load_flat(s, i, start, first, n, whole);
    }
    for (int i = 0; i < k->n_out; i++) {
        if (i % 64 == 0) stored[i / 64] = 0;
        stored[i / 64] |= (uint64_t)aim_output(s, i, start, first, n, whole) << (i % 64);
    }
    map_ahead ahead;
    look_ahead(s, start, n, &ahead);
    run_program(s, n, &ahead);
    for (int i = 0; i < k->n_out; i++) {
        if (!(stored[i / 64] >> (i % 64) & 1)) store_flat(s, i, start, first, n);
    }
}

/* ---- tiles: rows along tile_dim, columns along the last dimension ---- */

/* The index of a tile's first element, and how many rows and columns it has. */
static box find_tile(const map_kernel *k, int64_t tile, int64_t *index) {
    int last = k->nd - 1, t = k->tile_dim;
    int64_t down = (k->dim[t] + k->tile_rows - 1) / k->tile_rows, across = (k->dim[last] + k->tile_cols - 1) / k->tile_cols;
    int64_t rest = tile / across;
    index[last] = (tile - rest * across) * k->tile_cols;
    tile = rest / down;
    index[t] = (rest - tile * down) * k->tile_rows;
    for (int d = last - 1; d >= 0; d--) {
        if (d == t) continue;
        int64_t q = tile / k->dim[d];
        index[d] = tile - q * k->dim[d];
        tile = q;
    }
    int64_t rows = k->dim[t] - index[t], cols = k->dim[last] - index[last];
    return (box){rows < k->tile_rows ? rows : k->tile_rows, cols < k->tile_cols ? cols : k->tile_cols, 0, 0};
}

static box tile_strides(const map_kernel *k, box b, const fg_operand *o) {
    b.row_stride = o->stride[k->tile_dim];
    b.col_stride = o->stride[k->nd - 1];
    return b;
}

static void run_tile(const map_state *s, int64_t tile) {
    const map_kernel *k = s->k;
    int64_t index[FG_MAX_DIMS];
    box b = find_tile(k, tile, index);
    if (k->transpose) {
        const fg_operand *x = &k->in[0].o, *y = &k->out[0].o;
        transpose_words(s->out[0] + position(k, y, index), y->stride[k->tile_dim], s->in[0] + position(k, x, index),
                        x->stride[k->nd - 1], b.rows, b.cols);
        return;
    }
    for (int i = 0; i < k->n_in; i++) {
        const map_operand *o = &k->in[i];
        if (o->splat) continue;
        s->place[o->place] = buffer_at(s, o->buffer);
        load_one(s, i, position(k, &o->o, index), s->place[o->place], tile_strides(k, b, &o->o));
    }
    for (int i = 0; i < k->n_out; i++) {
        if (k->out[i].keep) s->place[k->n_buffers + k->n_in + i] = buffer_at(s, k->out[i].buffer);
    }
    map_ahead none = {.n = 0};
    run_program(s, b.rows * b.cols, &none);
    for (int i = 0; i < k->n_out; i++) {
        const map_operand *o = &k->out[i];
        store_box(s->place[o->place], s->out[i] + position(k, &o->o, index), o->o.dtype, tile_strides(k, b, &o->o));
    }
}

/* ---- tasks ---- */

static void fill(uint32_t *d, uint32_t value, int64_t n) {
    for (int64_t i = 0; i < n; i++) d[i] = value;
}

static void prepare(const map_state *s) {
    const map_kernel *k = s->k;
    for (int i = 0; i < k->n_buffers; i++) s->place[i] = buffer_at(s, i);
    for (int i = 0; i < k->n_const; i++) fill(buffer_at(s, k->constant[i].buffer), k->constant[i].bits, s->block);
    for (int i = 0; i < k->n_in; i++) {
        if (!k->in[i].splat) continue;
        uint32_t value;
        load_one(s, i, 0, &value, (box){1, 1, 0, 0});
        fill(buffer_at(s, k->in[i].place), value, s->block);
    }
}

static void run_units(const map_state *s, int64_t start, int64_t end) {
    const map_kernel *k = s->k;
    if (k->copy) {
        int64_t size = fg_dtype_size(k->in[0].o.dtype);
        memmove(s->out[0] + start * size, s->in[0] + start * size, (size_t)((end - start) * size));
        return;
    }
    prepare(s);
    if (k->tile_dim >= 0) {
        for (int64_t t = start; t < end; t++) run_tile(s, t);
        return;
    }
    for (int64_t i = start; i < end; i += s->block) run_flat_block(s, i, end - i < s->block ? end - i : s->block);
}

static void run_with_buffers(const map_run *run, int64_t task, uint32_t *buffers) {
    const map_kernel *k = run->k;
    void *pointers[FG_MAP_MAX_VALUES + 4 * FG_MAP_MAX_OPERANDS];
    char **in = (char **)pointers, **out = in + k->n_in;
    map_state s = {k, in, out, pointers + k->n_in + k->n_out, buffers, k->block};
    for (int i = 0; i < k->n_in; i++) in[i] = k->in[i].o.slot < 0 ? NULL : fg_address(&k->in[i].o, run->base);
    for (int i = 0; i < k->n_out; i++) out[i] = fg_address(&k->out[i].o, run->base);
    int64_t start = task * k->task_units, end = start + k->task_units;
    run_units(&s, start, end < k->n_units ? end : k->n_units);
}

static void run_task(void *ctx, int64_t task) {
    /* for the unlikely case that a program is too large for the stack and memory is out: one task at a time */
    static _Alignas(64) uint32_t spare[FG_MAP_MAX_VALUES * MIN_BLOCK];
    static pthread_mutex_t spare_lock = PTHREAD_MUTEX_INITIALIZER;
    const map_run *run = ctx;
    int64_t bytes = run->k->n_buffers * run->k->block * 4;
    if (bytes <= STACK_BYTES) {
        _Alignas(64) uint32_t near[STACK_BYTES / 4];
        run_with_buffers(run, task, near);
        return;
    }
    uint32_t *far = fg_alloc(bytes);
    if (!far) pthread_mutex_lock(&spare_lock);
    run_with_buffers(run, task, far ? far : spare);
    if (!far) pthread_mutex_unlock(&spare_lock);
    fg_free(far);
}

static void map_run_all(const fg_kernel *kernel, void *const *base) {
    const map_kernel *k = (const map_kernel *)kernel;
    map_run run = {k, base};
    if (k->n_tasks == 1) run_task(&run, 0);
    else fg_parallel_for(k->n_tasks, run_task, &run);
}

/* ---- creation ---- */

static int plan(fg_reader *r, map_kernel *k, map_regs *regs, const map_words *w, int64_t n, int64_t n_regs) {
    memset(regs->place, -1, sizeof(int32_t) * (size_t)n_regs * 3);
    order_dims(k);
    for (int i = 0; i < k->n_in; i++) classify(k, &k->in[i]);
    for (int i = 0; i < k->n_out; i++) classify(k, &k->out[i]);
    place_inputs(k, regs);
    place_instructions(r, k, regs, w, (int)n);
    if (!r->failed && k->n_buffers > FG_MAP_MAX_VALUES) {
        fg_fail(r, "at most %d registers, constants and scalar inputs fit one kernel, got more", FG_MAP_MAX_VALUES);
    }
    if (!r->failed) place_outputs(r, k, regs);
    if (r->failed) return 0;
    number_places(k);
    choose_blocks(k, cost_of(k, w, (int)n));
    return 1;
}

static int read_map(fg_reader *r, map_kernel *k) {
    k->nd = (int32_t)fg_read(r, "ndim", 0, FG_MAX_DIMS);
    k->total = fg_read_dims(r, "a dimension", k->nd, k->dim);
    k->n_in = (int32_t)fg_read(r, "n_in", 0, FG_MAP_MAX_OPERANDS);
    k->n_out = (int32_t)fg_read(r, "n_out", 1, FG_MAP_MAX_OPERANDS);
    int64_t n_regs = fg_read(r, "n_regs", k->n_in > 1 ? k->n_in : 1, MAX_REGS), n = fg_read(r, "n_instr", 0, MAX_INSTR);
    if (r->failed) return 0;
    size_t room = (size_t)(n ? n : 1);
    k->in = calloc((size_t)k->n_in + 1, sizeof *k->in);
    k->out = calloc((size_t)k->n_out, sizeof *k->out);
    k->instr = calloc(room, sizeof *k->instr);
    k->constant = calloc(room, sizeof *k->constant);
    map_words *w = calloc(room, sizeof *w);
    int32_t *memory = malloc(sizeof(int32_t) * (size_t)n_regs * 3);
    int ok = k->in && k->out && k->instr && k->constant && w && memory;
    if (!ok) fg_fail(r, "out of memory");
    if (ok) {
        map_regs regs = {memory, memory + n_regs, memory + 2 * n_regs};
        read_inputs(r, k);
        read_outputs(r, k, n_regs);
        for (int64_t j = 0; j < n && !r->failed; j++) read_instr(r, &w[j], n_regs);
        ok = fg_read_end(r) && (k->total == 0 || plan(r, k, &regs, w, n, n_regs));
    }
    free(w);
    free(memory);
    return ok;
}

fg_kernel *FG_NAME(fg_map_new)(fg_reader *r) {
    map_kernel *k = calloc(1, sizeof *k);
    if (!k) return fg_fail(r, "out of memory");
    k->base.run = map_run_all;
    k->base.destroy = map_destroy;
    if (!read_map(r, k)) {
        map_destroy(&k->base);
        return NULL;
    }
    return &k->base;
}

#include "k_rows.h"
