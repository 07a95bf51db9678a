#include "graph.h"

#include <dlfcn.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdarg>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <memory>
#include <new>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "ggml-backend.h"
#include "ggml-cpu.h"
#include "ggml.h"
#include "internal_guard.h"

thread_local int fg_guard_depth = 0;

namespace {

struct Node {
    const fg_kernel *kernel;
    std::vector<int32_t> operands;
    int32_t out;
    std::vector<ggml_tensor *> tensors; // the operands' leaves
    std::vector<void *> base;           // filled at each run
    int64_t *ns = nullptr;              // where the time goes, if anybody asks
};

[[noreturn]] __attribute__((format(printf, 1, 2))) void fail(const char *format, ...) {
    char text[256];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    throw std::invalid_argument(text);
}

void on_ggml_abort(const char *message) {
    if (fg_guard_depth > 0) throw std::runtime_error(std::string("ggml: ") + message);
    fprintf(stderr, "%s\n", message); // returning makes ggml abort
}

ggml_type type_of(int dtype) {
    switch (dtype) {
        case FG_F32: return GGML_TYPE_F32;
        case FG_F16: return GGML_TYPE_F16;
        case FG_BF16: return GGML_TYPE_BF16;
        case FG_I32:
        case FG_U32: return GGML_TYPE_I32; // ggml has no unsigned type; only our kernels look at the bits
        case FG_BOOL: return GGML_TYPE_I8;
        default: fail("fg_graph_tensor: dtype must be one of enum fg_dtype, got %d", dtype);
    }
}

// Why the run on this thread stops; its remaining nodes do nothing.
thread_local std::string stop_reason;

void run_node(ggml_tensor *dst, int ith, int, void *userdata) {
    if (ith != 0 || !stop_reason.empty()) return;
    Node &node = *static_cast<Node *>(userdata);
    for (size_t i = 0; i < node.tensors.size(); ++i) node.base[i] = node.tensors[i]->data;
    dst->data = dst->view_src->data;
    if (!node.ns) return fg_kernel_run(node.kernel, node.base.data());
    const auto start = std::chrono::steady_clock::now();
    fg_kernel_run(node.kernel, node.base.data());
    *node.ns += std::chrono::nanoseconds(std::chrono::steady_clock::now() - start).count();
}

// Before it aborts, ggml would start a debugger on this process; it looks at this variable when that time comes.
__attribute__((constructor)) void no_debugger() { setenv("GGML_NO_BACKTRACE", "1", 0); }

struct Busy { // held while a graph runs
    explicit Busy(std::atomic<bool> &flag) : flag(flag) {
        if (flag.exchange(true, std::memory_order_acquire)) fail("fg_graph_run: the graph is already running");
    }
    ~Busy() { flag.store(false, std::memory_order_release); }
    std::atomic<bool> &flag;
};

struct Awake { // the pool's workers stay awake while a graph runs
    Awake() { fg_run_begin(); }
    ~Awake() { fg_run_end(); }
};

} // namespace

struct fg_graph {
    int64_t room = 0;
    ggml_context *context = nullptr;
    ggml_cgraph *graph = nullptr;
    ggml_backend_t backend = nullptr;
    ggml_threadpool_t threads = nullptr;
    std::vector<ggml_tensor *> leaves;  // by index
    std::vector<ggml_tensor *> current; // by index: the leaf, or the last node that wrote to it
    std::vector<uint8_t> used, bound_here;
    std::vector<std::unique_ptr<Node>> nodes;
    std::vector<int32_t> bound;
    bool checked = false; // every used tensor is placed or bound
    std::atomic<bool> busy{false};

    explicit fg_graph(int64_t max_tensors) : room(max_tensors) {}

    // Apart from the constructor, so that the destructor cleans up after a failure half-way.
    void open() {
        const size_t n = size_t(room);
        ggml_init_params params = {n * ggml_tensor_overhead() + ggml_graph_overhead_custom(n, false), nullptr, true};
        context = ggml_init(params);
        if (!context) throw std::bad_alloc();
        graph = ggml_new_graph_custom(context, n, false);
        backend = ggml_backend_cpu_init();
        ggml_threadpool_params one = ggml_threadpool_params_default(1);
        one.poll = 0;
        threads = ggml_threadpool_new(&one); // or ggml would make one for each run
        if (!backend || !threads) throw std::bad_alloc();
        ggml_backend_cpu_set_n_threads(backend, 1);
        ggml_backend_cpu_set_threadpool(backend, threads);
    }

    ~fg_graph() {
        if (backend) ggml_backend_free(backend);
        if (threads) ggml_threadpool_free(threads);
        if (context) ggml_free(context);
    }

    void take_room(const char *who) {
        if (int64_t(leaves.size() + nodes.size()) >= room) fail("%s: the graph has room for %lld tensors and nodes", who, (long long)room);
    }

    void check_index(const char *who, int64_t i) const {
        if (i < 0 || i >= int64_t(leaves.size())) fail("%s: tensor must be in [0, %zu), got %lld", who, leaves.size(), (long long)i);
    }

    int add_tensor(int dtype, int64_t n_elements) {
        take_room("fg_graph_tensor");
        const ggml_type type = type_of(dtype);
        if (n_elements < 0 || n_elements > INT64_MAX / 8) fail("fg_graph_tensor: n_elements must be 0 or more, got %lld", (long long)n_elements);
        ggml_tensor *leaf = ggml_new_tensor_1d(context, type, n_elements);
        leaves.push_back(leaf);
        current.push_back(leaf);
        used.push_back(0);
        bound_here.push_back(0);
        return int(leaves.size()) - 1;
    }

    // The node is a view of the leaf that it writes, so ggml knows where the result lies; its sources are the latest
    // nodes that wrote its operands, so ggml knows the order too. ggml has room for ten sources; `operands` has all.
    int add_node(const fg_kernel *kernel, const int32_t *operands, int n, int32_t out) {
        take_room("fg_graph_node");
        if (!kernel || n < 1 || !operands) fail("fg_graph_node: needs a kernel and at least one operand");
        for (int i = 0; i < n; ++i) check_index("fg_graph_node", operands[i]);
        if (std::find(operands, operands + n, out) == operands + n) fail("fg_graph_node: out must be one of the operands, got %d", out);
        if (ggml_nelements(leaves[size_t(out)]) == 0) fail("fg_graph_node: the result must not be empty, got tensor %d", out);

        auto node = std::make_unique<Node>();
        node->kernel = kernel;
        node->out = out;
        node->operands.assign(operands, operands + n);
        node->base.resize(size_t(n));
        ggml_tensor *target = current[size_t(out)];
        std::vector<ggml_tensor *> sources;
        for (int32_t i : node->operands) {
            node->tensors.push_back(leaves[size_t(i)]);
            ggml_tensor *source = current[size_t(i)];
            const bool known = source == target || std::find(sources.begin(), sources.end(), source) != sources.end();
            if (!known && sources.size() < GGML_MAX_SRC - 2) sources.push_back(source);
        }
        nodes.reserve(nodes.size() + 1);
        ggml_tensor *result = ggml_custom_inplace(context, target, sources.data(), int(sources.size()), run_node, 1, node.get());
        const int number = ggml_graph_n_nodes(graph);
        ggml_build_forward_expand(graph, result);
        if (ggml_graph_n_nodes(graph) != number + 1 || ggml_graph_node(graph, number) != result)
            throw std::logic_error("fg_graph_node: ggml reordered the nodes");
        for (int32_t i : node->operands) used[size_t(i)] = 1;
        current[size_t(out)] = result;
        nodes.push_back(std::move(node));
        checked = false;
        return number;
    }

    void declare_bound(const int32_t *tensors, int n) {
        for (int i = 0; i < n; ++i) check_index("fg_graph_declare_bound", tensors[i]);
        std::vector<int32_t> list(tensors, tensors + std::max(n, 0));
        for (int32_t i : bound) bound_here[size_t(i)] = 0, leaves[size_t(i)]->data = nullptr;
        bound = std::move(list);
        for (int32_t i : bound) bound_here[size_t(i)] = 1;
        checked = false;
    }

    void bind(void *const *data) {
        for (size_t i = 0; i < bound.size(); ++i) {
            ggml_tensor *leaf = leaves[size_t(bound[i])];
            if (!data[i] && ggml_nelements(leaf) > 0) fail("fg_graph_run: bound[%zu] must not be NULL", i);
            leaf->data = data[i];
        }
        if (checked) return;
        for (size_t i = 0; i < leaves.size(); ++i)
            if (used[i] && !bound_here[i] && !leaves[i]->data && ggml_nelements(leaves[i]) > 0)
                fail("fg_graph_run: tensor %zu is neither placed nor bound", i);
        checked = true;
    }

    std::string listing() const {
        std::string text;
        for (size_t i = 0; i < nodes.size(); ++i) {
            const Node &node = *nodes[i];
            const ggml_tensor *leaf = leaves[size_t(node.out)];
            text += std::to_string(i) + ": t" + std::to_string(node.out) + " " + ggml_type_name(leaf->type) + "[" +
                    std::to_string(ggml_nelements(leaf)) + "] <-";
            for (int32_t operand : node.operands) text += " t" + std::to_string(operand) + (bound_here[size_t(operand)] ? "*" : "");
            text += "\n";
        }
        return text;
    }
};

extern "C" {

fg_graph *fg_graph_new(int64_t max_tensors, char *err, int err_size) {
    return guarded<fg_graph *>(nullptr, err, err_size, [&] {
        if (max_tensors < 1 || max_tensors > INT32_MAX / 4) fail("fg_graph_new: max_tensors must be in [1, 2^29), got %lld", (long long)max_tensors);
        ggml_set_abort_callback(on_ggml_abort);
        auto g = std::make_unique<fg_graph>(max_tensors);
        g->open();
        return g.release();
    });
}

void fg_graph_free(fg_graph *g) {
    guarded<int>(-1, nullptr, 0, [&] { delete g; return 0; });
}

int fg_graph_tensor(fg_graph *g, int dtype, int64_t n_elements, char *err, int err_size) {
    return guarded<int>(-1, err, err_size, [&] { return g->add_tensor(dtype, n_elements); });
}

int fg_graph_node(fg_graph *g, const fg_kernel *k, const int32_t *operands, int n_operands, int32_t out, char *err, int err_size) {
    return guarded<int>(-1, err, err_size, [&] { return g->add_node(k, operands, n_operands, out); });
}

int fg_graph_place(fg_graph *g, int tensor, void *data, char *err, int err_size) {
    return guarded<int>(-1, err, err_size, [&] {
        g->check_index("fg_graph_place", tensor);
        g->leaves[size_t(tensor)]->data = data;
        g->checked = false;
        return 0;
    });
}

int fg_graph_declare_bound(fg_graph *g, const int32_t *tensors, int n, char *err, int err_size) {
    return guarded<int>(-1, err, err_size, [&] { g->declare_bound(tensors, n); return 0; });
}

int fg_graph_run(fg_graph *g, void *const *bound, char *err, int err_size) {
    return guarded<int>(-1, err, err_size, [&] {
        Busy busy(g->busy);
        g->bind(bound);
        Awake awake;
        const ggml_status status = ggml_backend_graph_compute(g->backend, g->graph);
        if (!stop_reason.empty()) {
            const std::string reason = std::exchange(stop_reason, std::string());
            throw std::runtime_error(reason);
        }
        if (status != GGML_STATUS_SUCCESS) throw std::runtime_error(std::string("ggml: ") + ggml_status_to_string(status));
        return 0;
    });
}

void fg_graph_stop(const char *reason) {
    guarded<int>(-1, nullptr, 0, [&] { stop_reason = reason && *reason ? reason : "stopped"; return 0; });
}

void fg_graph_profile(fg_graph *g, int64_t *ns) {
    for (size_t i = 0; i < g->nodes.size(); ++i) g->nodes[i]->ns = ns ? ns + i : nullptr;
}

int fg_graph_n_nodes(const fg_graph *g) { return int(g->nodes.size()); }

int fg_graph_dump(const fg_graph *g, char *buf, int size) {
    return guarded<int>(-1, nullptr, 0, [&] {
        const std::string text = g->listing();
        if (buf && size > 0) snprintf(buf, size_t(size), "%s", text.c_str());
        return int(text.size());
    });
}

int fg_load_blas(const char *path, char *err, int err_size) {
    return guarded<int>(-1, err, err_size, [&] {
        void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
        if (!library) fail("fg_load_blas: %s", dlerror());
        for (const char *prefix : {"scipy_", ""}) {
            const std::string p(prefix);
            void *sgemm = dlsym(library, (p + "cblas_sgemm").c_str());
            void *set_threads = dlsym(library, (p + "openblas_set_num_threads").c_str());
            if (!sgemm || !set_threads) continue;
            reinterpret_cast<void (*)(int)>(set_threads)(1);
            fg_set_sgemm(reinterpret_cast<fg_sgemm>(sgemm));
            return 0; // the library stays open for good
        }
        dlclose(library);
        fail("fg_load_blas: %s has no cblas_sgemm", path);
    });
}

} // extern "C"
