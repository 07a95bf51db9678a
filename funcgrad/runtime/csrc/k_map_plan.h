/* Making a MAP kernel: reading the words, putting the dimensions into a good order, and deciding where each register's
 * value lives. */
#ifndef FG_K_MAP_PLAN_H
#define FG_K_MAP_PLAN_H
#include "k_map_ops.h"

#define MAX_REGS 65536
#define MAX_INSTR 1048576
#define STACK_BYTES 32768   /* of registers on the stack; more come from fg_alloc */
#define CACHE_BYTES 98304   /* of registers at most: beyond the nearest cache, but shorter blocks cost more than that */
#define TILE_COLS 64 /* with fewer, power-of-two strides make the cache's sets collide */
#define TASK_WORK 131072 /* costs that are worth a task where there is work for several */
#define MIN_BLOCK 256
#define MAX_BLOCK 1024

/* Each value has a place: an entry of a table of pointers. The first n_buffers are registers' own memory; then come the
 * inputs and the outputs, which are memory of the caller where the layout allows it, and a register's elsewhere. */
typedef struct {
    map_function fn;
    int32_t dst, src[4];
} map_instr;

typedef struct {
    fg_operand o;
    int32_t place, buffer; /* buffer: used when the memory cannot be; -1 for a splat input */
    uint8_t splat, flat, word, keep; /* one value; row-major contiguous; 32-bit; may be used where it lies */
} map_operand;

typedef struct {
    int32_t buffer;
    uint32_t bits;
} map_const;

typedef struct {
    fg_kernel base;
    int32_t nd, n_in, n_out, n_instr, n_const, n_buffers, n_places;
    int32_t tile_dim;  /* -1, or the dimension whose elements are walked together with the last one's */
    int32_t transpose; /* nothing but a copy of words from tile_dim to the last dimension */
    int32_t copy;      /* nothing but a copy of contiguous memory */
    int64_t tile_rows, tile_cols;
    int64_t total, block, task_units, n_tasks; /* a task is so many elements, or so many tiles */
    int64_t n_units;
    int64_t dim[FG_MAX_DIMS];
    map_operand *in, *out;
    map_instr *instr;
    map_const *constant;
} map_kernel;

typedef struct {
    int64_t op, dst, src[4];
} map_words;

/* ---- looking ahead ----
 * A block is read by one instruction or another, so the processor sees no stream to fetch in advance. What the next block
 * will read is asked for between the instructions of this one. */
#define AHEAD_MOST 8
#define AHEAD_BYTES 1048576 /* of operands that lie in memory: less is in a cache anyway */

typedef struct {
    const char *p[AHEAD_MOST];
    int n;
    int64_t lines, step; /* of each operand: still to be asked for, and at a time */
} map_ahead;

/* Spreads the lines of the next block, so many bytes of each operand, over so many instructions. */
static inline void ahead_plan(map_ahead *a, int64_t bytes, int64_t instructions) {
    a->lines = bytes / 64;
    a->step = a->lines / (instructions > 0 ? instructions : 1) + 1;
}

static inline void ahead_step(map_ahead *a) {
    int64_t step = a->step < a->lines ? a->step : a->lines;
    for (int i = 0; i < a->n; i++) {
        const char *p = a->p[i];
        for (int64_t l = 0; l < step; l++) __builtin_prefetch(p + l * 64, 0, 2);
        a->p[i] = p + step * 64;
    }
    a->lines -= step;
}

static void map_destroy(fg_kernel *kernel) {
    map_kernel *k = (map_kernel *)kernel;
    free(k->in);
    free(k->out);
    free(k->instr);
    free(k->constant);
    free(k);
}

/* ---- the order of the dimensions ---- */

static void for_all_remove_dim(map_operand *o, int n, int d, int nd) {
    for (int i = 0; i < n; i++) {
        for (int e = d; e + 1 < nd; e++) o[i].o.stride[e] = o[i].o.stride[e + 1];
    }
}

static void remove_dim(map_kernel *k, int d) {
    for_all_remove_dim(k->in, k->n_in, d, k->nd);
    for_all_remove_dim(k->out, k->n_out, d, k->nd);
    for (int e = d; e + 1 < k->nd; e++) k->dim[e] = k->dim[e + 1];
    k->nd--;
}

static void swap_dims(map_kernel *k, int d, int e) {
    int64_t t = k->dim[d];
    k->dim[d] = k->dim[e];
    k->dim[e] = t;
    for (int i = 0; i < k->n_in + k->n_out; i++) {
        int64_t *s = i < k->n_in ? k->in[i].o.stride : k->out[i - k->n_in].o.stride;
        t = s[d];
        s[d] = s[e];
        s[e] = t;
    }
}

static void reverse_dim(map_kernel *k, int d) {
    for (int i = 0; i < k->n_in + k->n_out; i++) {
        fg_operand *o = i < k->n_in ? &k->in[i].o : &k->out[i - k->n_in].o;
        o->offset += o->stride[d] * (k->dim[d] - 1);
        o->stride[d] = -o->stride[d];
    }
}

static int mergeable(const map_operand *o, int n, int d, int64_t inner) {
    for (int i = 0; i < n; i++) {
        if (o[i].o.stride[d] != o[i].o.stride[d + 1] * inner) return 0;
    }
    return 1;
}

/* Every index is visited once and on its own, so their order is free: the first output decides it. Its strides become
 * positive and descending; then neighbours merge where all operands allow. */
static void order_dims(map_kernel *k) {
    for (int d = k->nd - 1; d >= 0; d--) {
        if (k->dim[d] == 1) remove_dim(k, d);
    }
    for (int d = 0; d < k->nd; d++) {
        if (k->out[0].o.stride[d] < 0) reverse_dim(k, d);
    }
    for (int d = 1; d < k->nd; d++) {
        for (int e = d; e > 0 && k->out[0].o.stride[e] > k->out[0].o.stride[e - 1]; e--) swap_dims(k, e, e - 1);
    }
    for (int d = k->nd - 2; d >= 0; d--) {
        int64_t inner = k->dim[d + 1];
        if (!mergeable(k->in, k->n_in, d, inner) || !mergeable(k->out, k->n_out, d, inner)) continue;
        k->dim[d + 1] = k->dim[d] * inner;
        remove_dim(k, d);
    }
    if (k->nd == 0) {
        k->dim[k->nd++] = 1;
        for (int i = 0; i < k->n_in; i++) k->in[i].o.stride[0] = 0;
        for (int i = 0; i < k->n_out; i++) k->out[i].o.stride[0] = fg_dtype_size(k->out[i].o.dtype);
    }
}

static void classify(const map_kernel *k, map_operand *o) {
    int64_t size = fg_dtype_size(o->o.dtype), expected = size;
    o->word = size == 4;
    o->splat = o->flat = 1;
    for (int d = k->nd - 1; d >= 0; d--) {
        o->splat &= o->o.stride[d] == 0;
        o->flat &= o->o.stride[d] == expected;
        expected *= k->dim[d];
    }
    if (o->o.slot < 0) o->flat = 0;
}

/* A dimension other than the last in which an operand lies closer together than in the last one. */
static int find_tile_dim(const map_kernel *k) {
    int last = k->nd - 1, best = -1;
    int64_t smallest = INT64_MAX;
    if (last < 1 || k->dim[last] < 4) return -1;
    for (int i = 0; i < k->n_in + k->n_out; i++) {
        const fg_operand *o = i < k->n_in ? &k->in[i].o : &k->out[i - k->n_in].o;
        int64_t inner = llabs(o->stride[last]);
        if (o->slot < 0 || inner <= fg_dtype_size(o->dtype)) continue;
        for (int d = 0; d < last; d++) {
            int64_t s = llabs(o->stride[d]);
            if (s == 0 || s >= inner || s >= smallest || k->dim[d] < 4) continue;
            smallest = s;
            best = d;
        }
    }
    return best;
}

/* ---- reading ---- */

static void read_inputs(fg_reader *r, map_kernel *k) {
    for (int i = 0; i < k->n_in && !r->failed; i++) {
        fg_operand *o = &k->in[i].o;
        fg_read_operand(r, "an input's slot, dtype, offset or stride", -1, k->nd, k->dim, o);
        if (!r->failed && o->slot < 0 && o->dtype != FG_I32 && o->dtype != FG_U32) {
            fg_fail(r, "input %d without memory must have dtype %d or %d, got %d", i, FG_I32, FG_U32, o->dtype);
        }
    }
}

static void read_outputs(fg_reader *r, map_kernel *k, int64_t n_regs) {
    for (int i = 0; i < k->n_out && !r->failed; i++) {
        fg_operand *o = &k->out[i].o;
        k->out[i].place = (int32_t)fg_read(r, "an output's register", 0, n_regs - 1);
        fg_read_operand(r, "an output's slot, dtype, offset or stride", 0, k->nd, k->dim, o);
        for (int d = 0; d < k->nd && !r->failed; d++) {
            if (k->total && k->dim[d] > 1 && o->stride[d] == 0) fg_fail(r, "output %d must not have stride 0 in dimension %d", i, d);
        }
    }
}

static void read_instr(fg_reader *r, map_words *w, int64_t n_regs) {
    w->op = fg_read(r, "an instruction", 0, FG_N_OPS - 1);
    w->dst = fg_read(r, "an instruction's destination", 0, n_regs - 1);
    for (int s = 0; s < 4; s++) {
        int used = s < map_sources[w->op];
        int constant = w->op == FG_OP_const && s == 0;
        w->src[s] = constant ? fg_read(r, "a constant", INT32_MIN, UINT32_MAX)
                             : fg_read(r, used ? "a source register" : "an unused source", 0, used ? n_regs - 1 : 0);
    }
}

/* ---- places ---- */

typedef struct {
    int32_t *place;       /* of each register's present value, -1 before the first */
    int32_t *buffer;      /* of each register, -1 before it needs one */
    int32_t *last_writer; /* the last instruction that writes each register */
} map_regs;

static int32_t buffer_of(map_kernel *k, map_regs *regs, int64_t reg) {
    if (regs->buffer[reg] < 0) regs->buffer[reg] = k->n_buffers++;
    return regs->buffer[reg];
}

/* Places of inputs and outputs are numbered -2, -3, ... until the number of buffers is known. */
static int32_t in_place(int i) { return -2 - i; }
static int32_t out_place(const map_kernel *k, int i) { return -2 - k->n_in - i; }

static void place_inputs(map_kernel *k, map_regs *regs) {
    for (int i = 0; i < k->n_in; i++) {
        map_operand *o = &k->in[i];
        if (o->splat) {
            o->place = k->n_buffers++;
            regs->place[i] = o->place;
            o->buffer = -1;
        } else {
            o->buffer = buffer_of(k, regs, i);
            o->keep = o->word && o->o.slot >= 0;
            regs->place[i] = o->place = in_place(i);
        }
    }
}

static int32_t place_constant(map_kernel *k, uint32_t bits) {
    for (int i = 0; i < k->n_const; i++) {
        if (k->constant[i].bits == bits) return k->constant[i].buffer;
    }
    k->constant[k->n_const].bits = bits;
    return k->constant[k->n_const++].buffer = k->n_buffers++;
}

/* The output that instruction j may write straight into, or -1: it must be the register's last value, and no later
 * instruction may read an input, because that input may be the memory written here. */
static int direct_output(const map_kernel *k, const map_regs *regs, int j, int64_t reg, int last_input_reader) {
    if (regs->last_writer[reg] != j || last_input_reader > j) return -1;
    for (int i = 0; i < k->n_out; i++) {
        if (k->out[i].place == reg && k->out[i].word) return i;
    }
    return -1;
}

static int read_before_written(fg_reader *r, const map_regs *regs, const map_words *w, int j) {
    for (int s = 0; s < map_sources[w->op]; s++) {
        if (regs->place[w->src[s]] == -1) {
            fg_fail(r, "instruction %d must not read register %d before it is written", j, (int)w->src[s]);
            return 1;
        }
    }
    return 0;
}

static int find_last_input_reader(const map_kernel *k, const map_words *w, int n) {
    /* registers of inputs that have been overwritten count too: that only costs a copy */
    int last = -1;
    for (int j = 0; j < n; j++) {
        for (int s = 0; s < map_sources[w[j].op]; s++) {
            if (w[j].src[s] < k->n_in && !k->in[w[j].src[s]].splat) last = j;
        }
    }
    return last;
}

static void place_instructions(fg_reader *r, map_kernel *k, map_regs *regs, const map_words *w, int n) {
    int last_input_reader = find_last_input_reader(k, w, n);
    for (int j = 0; j < n; j++) regs->last_writer[w[j].dst] = j;
    for (int j = 0; j < n && k->n_buffers <= FG_MAP_MAX_VALUES; j++) { /* plan refuses more */
        if (w[j].op == FG_OP_const) {
            regs->place[w[j].dst] = place_constant(k, (uint32_t)w[j].src[0]);
            continue;
        }
        if (read_before_written(r, regs, &w[j], j)) return;
        map_instr *instr = &k->instr[k->n_instr++];
        instr->fn = map_functions[w[j].op];
        for (int s = 0; s < map_sources[w[j].op]; s++) instr->src[s] = regs->place[w[j].src[s]];
        int direct = direct_output(k, regs, j, w[j].dst, last_input_reader);
        instr->dst = buffer_of(k, regs, w[j].dst);
        if (direct >= 0) {
            k->out[direct].buffer = instr->dst;
            k->out[direct].keep = 1;
            instr->dst = out_place(k, direct);
        }
        regs->place[w[j].dst] = instr->dst;
    }
}

static void place_outputs(fg_reader *r, map_kernel *k, const map_regs *regs) {
    for (int i = 0; i < k->n_out; i++) {
        int32_t reg = k->out[i].place, place = regs->place[reg];
        if (place == -1) {
            fg_fail(r, "output %d must come from a register that is written, got %d", i, reg);
            return;
        }
        k->out[i].place = place;
        /* an input that is also an output could be overwritten by another output first */
        if (k->n_out > 1 && place <= -2 && place > out_place(k, 0)) k->in[-2 - place].keep = 0;
    }
}

static int32_t final_place(const map_kernel *k, int32_t place) { return place <= -2 ? k->n_buffers - 2 - place : place; }

static void number_places(map_kernel *k) {
    for (int i = 0; i < k->n_in; i++) k->in[i].place = final_place(k, k->in[i].place);
    for (int i = 0; i < k->n_out; i++) k->out[i].place = final_place(k, k->out[i].place);
    for (int j = 0; j < k->n_instr; j++) {
        k->instr[j].dst = final_place(k, k->instr[j].dst);
        for (int s = 0; s < 4; s++) k->instr[j].src[s] = final_place(k, k->instr[j].src[s]);
    }
    k->n_places = k->n_buffers + k->n_in + k->n_out;
}

/* ---- blocks and tasks ---- */

static int is_transpose(const map_kernel *k) {
    const map_operand *x = k->in, *y = k->out;
    return k->tile_dim >= 0 && k->n_in == 1 && k->n_out == 1 && y->place == x->place && x->keep && y->word &&
           x->o.stride[k->tile_dim] == 4 && y->o.stride[k->nd - 1] == 4;
}

static int is_copy(const map_kernel *k) {
    const map_operand *x = k->in, *y = k->out;
    return k->n_in == 1 && k->n_out == 1 && y->place == x->place && x->flat && y->flat && x->o.dtype == y->o.dtype;
}

/* Tiles read and write runs of at least a cache line; a mere copy needs no registers, which would limit their size. */
static int64_t choose_tiles(map_kernel *k) {
    int64_t block = k->transpose ? 4096 : k->n_buffers <= 4 ? 2048 : k->n_buffers <= 128 ? 1024 : MIN_BLOCK;
    int64_t rows = k->dim[k->tile_dim], cols = k->dim[k->nd - 1];
    k->tile_cols = cols < TILE_COLS ? cols : TILE_COLS;
    k->tile_rows = rows < block / k->tile_cols ? rows : block / k->tile_cols;
    k->tile_cols = cols < block / k->tile_rows ? cols : block / k->tile_rows;
    int64_t across = (cols + k->tile_cols - 1) / k->tile_cols, down = (rows + k->tile_rows - 1) / k->tile_rows;
    k->n_units = k->total / (rows * cols) * across * down;
    return k->tile_rows * k->tile_cols;
}

/* Units of a task. Each task sets up its constants, which costs as much as an instruction or two over a block: so few
 * tasks, as many as balance the threads. Units do not depend on each other: the number of threads shows in no result. */
static int64_t task_units(int64_t units, int64_t cost, int64_t step) {
    int64_t threads = fg_get_threads(), tasks = threads < 2 ? 16 : threads < 128 ? 8 * threads : 1024;
    int64_t share = (units + tasks - 1) / tasks, least = TASK_WORK / cost + 1;
    if (units <= 2 * (FG_SERIAL_WORK / cost + 1)) return units;
    share = share > least ? share : least;
    return (share + step - 1) / step * step;
}

static void choose_blocks(map_kernel *k, int64_t cost) {
    int64_t words = CACHE_BYTES / 4 / (k->n_buffers ? k->n_buffers : 1), block = MAX_BLOCK, step = 1;
    while (block > MIN_BLOCK && block > words) block /= 2;
    k->tile_dim = find_tile_dim(k);
    k->transpose = is_transpose(k);
    k->copy = is_copy(k);
    if (k->tile_dim >= 0) {
        block = choose_tiles(k);
        cost *= block;
    } else {
        k->n_units = k->total;
        block = k->total < block ? k->total : block;
    }
    k->block = k->transpose ? FG_LANES : (block + FG_LANES - 1) & -FG_LANES;
    if (k->tile_dim < 0) step = k->block;
    k->task_units = task_units(k->n_units, cost, step);
    k->n_tasks = (k->n_units + k->task_units - 1) / k->task_units;
    const int64_t bytes = k->n_buffers * k->block * 4;
    k->base.each = bytes > STACK_BYTES ? bytes : 0, k->base.tasks = k->n_tasks;
}

static int64_t cost_of(const map_kernel *k, const map_words *w, int n) {
    int64_t cost = k->n_in + k->n_out;
    for (int j = 0; j < n; j++) cost += map_costs[w[j].op];
    return cost;
}

#endif
