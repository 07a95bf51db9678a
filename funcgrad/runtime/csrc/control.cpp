// Control flow: kernels that run programs, and the one that calls the host.
#include <cstring>
#include <memory>

#include "program_internal.h"

namespace {

fg_host host = nullptr;

struct Pointer {
    int64_t slot = -1, offset = 0, step = 0;
    char *at(void *const *base) const { return slot < 0 ? nullptr : static_cast<char *>(base[slot]) + offset; }
};

struct Carry {
    Pointer init, result, spare;
    size_t n_bytes = 0;
    bool in_place = false;
};

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

} // namespace

fg_kernel *fg_control_new(int64_t kind, Words words, int64_t n_slots, std::vector<fg_program *> parts) {
    return Parser{words, n_slots}.make(kind, std::move(parts));
}

extern "C" void fg_set_host(fg_host f) { host = f; }
