// Programs: read from a list of words, and run with their memory.
#include <cstdio>
#include <cstring>
#include <memory>

#include <unistd.h>

#include "program_internal.h"

namespace {

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

void run_watched(const fg_kernel *k, void *const *base) {
    const Watched &w = *static_cast<const Watched *>(k);
    for (const Event &e : w.events)
        if (!e.release) fg_commit(w.program->results[e.number], e.n_bytes);
    w.inner->run(w.inner, base);
    for (const Event &e : w.events)
        if (e.release) fg_release(w.program->workspace, e.number, e.n_bytes);
}

void destroy_watched(fg_kernel *k) { delete static_cast<Watched *>(k); }

// ---- loading ----

struct Loader {
    fg_program &p;
    Words words;
    fg_program *const *parts;
    int n_parts;
    std::vector<Event> events{};
    size_t next_event = 0;
    int no_tensor = -1;
    char err[256] = "";

    void check(bool good) const {
        if (!good) fail(err);
    }

    void load() {
        p.n_in = words.read(0, FG_MAX_SLOT, "n_in"); // which take no words
        const int64_t n_out = words.count("n_out");
        p.workspace_bytes = words.read(0, FG_LIMIT, "workspace");
        for (int64_t i = 0; i < n_out; ++i) {
            p.out_bytes.push_back(words.read(0, FG_LIMIT, "n_bytes"));
            p.alias.push_back(int32_t(words.read(-1, p.n_in - 1, "alias")));
        }
        load_events();
        load_tensors(words.count("n_tensors"));
    }

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
                                      : fg_control_new(kind, {words.next, words.next + n}, int64_t(operands.size()), used);
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

} // extern "C"
