"""funcgrad on the CPU (or another device by FUNCGRAD_PLATFORMS).  python fg_bench.py [W1 W3 ...]

jit of the whole training step with params and optimizer state donated; device-resident batches.
"""

import sys
import time
from functools import partial

import numpy as np
import workloads as wl
from harness import (
    MEASURE_MEMORY,
    Times,
    Watch,
    emit,
    gflops,
    memory_and_time_children,
    ms,
    peak_rss_mib,
    reset_peak_rss,
    rss_mib,
    skip,
    times,
    us,
    wait_quiet,
    wanted,
)

import funcgrad as jax
import funcgrad.numpy as jnp
import funcgrad.optim as optax

PEER = "funcgrad"
dev = partial(jax.tree.map, jnp.asarray)


def ce(logits, y):
    lp = jax.nn.log_softmax(logits)
    return -jnp.take_along_axis(lp, y[..., None], -1).mean()


def train(name, loss, params, x, y, tx, n, warmup=5, budget=20, unit=ms, unit_name="ms"):
    """loss0, loss10, then the step time; returns (step, params, state, xs, ys)."""

    @partial(jax.jit, donate_argnums=(0, 1))
    def step(p, s, x, y):
        l, g = jax.value_and_grad(loss)(p, x, y)
        u, s = tx.update(g, s, p)
        return optax.apply_updates(p, u), s, l

    ev = jax.jit(loss)
    p = jax.tree.map(jnp.array, params)
    s = tx.init(p)
    xs, ys = [jnp.asarray(a) for a in x], [jnp.asarray(a) for a in y]
    emit(PEER, name, "loss0", float(ev(p, xs[0], ys[0])), 8)
    for i in range(10):
        p, s, _ = step(p, s, xs[i], ys[i])
    emit(PEER, name, "loss10", float(ev(p, xs[0], ys[0])), 8)
    st = [p, s, 0]

    def one():
        k = st[2] % wl.NBATCH
        st[0], st[1], l = step(st[0], st[1], xs[k], ys[k])
        st[2] += 1
        jax.block_until_ready((l, st[0]))

    ts = times(one, n, warmup, budget)
    emit(PEER, name, f"step_{unit_name}", unit(ts))
    return step, st, xs, ys, ts


# ---- models ------------------------------------------------------------------------------
def mlp(p, x):
    for w, b in p[:-1]:
        x = jax.nn.relu(x @ w + b)
    w, b = p[-1]
    return x @ w + b


def mlp_loss(p, x, y):
    return ce(mlp(p, x), y)


def adam():
    c = wl.ADAM
    return optax.adam(c["lr"], c["b1"], c["b2"], c["eps"])


def ln(x, g, b):
    m = x.mean(-1, keepdims=True)
    v = ((x - m) ** 2).mean(-1, keepdims=True)
    return (x - m) * jax.lax.rsqrt(v + wl.W3["ln_eps"]) * g + b


def block(x, p):
    B, T, D = x.shape
    H = wl.W3["heads"]
    h = ln(x, p["ln1_g"], p["ln1_b"]) @ p["qkv_w"] + p["qkv_b"]
    q, k, v = (a.reshape(B, T, H, D // H) for a in jnp.split(h, 3, -1))
    s = jnp.einsum("bqhd,bkhd->bhqk", q, k) / np.sqrt(D // H).astype(np.float32)
    s = jnp.where(jnp.tril(jnp.ones((T, T), bool)), s, -jnp.inf)
    o = jnp.einsum("bhqk,bkhd->bqhd", jax.nn.softmax(s), v).reshape(B, T, D)
    x = x + o @ p["proj_w"] + p["proj_b"]
    h = ln(x, p["ln2_g"], p["ln2_b"]) @ p["fc_w"] + p["fc_b"]
    return x + jax.nn.gelu(h, approximate=True) @ p["out_w"] + p["out_b"]


def gpt_loss(p, x, y, scan=False):
    h = p["wte"][x] + p["wpe"][: x.shape[1]]
    if scan:  # blocks is one stacked dict
        h, _ = jax.lax.scan(lambda h, q: (block(h, q), None), h, p["blocks"])
    else:
        for q in p["blocks"]:
            h = block(h, q)
    return ce(ln(h, p["lnf_g"], p["lnf_b"]) @ p["head_w"], y)


def gpt_tx():
    c = wl.W3
    return optax.chain(
        optax.clip_by_global_norm(c["clip"]), optax.adamw(c["lr"], c["b1"], c["b2"], c["eps"], weight_decay=c["wd"])
    )


def cnn_loss(p, x, y):
    conv = partial(
        jax.lax.conv_general_dilated, window_strides=(1, 1), padding="SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")
    )

    def pool(x):
        return jax.lax.reduce_window(x, -jnp.inf, jax.lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")

    x = pool(jax.nn.relu(conv(x, p["k1"]) + p["b1"]))
    x = pool(jax.nn.relu(conv(x, p["k2"]) + p["b2"]))
    x = jax.nn.relu(x.reshape(x.shape[0], -1) @ p["w3"] + p["b3"])
    return ce(x @ p["w4"] + p["b4"], y)


def lstm_loss(p, x, y):
    gx = x @ p["wx"] + p["b"]  # the input products of all steps at once
    z = jnp.zeros((x.shape[1], wl.W9["hidden"]), x.dtype)

    def cell(hc, g):
        h, c = hc
        i, f, g, o = jnp.split(g + h @ p["wh"], 4, -1)
        c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
        return (jax.nn.sigmoid(o) * jnp.tanh(c), c), None

    (h, _), _ = jax.lax.scan(cell, (z, z), gx)
    return ce(h @ p["wo"] + p["bo"], y)


# ---- workloads ---------------------------------------------------------------------------
def run_w1():
    params, x, y = wl.w1()
    name = wl.W1["name"]
    step, st, xs, ys, _ = train(name, mlp_loss, params, x, y, adam(), 2000, 50, 5, us, "us")

    def np_in():  # numpy batch in, Python float out
        k = st[2] % wl.NBATCH
        st[0], st[1], l = step(st[0], st[1], x[k], y[k])
        st[2] += 1
        return float(l)

    emit(PEER, name, "step_numpy_in_float_out_us", us(times(np_in, 1000, 20, 5)))
    tx = adam()
    X, Y = jnp.asarray(x), jnp.asarray(y)

    @partial(jax.jit, donate_argnums=(0, 1))
    def many(p, s):  # 160 steps inside one program
        def body(c, k):
            l, g = jax.value_and_grad(mlp_loss)(c[0], X[k], Y[k])
            u, s = tx.update(g, c[1], c[0])
            return (optax.apply_updates(c[0], u), s), l

        return jax.lax.scan(body, (p, s), jnp.arange(160) % wl.NBATCH)

    c = [(st[0], st[1])]

    def block_of_steps():
        c[0], l = many(*c[0])
        l.block_until_ready()

    emit(PEER, name, "step_in_scan_us", us(times(block_of_steps, 20, 2, 5), 160))


def run_w2():
    params, x, y = wl.w2()
    c = wl.W2
    ts = train(c["name"], mlp_loss, params, x, y, adam(), 300, 5, 4)[-1]
    emit(PEER, c["name"], "gflops", gflops(wl.mlp_flops(c["sizes"], c["batch"]), ts))


def run_w3():
    params, x, y = wl.w3()
    ts = train(wl.W3["name"], gpt_loss, params, x, y, gpt_tx(), 40, 3, 10)[-1]
    emit(PEER, wl.W3["name"], "gflops", gflops(wl.w3_flops(), ts))


def run_w4():
    params, x, y = wl.w4()
    c = wl.W4
    ts = train(c["name"], cnn_loss, params, x, y, optax.sgd(c["lr"], c["momentum"]), 60, 3, 5)[-1]
    emit(PEER, c["name"], "gflops", gflops(wl.w4_flops(), ts))


def run_w5():
    fs = {"NN": jax.jit(lambda a, b: a @ b), "NT": jax.jit(lambda a, b: a @ b.T), "TN": jax.jit(lambda a, b: a.T @ b)}
    for case, n, lay in wl.w5_cases():
        a, b = map(jnp.asarray, wl.w5(n))
        ts = times(lambda: fs[lay](a, b).block_until_ready(), 100, 3, 1.5, 8)
        emit(PEER, f"matmul-{case}", "gflops", gflops(2 * n**3, ts))


def w6_fn(x):
    return jnp.sum(jnp.tanh(x) * jax.nn.sigmoid(x) + x * x * 0.5 - jnp.log1p(jnp.exp(x)))


def run_w6():
    x = jnp.asarray(wl.w6())
    yr, gr = wl.w6_reference()
    f, g = jax.jit(w6_fn), jax.jit(jax.grad(w6_fn))
    name = wl.W6["name"]
    emit(PEER, name, "value_rel_err", abs(float(f(x)) - yr) / abs(yr))
    emit(PEER, name, "grad_max_abs_err", np.abs(np.asarray(g(x)) - gr).max())
    emit(PEER, name, "forward_ms", ms(times(lambda: f(x).block_until_ready(), 40, 3, 2)))
    emit(PEER, name, "grad_ms", ms(times(lambda: g(x).block_until_ready(), 40, 3, 2)))


def run_w7():
    """Fresh jit each time: first step as the user waits for it, and its parts."""
    tx = gpt_tx()
    for scan in (False, True):
        for L in wl.W7["layers"]:
            params, x, y = wl.w3(L)
            if scan:
                params["blocks"] = {k: np.stack([q[k] for q in params["blocks"]]) for k in params["blocks"][0]}
            x0, y0 = jnp.asarray(x[0]), jnp.asarray(y[0])
            tot, parts = Times(), []
            wait_quiet()
            w = Watch()
            for _ in range({4: 2}.get(L, 1)):
                jax.clear_caches()
                p = jax.tree.map(jnp.array, params)
                s = tx.init(p)
                jax.block_until_ready((p, s))

                def f(p, s, x, y):
                    l, g = jax.value_and_grad(lambda p: gpt_loss(p, x, y, scan))(p)
                    u, s = tx.update(g, s, p)
                    return optax.apply_updates(p, u), s, l

                t0 = time.perf_counter()
                tr = jax.jit(f, donate_argnums=(0, 1)).trace(p, s, x0, y0)
                t1 = time.perf_counter()
                lo = tr.lower()
                t2 = time.perf_counter()
                ex = lo.compile()
                t3 = time.perf_counter()
                jax.block_until_ready(ex(p, s, x0, y0))
                t4 = time.perf_counter()
                tot.append(t4 - t0)
                parts.append((t1 - t0, t2 - t1, t3 - t2, t4 - t3))
            tot.other_cpu = w.stop()
            name = f"first-step-{L}" + ("-scan" if scan else "")
            emit(PEER, name, "total_s", tot)
            for i, m in enumerate(("trace_s", "lower_s", "compile_s", "run_s")):
                emit(PEER, name, m, [q[i] for q in parts])


def w8_child(every, scan):
    """XLA on CPU undoes jax.checkpoint of unrolled layers (its barriers are dropped and the recomputed products
    merged with the first ones); under lax.scan it holds.  So both forms are measured."""
    params, x = wl.w8()

    def seg(h, ps):
        for w, b in ps:
            h = jax.nn.relu(h @ w + b)
        return h

    def loss(p, x):
        if scan:  # p: a segment of layers, each stacked over the segments
            body = lambda h, q: (seg(h, q), None)
            h, _ = jax.lax.scan(jax.checkpoint(body) if every else body, x, p)
        elif not every:
            h = seg(x, p)
        else:
            h = x
            for i in range(0, len(p), every):
                h = jax.checkpoint(seg)(h, p[i : i + every])
        return (h * h).mean()

    if scan:
        n = max(every, 1)
        params = [tuple(np.stack(a) for a in zip(*params[i::n])) for i in range(n)]
    p, x = dev(params), jnp.asarray(x)
    del params
    ex = jax.jit(jax.value_and_grad(loss)).lower(p, x).compile()
    m = ex.memory_analysis()
    name = f"grad-memory-ckpt{every}" + ("-scan" if scan else "")
    if not MEASURE_MEMORY:
        emit(PEER, name, "grad_s", times(lambda: jax.block_until_ready(ex(p, x)), 3, 1, 12, 2))
        return
    base = rss_mib()
    reset_peak_rss()
    l, g = jax.block_until_ready(ex(p, x))
    emit(PEER, name, "peak_rss_growth_mib", peak_rss_mib() - base)
    emit(PEER, name, "planned_mib", (m.peak_size_in_bytes - m.argument_size_in_bytes) / 2**20)
    emit(PEER, name, "loss", float(l), 7)
    emit(PEER, name, "grad_norm", float(optax.global_norm(g)), 7)


def run_w8():
    for e in wl.W8["every"]:
        for form in ("", "-scan"):
            memory_and_time_children([sys.executable, __file__, f"--w8={e}{form}"])


def run_w9():
    params, x, y = wl.w9()
    train(wl.W9["name"], lstm_loss, params, x, y, adam(), 100, 3, 5)


def run_w10():
    c = wl.W10
    q, k, v, ct = map(jnp.asarray, wl.w10())

    def attn(q, k, v):
        s = jnp.einsum("bhqd,bhkd->bhqk", q, k) * np.float32(1 / np.sqrt(c["d"]))
        s = jnp.where(jnp.tril(jnp.ones((c["t"], c["t"]), bool)), s, -jnp.inf)
        return jax.nn.softmax(s) @ v

    f = jax.jit(attn)
    g = jax.jit(lambda q, k, v, ct: jax.vjp(attn, q, k, v)[1](ct))  # forward and backward
    emit(PEER, c["name"], "out_abs_mean", float(jnp.abs(f(q, k, v)).mean()), 7)
    emit(PEER, c["name"], "grad_abs_mean", float(sum(jnp.abs(a).mean() for a in g(q, k, v, ct))), 7)
    ts = times(lambda: f(q, k, v).block_until_ready(), 30, 2, 3)
    emit(PEER, c["name"], "forward_ms", ms(ts))
    emit(PEER, c["name"], "forward_gflops_full_square", gflops(wl.w10_flops(), ts))
    emit(PEER, c["name"], "forward_plus_grad_ms", ms(times(lambda: jax.block_until_ready(g(q, k, v, ct)), 20, 2, 4)))


if __name__ == "__main__":
    for a in sys.argv[1:]:
        if a.startswith("--w8="):
            w8_child(int(a[5:].split("-")[0]), a.endswith("-scan"))
            sys.exit()
    want = wanted()
    for i in range(1, 11):
        if want(f"W{i}"):
            try:
                globals()[f"run_w{i}"]()
            except Exception as e:  # one broken workload must not hide the rest
                skip(PEER, f"W{i}", f"{type(e).__name__}: {e}")
