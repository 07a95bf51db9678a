#include "program.h"

#include <cinttypes>
#include <cstdarg>
#include <cstdio>
#include <cstring>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include <unistd.h>

#include "internal.h"

namespace {

[[noreturn]] void fail(const std::string &text) { throw std::invalid_argument(text); }

// Reads words in order; running out of them is an error.
struct Words {
    const int64_t *next, *end;
    int64_t read() {
        if (next == end) fail("program: the list of words is too short");
        return *next++;
    }
    int64_t read(int64_t lo, int64_t hi, const char *what) {
        const int64_t v = read();
        if (v < lo || v > hi) fail(std::string("program: ") + what + " is out of range: " + std::to_string(v));
        return v;
    }
    int64_t count(const char *what) { return read(0, end - next, what); } // of things that take a word each, or more
};

struct Pointer {
    int64_t slot = -1, offset = 0, step = 0;
    char *at(void *const *base) const { return slot < 0 ? nullptr : static_cast<char *>(base[slot]) + offset; }
};

struct Carry {
    Pointer init, result, spare;
    size_t n_bytes = 0;
    bool in_place = false;
};

struct Event {
    int64_t node;
    bool release;
    int64_t number, n_bytes;
};

// A kernel with what happens to memory before and after it.
struct Watched : fg_kernel {
    const fg_kernel *inner = nullptr;
    fg_program *program = nullptr;
    std::vector<Event> events;
};

fg_host host = nullptr;

} // namespace

struct fg_program {
    fg_graph *graph = nullptr;
    std::vector<fg_kernel *> kernels;
    std::vector<std::pair<int32_t, int64_t>> placed; // tensor, offset in the workspace
    std::vector<int64_t> out_bytes;
    std::vector<int32_t> alias;
    int64_t n_in = 0, workspace_bytes = 0, needed_bytes = 0;
    void *workspace = nullptr;      // where the tensors are placed now
    void *const *results = nullptr; // of the run in progress
    std::vector<char> late;         // results that are not written before some node

    ~fg_program() {
        if (graph) fg_graph_free(graph);
        for (fg_kernel *k : kernels) fg_kernel_free(k);
    }

    int64_t n_out() const { return int64_t(out_bytes.size()); }

    int execute(void *const *bound, void *at, char *err, int err_size) {
        if (at != workspace) {
            for (const auto &[tensor, offset] : placed)
                if (fg_graph_place(graph, tensor, static_cast<char *>(at) + offset, err, err_size) < 0) return -1;
            workspace = at;
        }
        results = bound + n_in;
        return fg_graph_n_nodes(graph) ? fg_graph_run(graph, bound, err, err_size) : 0;
    }
};

namespace {

void run_watched(const fg_kernel *k, void *const *base) {
    const Watched &w = *static_cast<const Watched *>(k);
    for (const Event &e : w.events)
        if (!e.release) fg_commit(w.program->results[e.number], e.n_bytes);
    w.inner->run(w.inner, base);
    for (const Event &e : w.events)
        if (e.release) fg_release(w.program->workspace, e.number, e.n_bytes);
}

void destroy_watched(fg_kernel *k) { delete static_cast<Watched *>(k); }

} // namespace

namespace {

// ---- control flow as kernels ----

struct Control : fg_kernel {
    std::vector<fg_program *> parts;
    std::vector<Pointer> pointers;
    std::vector<Carry> carries;
    Pointer scratch, extra;
    int64_t length = 0, n_cond_const = 0, n_const = 0, n_xs = 0, id = 0;
    std::vector<void *> bound, cond_bound; // filled at each run
};

Control &control(const fg_kernel *k) { return *const_cast<Control *>(static_cast<const Control *>(k)); }

bool run_part(fg_program *part, std::vector<void *> &bound, void *scratch) {
    char err[256] = "";
    if (part->execute(bound.data(), scratch, err, sizeof err) == 0) return true;
    fg_graph_stop(err);
    return false;
}

// The memory that a carry is in before the first step; what is updated in place starts in the result.
void begin_carries(Control &c, void *const *base, std::vector<char *> &now) {
    for (const Carry &x : c.carries) {
        char *init = x.init.at(base), *result = x.result.at(base);
        if (x.in_place && init != result && x.n_bytes) memcpy(result, init, x.n_bytes);
        now.push_back(x.in_place ? result : init);
    }
}

// Binds the carries of one step: from where they are to where the step puts them.
void bind_carries(Control &c, void *const *base, std::vector<char *> &now, int64_t in, int64_t out, bool to_result) {
    for (size_t i = 0; i < c.carries.size(); ++i) {
        const Carry &x = c.carries[i];
        c.bound[size_t(in) + i] = now[i];
        if (!x.in_place) now[i] = to_result ? x.result.at(base) : x.spare.at(base);
        c.bound[size_t(out) + i] = now[i];
    }
}

void run_loop(const fg_kernel *k, void *const *base) {
    Control &c = control(k);
    const int64_t n_carry = int64_t(c.carries.size()), n_ys = int64_t(c.pointers.size()) - c.n_const - c.n_xs;
    const int64_t xs = c.n_const + n_carry, out = xs + c.n_xs, ys = out + n_carry;
    c.bound.resize(size_t(ys + n_ys));
    for (int64_t i = 0; i < c.n_const; ++i) c.bound[size_t(i)] = c.pointers[size_t(i)].at(base);
    std::vector<char *> now, moving;
    begin_carries(c, base, now);
    for (size_t i = size_t(c.n_const); i < c.pointers.size(); ++i) moving.push_back(c.pointers[i].at(base));
    void *scratch = c.scratch.at(base);
    for (int64_t step = 0; step < c.length; ++step) {
        bind_carries(c, base, now, c.n_const, out, (c.length - step) % 2 == 1);
        for (size_t i = 0; i < moving.size(); ++i) {
            const int64_t place = int64_t(i) < c.n_xs ? xs + int64_t(i) : ys + int64_t(i) - c.n_xs;
            c.bound[size_t(place)] = moving[i];
            moving[i] += c.pointers[size_t(c.n_const) + i].step;
        }
        if (!run_part(c.parts[0], c.bound, scratch)) return;
    }
}

void run_while(const fg_kernel *k, void *const *base) {
    Control &c = control(k);
    const int64_t n_carry = int64_t(c.carries.size());
    char *flag = c.extra.at(base);
    void *scratch = c.scratch.at(base);
    c.cond_bound.resize(size_t(c.n_cond_const + n_carry + 1));
    c.bound.resize(size_t(c.n_const + 2 * n_carry));
    for (int64_t i = 0; i < c.n_cond_const; ++i) c.cond_bound[size_t(i)] = c.pointers[size_t(i)].at(base);
    for (int64_t i = 0; i < c.n_const; ++i) c.bound[size_t(i)] = c.pointers[size_t(c.n_cond_const + i)].at(base);
    c.cond_bound.back() = flag;
    std::vector<char *> now;
    begin_carries(c, base, now);
    for (bool to_result = true;; to_result = !to_result) {
        for (int64_t i = 0; i < n_carry; ++i) c.cond_bound[size_t(c.n_cond_const + i)] = now[size_t(i)];
        if (!run_part(c.parts[0], c.cond_bound, scratch)) return;
        if (!*flag) break;
        bind_carries(c, base, now, c.n_const, c.n_const + n_carry, to_result);
        if (!run_part(c.parts[1], c.bound, scratch)) return;
    }
    for (size_t i = 0; i < now.size(); ++i) {
        char *result = c.carries[i].result.at(base);
        if (now[i] != result && c.carries[i].n_bytes) memcpy(result, now[i], c.carries[i].n_bytes);
    }
}

void run_cond(const fg_kernel *k, void *const *base) {
    Control &c = control(k);
    int32_t index;
    memcpy(&index, c.extra.at(base), 4);
    const int32_t last = int32_t(c.parts.size()) - 1;
    index = index < 0 ? 0 : index > last ? last : index;
    c.bound.clear();
    for (const Pointer &p : c.pointers) c.bound.push_back(p.at(base));
    run_part(c.parts[size_t(index)], c.bound, c.scratch.at(base));
}

void run_host(const fg_kernel *k, void *const *base) {
    Control &c = control(k);
    c.bound.clear();
    for (const Pointer &p : c.pointers) c.bound.push_back(p.at(base));
    if (!host || host(c.id, c.bound.data()) != 0) fg_graph_stop("host");
}

void destroy_control(fg_kernel *k) { delete static_cast<Control *>(k); }

struct Parser {
    Words words;
    int64_t n_slots;

    Pointer pointer(bool moving = false) {
        Pointer p;
        p.slot = words.read(-1, n_slots - 1, "slot");
        p.offset = words.read();
        if (moving) p.step = words.read();
        return p;
    }

    void read_pointers(Control &c, int64_t n, bool moving = false) {
        for (int64_t i = 0; i < n; ++i) c.pointers.push_back(pointer(moving));
    }

    void read_carries(Control &c, int64_t n) {
        for (int64_t i = 0; i < n; ++i) {
            Carry x;
            x.init = pointer(), x.result = pointer(), x.spare = pointer();
            x.n_bytes = size_t(words.read(0, FG_LIMIT, "n_bytes"));
            x.in_place = words.read(0, 1, "in_place") != 0;
            c.carries.push_back(x);
        }
    }

    void read_loop(Control &c) {
        c.run = run_loop;
        c.length = words.read(0, FG_LIMIT, "length");
        c.n_const = words.count("n_const");
        const int64_t n_carry = words.count("n_carry");
        c.n_xs = words.count("n_xs");
        const int64_t n_ys = words.count("n_ys");
        c.scratch = pointer();
        read_pointers(c, c.n_const);
        read_carries(c, n_carry);
        read_pointers(c, c.n_xs + n_ys, true);
        check_part(c, 0, c.n_const + n_carry + c.n_xs, n_carry + n_ys);
    }

    void read_while(Control &c) {
        c.run = run_while;
        c.n_cond_const = words.count("n_cond_const");
        c.n_const = words.count("n_const");
        const int64_t n_carry = words.count("n_carry");
        c.scratch = pointer(), c.extra = pointer();
        read_pointers(c, c.n_cond_const + c.n_const);
        read_carries(c, n_carry);
        check_part(c, 0, c.n_cond_const + n_carry, 1);
        check_part(c, 1, c.n_const + n_carry, n_carry);
    }

    void read_cond(Control &c) {
        c.run = run_cond;
        const int64_t n_in = words.count("n_in"), n_out = words.count("n_out");
        c.scratch = pointer(), c.extra = pointer();
        read_pointers(c, n_in + n_out);
        for (size_t i = 0; i < c.parts.size(); ++i) check_part(c, i, n_in, n_out);
        check_part(c, 0, n_in, n_out);
    }

    void read_host(Control &c) {
        c.run = run_host;
        c.id = words.read();
        read_pointers(c, words.count("n_pointers"));
    }

    static void check_part(const Control &c, size_t i, int64_t n_in, int64_t n_out) {
        if (i >= c.parts.size() || c.parts[i]->n_in != n_in || c.parts[i]->n_out() != n_out)
            fail("program: a part does not take what its node gives");
    }

    fg_kernel *make(int64_t kind, std::vector<fg_program *> parts) {
        auto c = std::make_unique<Control>();
        c->destroy = destroy_control;
        c->kind = int32_t(kind);
        c->parts = std::move(parts);
        switch (kind) {
            case FG_LOOP: read_loop(*c); break;
            case FG_WHILE: read_while(*c); break;
            case FG_COND: read_cond(*c); break;
            case FG_HOST: read_host(*c); break;
            default: fail("program: unknown kind of node " + std::to_string(kind));
        }
        if (words.next != words.end) fail("program: a node has too many words");
        return c.release();
    }
};

// ---- loading ----

struct Loader {
    fg_program &p;
    Words words;
    fg_program *const *parts;
    int n_parts;
    char err[256] = "";

    void check(bool good) const {
        if (!good) fail(err);
    }

    void load() {
        p.n_in = words.count("n_in");
        const int64_t n_out = words.count("n_out");
        p.workspace_bytes = words.read(0, FG_LIMIT, "workspace");
        for (int64_t i = 0; i < n_out; ++i) {
            p.out_bytes.push_back(words.read(0, FG_LIMIT, "n_bytes"));
            p.alias.push_back(int32_t(words.read(-1, p.n_in - 1, "alias")));
        }
        load_events();
        load_tensors(words.count("n_tensors"));
    }

    std::vector<Event> events;
    size_t next_event = 0;

    void load_tensors(int64_t n) {
        const Words here = words;
        words.next += n * 4 <= words.end - words.next ? n * 4 : 0;
        const int64_t n_nodes = words.count("n_nodes");
        p.graph = fg_graph_new(n + n_nodes + 1, err, sizeof err);
        check(p.graph);
        const Words after = words;
        words = here;
        std::vector<int32_t> bound(size_t(p.n_in) + p.out_bytes.size(), -1);
        for (int64_t i = 0; i < n; ++i) {
            const int dtype = int(words.read(FG_F32, FG_BOOL, "dtype"));
            const int tensor = fg_graph_tensor(p.graph, dtype, words.read(), err, sizeof err);
            check(tensor >= 0);
            const int64_t number = words.read(-2, int64_t(bound.size()) - 1, "bound"), offset = words.read();
            if (number >= 0) bound[size_t(number)] = tensor;
            else if (number == -1) p.placed.emplace_back(tensor, offset);
            else check(fg_graph_place(p.graph, tensor, reinterpret_cast<void *>(intptr_t(offset)), err, sizeof err) >= 0);
        }
        words = after;
        for (int32_t &t : bound) // nothing reads this one, but the table of pointers has an entry for it
            if (t < 0) check((t = unused()) >= 0);
        check(fg_graph_declare_bound(p.graph, bound.data(), int(bound.size()), err, sizeof err) >= 0);
        for (int64_t i = 0; i < n_nodes; ++i) load_node(i, n);
        if (next_event != events.size()) fail("program: an event at a node that is not there");
        if (words.next != words.end) fail("program: too many words");
    }

    int no_tensor = -1;
    int unused() {
        if (no_tensor < 0) no_tensor = fg_graph_tensor(p.graph, FG_BOOL, 0, err, sizeof err);
        return no_tensor;
    }

    void load_events() {
        p.late.assign(p.out_bytes.size(), 0);
        for (int64_t n = words.count("n_events"), node = 0; n > 0; --n) {
            node = words.read(node, FG_LIMIT, "an event's node");
            const bool release = words.read(0, 1, "an event") != 0;
            const int64_t last = release ? p.workspace_bytes : p.n_out() - 1;
            const int64_t number = words.read(0, last, "an event's result or offset");
            const int64_t most = release ? p.workspace_bytes - number : p.out_bytes[size_t(number)];
            events.push_back({node, release, number, words.read(0, most, "an event's bytes")});
            if (!release) p.late[size_t(number)] = 1;
        }
    }

    // The kernel itself, or one that does what happens at it too.
    fg_kernel *watch(fg_kernel *k, int64_t node) {
        if (next_event == events.size() || events[next_event].node != node) return k;
        auto w = std::make_unique<Watched>();
        w->run = run_watched, w->destroy = destroy_watched, w->kind = k->kind;
        w->inner = k, w->program = &p;
        while (next_event < events.size() && events[next_event].node == node) w->events.push_back(events[next_event++]);
        p.kernels.push_back(w.get());
        return w.release();
    }

    void load_node(int64_t node, int64_t n_tensors) {
        const int64_t kind = words.read();
        std::vector<int32_t> operands(size_t(words.count("n_operands")));
        for (int32_t &t : operands) t = int32_t(words.read(0, n_tensors - 1, "tensor"));
        const int32_t out = int32_t(words.read(0, n_tensors - 1, "tensor"));
        std::vector<fg_program *> used(size_t(words.count("n_parts")));
        for (fg_program *&part : used) part = parts[words.read(0, n_parts - 1, "part")];
        const int64_t n = words.count("n_words");
        fg_kernel *k = kind < FG_LOOP ? fg_kernel_new(int(kind), words.next, n, err, sizeof err)
                                      : Parser{{words.next, words.next + n}, int64_t(operands.size())}.make(kind, used);
        check(k);
        p.kernels.push_back(k);
        words.next += n;
        k = watch(k, node);
        check(fg_graph_node(p.graph, k, operands.data(), int(operands.size()), out, err, sizeof err) >= 0);
    }
};

void tell(char *err, int err_size, const char *text) {
    if (err && err_size > 0) snprintf(err, size_t(err_size), "%s", text);
}

// What the machine, or the cgroup that this process is in, has at all. A system that overcommits grants more, and ends the
// process when it is written.
int64_t memory_limit() {
    int64_t limit = int64_t(sysconf(_SC_PHYS_PAGES)) * sysconf(_SC_PAGESIZE);
    for (const char *path : {"/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"}) {
        long long bytes = 0;
        FILE *f = fopen(path, "r");
        if (!f) continue;
        if (fscanf(f, "%lld", &bytes) == 1 && bytes > 0 && bytes < limit) limit = bytes; // "max" does not scan
        fclose(f);
    }
    return limit > 0 ? limit : INT64_MAX;
}

bool is_beyond_limit(int64_t n_bytes) {
    static const int64_t limit = memory_limit();
    return n_bytes > (int64_t(1) << 28) && fg_alloc_in_use() > limit - n_bytes;
}

int64_t needed(const fg_program &p) {
    int64_t total = p.workspace_bytes;
    for (size_t j = 0; j < p.out_bytes.size(); ++j) total += p.alias[j] < 0 ? p.out_bytes[j] : 0;
    return total;
}

// Memory for every result that gets none of an argument; false, and nothing taken, when there is not enough.
bool take_results(const fg_program &p, void **bound) {
    for (size_t j = 0; j < p.out_bytes.size(); ++j) {
        void **to = bound + p.n_in + j;
        *to = p.alias[j] >= 0 ? bound[p.alias[j]] : p.late[j] ? fg_reserve(p.out_bytes[j]) : fg_alloc(p.out_bytes[j]);
        if (*to || p.alias[j] >= 0) continue;
        while (j-- > 0)
            if (p.alias[j] < 0) fg_free(bound[size_t(p.n_in) + j]);
        return false;
    }
    return true;
}

void give_results(const fg_program &p, void **bound) {
    for (size_t j = 0; j < p.out_bytes.size(); ++j)
        if (p.alias[j] < 0) fg_free(bound[size_t(p.n_in) + j]);
}

} // namespace

extern "C" {

fg_program *fg_program_new(const int64_t *words, int64_t n_words, fg_program *const *parts, int n_parts, char *err, int err_size) {
    try {
        auto p = std::make_unique<fg_program>();
        Loader{*p, {words, words + n_words}, parts, n_parts}.load();
        p->needed_bytes = needed(*p);
        return p.release();
    } catch (const std::exception &e) {
        tell(err, err_size, e.what());
    }
    return nullptr;
}

void fg_program_free(fg_program *p) { delete p; }

int fg_program_run(fg_program *p, void **bound, char *err, int err_size) {
    const bool beyond = is_beyond_limit(p->needed_bytes);
    void *workspace = p->workspace_bytes && !beyond ? fg_alloc(p->workspace_bytes) : nullptr;
    if (beyond || (p->workspace_bytes && !workspace) || !take_results(*p, bound)) {
        fg_free(workspace);
        tell(err, err_size, std::to_string(p->needed_bytes).c_str());
        return -2;
    }
    const int rc = p->execute(bound, workspace, err, err_size);
    fg_free(workspace);
    if (rc < 0) give_results(*p, bound);
    return rc;
}

void fg_program_profile(fg_program *p, int64_t *ns) { fg_graph_profile(p->graph, ns); }

int fg_program_dump(const fg_program *p, char *buf, int size) { return fg_graph_dump(p->graph, buf, size); }

int64_t fg_take_address(int64_t n_bytes) {
    return is_beyond_limit(n_bytes) ? 0 : int64_t(reinterpret_cast<intptr_t>(fg_alloc(n_bytes)));
}

void fg_give_address(int64_t address) { fg_free(reinterpret_cast<void *>(intptr_t(address))); }

void fg_set_host(fg_host f) { host = f; }

} // extern "C"
