/* ROWS: a MAP over rows whose program may also sum a row, take its largest or smallest element, and spread such a value
 * over its row again: softmax, normalisations and their derivatives in one pass.  Included by k_map.c.
 *
 * A block is a few whole rows. A register holds one value for each element of the block (a wide one), or one for each
 * row. A row is folded as REDUCE does, so that the result is the same to the bit. */
#ifndef FG_K_ROWS_H
#define FG_K_ROWS_H
#include "k_fold.h"
#include "k_map_box.h"
#include "k_map_plan.h"

#define ROWS_BLOCK 2048         /* elements of a block to aim at */
#define ROWS_MOST_COLUMNS 16384 /* of a row */
#define ROWS_MOST_REGISTERS 512
#define ROWS_BYTES 262144       /* of registers for a block of several rows */

enum { ROWS_SPREAD = -1, ROWS_SUM = -2, ROWS_MAX = -3, ROWS_MIN = -4 };

typedef struct {
    fg_operand o;
    int32_t reg;
    uint8_t wide, same, flat; /* the same for every row; wide, contiguous words */
} rows_operand;

typedef struct {
    map_function fn; /* or NULL: */
    int32_t op;
    int32_t dst, src[4]; /* places: registers, then outputs in memory */
    uint8_t wide;
} rows_instr;

typedef struct {
    fg_kernel base;
    int32_t nd, n_in, n_out, n_regs, n_instr, n_const;
    int64_t dim[FG_MAX_DIMS], rows, cols;
    int64_t block, wide_words, row_words; /* rows of a block; words of a register */
    int64_t task_rows, n_tasks, words;
    rows_operand *in, *out;
    rows_instr *instr;
    map_const *constant; /* buffer: the register */
    uint8_t *wide;       /* of each register */
    int32_t *direct;     /* of each output: 1 when instructions write it where it lies */
    int64_t *at;         /* of each register: its words in the thread's memory */
} rows_kernel;

typedef struct {
    const rows_kernel *k;
    void *const *base;
} rows_run;

typedef struct {
    const rows_kernel *k;
    void *const *base;
    uint32_t *memory;
    void *place[ROWS_MOST_REGISTERS + FG_MAP_MAX_OPERANDS];
} rows_state;

static uint32_t *rows_buffer(const rows_state *s, int r) { return s->memory + s->k->at[r]; }

static char *rows_base(const rows_state *s, const fg_operand *o) { return o->slot < 0 ? NULL : fg_address(o, s->base); }

/* ---- moving a block ---- */

/* Splits rows [first, first + n) into boxes along the innermost dimension of rows, and calls this for each. */
static void rows_move(const rows_state *s, const rows_operand *x, uint32_t *reg, int64_t first, int64_t n, int store) {
    const rows_kernel *k = s->k;
    const int last = k->nd - 2; /* the innermost dimension of rows, or -1 */
    char *p = rows_base(s, &x->o);
    while (n > 0) {
        int64_t at = 0, rest = first, run = n, cols = x->wide ? k->cols : 1;
        for (int d = last; d >= 0; d--) {
            int64_t q = rest / k->dim[d], i = rest - q * k->dim[d];
            if (d == last && k->dim[d] - i < run) run = k->dim[d] - i;
            at += i * x->o.stride[d];
            rest = q;
        }
        box b = {run, cols, last < 0 ? 0 : x->o.stride[last], x->o.stride[k->nd - 1]};
        if (!x->wide) b = (box){1, run, 0, b.row_stride};
        if (store) store_box(reg, p + at, x->o.dtype, b);
        else if (p) load_box(reg, p + at, x->o.dtype, b);
        else iota_box(reg, (uint32_t)x->o.offset + (uint32_t)at, b);
        reg += run * cols, first += run, n -= run;
    }
}

static void rows_load(rows_state *s, const rows_operand *x, int64_t first, int64_t n) {
    const rows_kernel *k = s->k;
    if (x->flat && n * k->cols % FG_LANES == 0) {
        s->place[x->reg] = rows_base(s, &x->o) + first * k->cols * 4;
        return;
    }
    s->place[x->reg] = rows_buffer(s, x->reg);
    rows_move(s, x, s->place[x->reg], first, n, 0);
}

/* ---- the program ---- */

static void rows_fold(const rows_kernel *k, int op, float *d, const char *p, int64_t n) {
    const fg_fold *fold = op == ROWS_SUM ? &fold_f_sum : op == ROWS_MAX ? &fold_f_max : &fold_f_min;
    for (int64_t r = 0; r < n; r++, p += k->cols * 4) {
        fg_total t = fold->first;
        fold->row(&t, p, k->cols);
        d[r] = (float)t.d;
    }
}

static void rows_spread(u32_any *d, const u32_any *x, int64_t n, int64_t cols) {
    for (int64_t r = 0; r < n; r++, d += cols) {
        const uint32_t v = x[r];
        FG_VECTOR_LOOP
        for (int64_t c = 0; c < cols; c++) d[c] = v;
    }
}

/* What the rows behind these will be read from. */
static void rows_look_ahead(const rows_state *s, int64_t first, int64_t n, map_ahead *a) {
    const rows_kernel *k = s->k;
    a->n = 0;
    if (k->rows * k->cols * 4 * k->n_in < AHEAD_BYTES || n < k->block) return;
    for (int i = 0; i < k->n_in && a->n < AHEAD_MOST; i++) {
        if (k->in[i].flat) a->p[a->n++] = rows_base(s, &k->in[i].o) + (first + n) * k->cols * 4;
    }
    ahead_plan(a, n * k->cols * 4, k->n_instr);
}

static void rows_program(const rows_state *s, int64_t n, map_ahead *ahead) {
    const rows_kernel *k = s->k;
    const int64_t wide = (n * k->cols + FG_LANES - 1) & -FG_LANES, narrow = (n + FG_LANES - 1) & -FG_LANES;
    for (const rows_instr *i = k->instr, *end = i + k->n_instr; i < end; i++) {
        const void *src[4] = {s->place[i->src[0]], s->place[i->src[1]], s->place[i->src[2]], s->place[i->src[3]]};
        void *dst = s->place[i->dst];
        if (i->fn) i->fn(dst, src, i->wide ? wide : narrow);
        else if (i->op == ROWS_SPREAD) rows_spread(dst, src[0], n, k->cols);
        else rows_fold(k, i->op, dst, src[0], n);
        if (ahead->n) ahead_step(ahead);
    }
}

static void rows_block(rows_state *s, int64_t first, int64_t n) {
    const rows_kernel *k = s->k;
    const int whole = n * k->cols % FG_LANES == 0;
    for (int i = 0; i < k->n_in; i++) {
        if (!k->in[i].same) rows_load(s, &k->in[i], first, n);
    }
    for (int i = 0; i < k->n_out; i++) {
        const rows_operand *x = &k->out[i];
        s->place[k->n_regs + i] = rows_buffer(s, x->reg);
        if (k->direct[i] && whole) s->place[k->n_regs + i] = rows_base(s, &x->o) + first * k->cols * 4;
    }
    map_ahead ahead;
    rows_look_ahead(s, first, n, &ahead);
    rows_program(s, n, &ahead);
    for (int i = 0; i < k->n_out; i++) {
        const rows_operand *x = &k->out[i];
        if (!k->direct[i]) rows_move(s, x, s->place[x->reg], first, n, 1);
        else if (!whole) rows_move(s, x, s->place[k->n_regs + i], first, n, 1);
    }
}

static void rows_with_memory(const rows_run *run, int64_t task, uint32_t *memory) {
    const rows_kernel *k = run->k;
    rows_state s;
    s.k = k, s.base = run->base, s.memory = memory;
    int64_t first = task * k->task_rows, last = first + k->task_rows < k->rows ? first + k->task_rows : k->rows;
    for (int r = 0; r < k->n_regs; r++) {
        s.place[r] = rows_buffer(&s, r);
        /* the padding of the last vector is computed with too */
        memset((uint32_t *)s.place[r] + (k->wide[r] ? k->wide_words : k->row_words) - FG_LANES, 0, FG_LANES * 4);
    }
    for (int i = 0; i < k->n_const; i++) fill(s.place[k->constant[i].buffer], k->constant[i].bits, k->wide_words);
    for (int i = 0; i < k->n_in; i++) {
        const rows_operand *x = &k->in[i];
        if (x->same) rows_move(&s, x, s.place[x->reg], 0, k->block, 0);
    }
    for (; first < last; first += k->block) rows_block(&s, first, last - first < k->block ? last - first : k->block);
}

static void rows_task(void *ctx, int64_t task) {
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    const rows_run *run = ctx;
    const int64_t bytes = run->k->words * 4;
    if (bytes <= STACK_BYTES) {
        _Alignas(64) uint32_t near[STACK_BYTES / 4];
        rows_with_memory(run, task, near);
        return;
    }
    uint32_t *far = fg_alloc(bytes);
    if (far) {
        rows_with_memory(run, task, far);
    } else { /* out of memory: with what was set aside at creation, one task at a time */
        pthread_mutex_lock(&lock);
        rows_with_memory(run, task, (uint32_t *)(((uintptr_t)(run->k->at + run->k->n_regs) + 63) & ~(uintptr_t)63));
        pthread_mutex_unlock(&lock);
    }
    fg_free(far);
}

static void rows_run_all(const fg_kernel *kernel, void *const *base) {
    const rows_kernel *k = (const rows_kernel *)kernel;
    rows_run run = {k, base};
    if (k->rows == 0 || k->cols == 0) return;
    if (k->n_tasks == 1) rows_task(&run, 0);
    else fg_parallel_for(k->n_tasks, rows_task, &run);
}

/* ---- creation ---- */

static void rows_destroy(fg_kernel *kernel) {
    rows_kernel *k = (rows_kernel *)kernel;
    free(k->in), free(k->out), free(k->instr), free(k->constant), free(k->wide), free(k->direct), free(k->at);
    free(k);
}

static void rows_read_operands(fg_reader *r, rows_kernel *k) {
    const int last = k->nd - 1;
    for (int i = 0; i < k->n_in && !r->failed; i++) {
        rows_operand *x = &k->in[i];
        x->reg = i, x->wide = k->wide[i], x->same = 1;
        fg_read_operand(r, "an input's slot, dtype, offset or stride", -1, k->nd, k->dim, &x->o);
        if (!r->failed && x->o.slot < 0 && x->o.dtype != FG_I32 && x->o.dtype != FG_U32)
            fg_fail(r, "input %d without memory must have dtype %d or %d, got %d", i, FG_I32, FG_U32, x->o.dtype);
        for (int d = 0; d < last; d++) x->same &= x->o.stride[d] == 0;
    }
    for (int i = 0; i < k->n_out && !r->failed; i++) {
        rows_operand *x = &k->out[i];
        x->reg = (int32_t)fg_read(r, "an output's register", 0, k->n_regs - 1);
        if (r->failed) return;
        x->wide = k->wide[x->reg];
        fg_read_operand(r, "an output's slot, dtype, offset or stride", 0, k->nd, k->dim, &x->o);
        for (int d = 0; d < k->nd && !r->failed; d++) {
            if (k->dim[d] > 1 && x->o.stride[d] == 0 && (d < last || x->wide))
                fg_fail(r, "output %d must not have stride 0 in dimension %d", i, d);
        }
    }
}

/* A value for each element may be read for each row (constants are, and what is the same everywhere), but not the reverse. */
static void rows_read_instr(fg_reader *r, rows_kernel *k, int j) {
    rows_instr *x = &k->instr[k->n_instr];
    int64_t word[6];
    word[0] = fg_read(r, "an instruction", ROWS_MIN, FG_N_OPS - 1);
    const int op = (int)word[0], sources = r->failed ? 0 : op < 0 ? 1 : map_sources[op];
    word[1] = fg_read(r, "an instruction's destination", k->n_in, k->n_regs - 1);
    for (int s = 0; s < 4; s++) {
        if (op == FG_OP_const && s == 0) word[2] = fg_read(r, "a constant", INT32_MIN, UINT32_MAX);
        else word[2 + s] = fg_read(r, s < sources ? "a source register" : "an unused source", 0, s < sources ? k->n_regs - 1 : 0);
    }
    if (r->failed) return;
    x->op = op, x->dst = (int32_t)word[1], x->wide = k->wide[x->dst];
    if (op == FG_OP_const) {
        if (!x->wide) fg_fail(r, "instruction %d must write a constant to a wide register", j);
        k->constant[k->n_const++] = (map_const){x->dst, (uint32_t)word[2]};
        return;
    }
    if (op < 0 && x->wide != (op == ROWS_SPREAD)) fg_fail(r, "instruction %d has a destination of the wrong width", j);
    for (int s = 0; s < sources; s++) {
        int need = op == ROWS_SPREAD ? 0 : op < 0 ? 1 : x->wide;
        x->src[s] = (int32_t)word[2 + s];
        if (need && !k->wide[x->src[s]]) fg_fail(r, "instruction %d reads one value a row for each element", j);
    }
    x->fn = op >= 0 ? map_functions[op] : NULL;
    k->n_instr++;
}

/* An instruction writes an output where it lies when it is the last to write its register and nothing reads an input
 * afterwards, because that may be the same memory. */
static void rows_aim(rows_kernel *k) {
    int last_reader = -1;
    for (int j = 0; j < k->n_instr; j++) {
        for (int s = 0; s < 4; s++) {
            if (k->instr[j].src[s] < k->n_in && k->in[k->instr[j].src[s]].flat) last_reader = j;
        }
    }
    for (int i = 0; i < k->n_out; i++) {
        const rows_operand *x = &k->out[i];
        int writer = -1, taken = 0;
        for (int j = 0; j < k->n_instr; j++) writer = k->instr[j].dst == x->reg ? j : writer;
        for (int e = 0; e < i; e++) taken |= k->out[e].reg == x->reg && k->direct[e];
        if (!x->flat || writer < last_reader || writer < 0 || taken) continue;
        k->direct[i] = 1;
    }
    for (int i = 0; i < k->n_out; i++) {
        if (!k->direct[i]) continue;
        const int reg = k->out[i].reg, place = k->n_regs + i;
        int writer = -1;
        for (int j = 0; j < k->n_instr; j++) writer = k->instr[j].dst == reg ? j : writer;
        k->instr[writer].dst = place;
        for (int j = writer + 1; j < k->n_instr; j++) {
            for (int s = 0; s < 4; s++) k->instr[j].src[s] = k->instr[j].src[s] == reg ? place : k->instr[j].src[s];
        }
    }
}

/* Two outputs of one register: the second is copied from where the first is written. */
static int rows_shares(const rows_kernel *k) {
    for (int i = 0; i < k->n_out; i++) {
        for (int e = 0; e < i; e++) {
            if (k->out[e].reg == k->out[i].reg) return 1;
        }
    }
    return 0;
}

static void rows_flatness(const rows_kernel *k, rows_operand *x) {
    int64_t expected = 4;
    x->flat = x->wide && x->o.slot >= 0 && fg_dtype_size(x->o.dtype) == 4;
    for (int d = k->nd - 1; d >= 0; d--) {
        x->flat &= k->dim[d] == 1 || x->o.stride[d] == expected;
        expected *= k->dim[d];
    }
}

static int64_t rows_cost(const rows_kernel *k) {
    int64_t cost = k->n_in + k->n_out;
    for (int j = 0; j < k->n_instr; j++) cost += k->instr[j].wide && k->instr[j].fn ? map_costs[k->instr[j].op] : 1;
    return cost;
}

static void rows_cut(rows_kernel *k) {
    int64_t wides = 0, step = 1, most;
    for (int r = 0; r < k->n_regs; r++) wides += k->wide[r];
    while (step < FG_LANES && step * k->cols % FG_LANES) step *= 2;
    most = ROWS_BYTES / 4 / (wides + 1) / k->cols;
    k->block = ROWS_BLOCK / k->cols;
    k->block = k->block < most ? k->block : most;
    k->block = k->block >= step ? k->block / step * step : k->block > 1 ? k->block : 1;
    k->block = k->block < k->rows ? k->block : k->rows;
    k->wide_words = ((k->block * k->cols + FG_LANES - 1) & -FG_LANES) + FG_LANES;
    k->row_words = ((k->block + FG_LANES - 1) & -FG_LANES) + FG_LANES;
    for (int r = 0; r < k->n_regs; r++) {
        k->at[r] = k->words;
        k->words += k->wide[r] ? k->wide_words : k->row_words;
    }
    k->task_rows = task_units(k->rows, rows_cost(k) * k->cols, k->block);
    k->n_tasks = (k->rows + k->task_rows - 1) / k->task_rows;
    k->base.each = k->words * 4 > STACK_BYTES ? k->words * 4 : 0, k->base.tasks = k->n_tasks;
}

static int rows_plan(fg_reader *r, rows_kernel *k) {
    for (int i = 0; i < k->n_in; i++) rows_flatness(k, &k->in[i]);
    for (int i = 0; i < k->n_out; i++) rows_flatness(k, &k->out[i]);
    if (!rows_shares(k)) rows_aim(k);
    rows_cut(k);
    int64_t *at = realloc(k->at, sizeof(int64_t) * (size_t)k->n_regs + (k->words * 4 > STACK_BYTES ? (size_t)k->words * 4 + 64 : 0));
    if (!at) return fg_fail(r, "out of memory") != NULL;
    k->at = at;
    return 1;
}

static int rows_read(fg_reader *r, rows_kernel *k) {
    k->nd = (int32_t)fg_read(r, "ndim", 1, FG_MAX_DIMS);
    fg_read_dims(r, "a dimension", k->nd, k->dim);
    k->n_in = (int32_t)fg_read(r, "n_in", 0, FG_MAP_MAX_OPERANDS);
    k->n_out = (int32_t)fg_read(r, "n_out", 1, FG_MAP_MAX_OPERANDS);
    k->n_regs = (int32_t)fg_read(r, "n_regs", k->n_in > 1 ? k->n_in : 1, ROWS_MOST_REGISTERS);
    int64_t n = fg_read(r, "n_instr", 0, MAX_INSTR);
    if (r->failed) return 0;
    k->rows = 1, k->cols = k->dim[k->nd - 1];
    for (int d = 0; d + 1 < k->nd; d++) k->rows *= k->dim[d];
    if (k->cols > ROWS_MOST_COLUMNS) fg_fail(r, "at most %d columns, got %lld", ROWS_MOST_COLUMNS, (long long)k->cols);
    k->in = calloc((size_t)k->n_in + 1, sizeof *k->in);
    k->out = calloc((size_t)k->n_out, sizeof *k->out);
    k->instr = calloc((size_t)n + 1, sizeof *k->instr);
    k->constant = calloc((size_t)n + 1, sizeof *k->constant);
    k->wide = calloc((size_t)k->n_regs, 1);
    k->direct = calloc((size_t)k->n_out, sizeof *k->direct);
    k->at = calloc((size_t)k->n_regs, sizeof *k->at);
    if (!(k->in && k->out && k->instr && k->constant && k->wide && k->direct && k->at)) fg_fail(r, "out of memory");
    for (int i = 0; i < k->n_regs && !r->failed; i++) k->wide[i] = (uint8_t)fg_read(r, "a register's width", 0, 1);
    if (!r->failed) rows_read_operands(r, k);
    for (int64_t j = 0; j < n && !r->failed; j++) rows_read_instr(r, k, (int)j);
    return fg_read_end(r) && (k->rows == 0 || k->cols == 0 || rows_plan(r, k));
}

fg_kernel *FG_NAME(fg_rows_new)(fg_reader *r) {
    rows_kernel *k = calloc(1, sizeof *k);
    if (!k) return fg_fail(r, "out of memory");
    k->base.run = rows_run_all;
    k->base.destroy = rows_destroy;
    if (!rows_read(r, k)) {
        rows_destroy(&k->base);
        return NULL;
    }
    return &k->base;
}

#endif
