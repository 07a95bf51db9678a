/* For C++ sources that call ggml: turns what is thrown, a failed GGML_ASSERT included, into a message. */
#ifndef FG_INTERNAL_GUARD_H
#define FG_INTERNAL_GUARD_H
#include <cstdio>
#include <exception>
#include <new>

// How many guarded calls are on this thread's stack: an abort outside of them has nobody to catch it.
extern thread_local int fg_guard_depth;

// Runs f, turns what it throws into a message and `failed`.
template <typename T, typename F>
T guarded(T failed, char *err, int err_size, F f) noexcept {
    const char *text = nullptr;
    T result = failed;
    ++fg_guard_depth;
    try {
        result = f();
    } catch (const std::bad_alloc &) {
        text = "out of memory";
    } catch (const std::exception &e) {
        if (err && err_size > 0) snprintf(err, size_t(err_size), "%s", e.what());
    } catch (...) {
        text = "unknown C++ exception";
    }
    --fg_guard_depth;
    if (text && err && err_size > 0) snprintf(err, size_t(err_size), "%s", text);
    return result;
}
#endif
