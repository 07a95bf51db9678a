// What program.cpp and control.cpp share: the reader of words, and the program that a part is.
#ifndef FG_PROGRAM_INTERNAL_H
#define FG_PROGRAM_INTERNAL_H
#include "program.h"

#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "internal.h"

[[noreturn]] inline void fail(const std::string &text) { throw std::invalid_argument(text); }

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

    // Runs it with the workspace at `at`: 0, or -1 with a message.
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

// The kernel of a node of enum fg_control, from the node's words and parts; throws when they do not fit.
fg_kernel *fg_control_new(int64_t kind, Words words, int64_t n_slots, std::vector<fg_program *> parts);

#endif
