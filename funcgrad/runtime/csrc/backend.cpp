#include "backend.h"

#include <cstdio>
#include <exception>
#include <new>
#include <stdexcept>
#include <string>

#include "ggml-alloc.h"
#include "ggml-backend.h"
#include "ggml.h"
#include "internal_guard.h"

namespace {

ggml_backend_reg_t loaded = nullptr;

void quiet(ggml_log_level level, const char *text, void *) {
    if (level == GGML_LOG_LEVEL_ERROR) fputs(text, stderr);
}

} // namespace

int fg_backend_load(const char *path, char *err, int err_size) {
    return guarded<int>(-1, err, err_size, [&] {
        fg_guard_ggml();
        ggml_log_set(quiet, nullptr);
        if (!loaded) loaded = ggml_backend_load(path);
        if (!loaded) throw std::runtime_error("the library could not be loaded, or it found no Vulkan driver");
        return int(ggml_backend_reg_dev_count(loaded));
    });
}

ggml_backend *fg_backend_open(int index, char *err, int err_size) {
    return guarded<ggml_backend *>(nullptr, err, err_size, [&] {
        if (!loaded || index < 0 || size_t(index) >= ggml_backend_reg_dev_count(loaded)) throw std::runtime_error("no such device");
        ggml_backend_t backend = ggml_backend_dev_init(ggml_backend_reg_dev_get(loaded, size_t(index)), nullptr);
        if (!backend) throw std::runtime_error("the device could not be opened");
        return backend;
    });
}

void fg_backend_close(ggml_backend *backend) {
    guarded<int>(-1, nullptr, 0, [&] { ggml_backend_free(backend); return 0; });
}

ggml_backend_buffer *fg_backend_alloc(ggml_backend *backend, int64_t n_bytes, char *err, int err_size) {
    return guarded<ggml_backend_buffer *>(nullptr, err, err_size, [&] {
        ggml_backend_buffer_t buffer = ggml_backend_alloc_buffer(backend, size_t(n_bytes));
        if (!buffer) throw std::bad_alloc();
        return buffer;
    });
}

void fg_backend_release(ggml_backend_buffer *buffer) {
    guarded<int>(-1, nullptr, 0, [&] { ggml_backend_buffer_free(buffer); return 0; });
}

ggml_gallocr *fg_backend_plan(ggml_backend *backend, ggml_cgraph *graph, char *err, int err_size) {
    return guarded<ggml_gallocr *>(nullptr, err, err_size, [&] {
        ggml_gallocr_t plan = ggml_gallocr_new(ggml_backend_get_default_buffer_type(backend));
        bool done = false;
        try {
            done = ggml_gallocr_alloc_graph(plan, graph);
        } catch (...) {
            ggml_gallocr_free(plan);
            throw;
        }
        if (!done) {
            ggml_gallocr_free(plan);
            throw std::bad_alloc();
        }
        return plan;
    });
}

int fg_backend_run(ggml_backend *backend, ggml_cgraph *graph, char *err, int err_size) {
    return guarded<int>(-1, err, err_size, [&] {
        const ggml_status status = ggml_backend_graph_compute(backend, graph);
        if (status != GGML_STATUS_SUCCESS) throw std::runtime_error(ggml_status_to_string(status));
        return 0;
    });
}

int fg_backend_put(ggml_tensor *to, const void *data, int64_t n_bytes, char *err, int err_size) {
    return guarded<int>(-1, err, err_size, [&] { ggml_backend_tensor_set(to, data, 0, size_t(n_bytes)); return 0; });
}

int fg_backend_get(const ggml_tensor *from, void *data, int64_t n_bytes, char *err, int err_size) {
    return guarded<int>(-1, err, err_size, [&] { ggml_backend_tensor_get(from, data, 0, size_t(n_bytes)); return 0; });
}
