"""Steps of W2 and W3 by make_train_step in float32, bfloat16 and float16, in turns.  python mixed_precision.py [W2 W3]

One line for each precision: the median and the least time of a step, the planned memory, and the loss after the run.
"""

import statistics
import sys
import time

import fg_bench as fb
import workloads as wl

import funcgrad as fg
import funcgrad.numpy as fnp

ROUNDS, STEPS = 15, {"W2": 40, "W3": 4}


def ln(x, g, b):
    """Layer normalisation in float32, as nn.LayerNorm: float16 does not hold the derivative of rsqrt."""
    return fb.ln(x.astype("float32"), g, b).astype(x.dtype)


def block(x, p):
    """The block of W3 with a factor that is a Python number, which leaves a half float as it is."""
    batch, length, width = x.shape
    heads = wl.W3["heads"]
    h = ln(x, p["ln1_g"], p["ln1_b"]) @ p["qkv_w"] + p["qkv_b"]
    q, k, v = (a.reshape(batch, length, heads, width // heads) for a in fnp.split(h, 3, -1))
    s = fnp.einsum("bqhd,bkhd->bhqk", q, k) * (width // heads) ** -0.5
    s = fnp.where(fnp.tril(fnp.ones((length, length), bool)), s, -fnp.inf)
    o = fnp.einsum("bhqk,bkhd->bqhd", fg.nn.softmax(s), v).reshape(batch, length, width)
    x = x + o @ p["proj_w"] + p["proj_b"]
    h = ln(x, p["ln2_g"], p["ln2_b"]) @ p["fc_w"] + p["fc_b"]
    return x + fg.nn.gelu(h, approximate=True) @ p["out_w"] + p["out_b"]


def w2(p, batch):
    return fb.mlp_loss(p, *batch)


def w3(p, batch):
    x, y = batch
    h = p["wte"][x] + p["wpe"][: x.shape[1]]
    for q in p["blocks"]:
        h = block(h, q)
    return fb.ce((ln(h, p["lnf_g"], p["lnf_b"]) @ p["head_w"]).astype("float32"), y)


def runs(loss, optimizer, params, batch):
    """A train step and its state for each precision."""
    out = {}
    for name in (None, "bfloat16", "float16"):
        ts = fg.make_train_step(loss, optimizer, precision=name)
        state, _ = ts.step(ts.init(params), batch)
        memory = ts.step.captured.lower(state, batch).compile().memory_analysis()
        out[name or "float32"] = [ts, state, memory, []]
    return out


def measure(name, loss, optimizer, params, x, y):
    batch = fnp.asarray(x[0]), fnp.asarray(y[0])
    found = runs(loss, optimizer, params, batch)
    for _ in range(ROUNDS):
        for entry in found.values():
            start = time.perf_counter()
            for _ in range(STEPS[name]):
                entry[1], metrics = entry[0].step(entry[1], batch)
            value = float(metrics["loss"])
            entry[3].append((time.perf_counter() - start) / STEPS[name] * 1e3)
            entry.append(value)
    for precision, (_, state, memory, times, *values) in found.items():
        print(
            f"{name} {precision:9} median {statistics.median(times):8.3f} ms  least {min(times):8.3f} ms  "
            f"peak {memory.peak_size_in_bytes / 2**20:7.2f} MiB  workspace {memory.temp_size_in_bytes / 2**20:7.2f} MiB  "
            f"loss {values[-1]:.4f}  skipped {int(state.skipped)}",
            flush=True,
        )


if __name__ == "__main__":
    wanted = sys.argv[1:] or ["W2", "W3"]
    if "W2" in wanted:
        measure("W2", w2, fb.adam(), *wl.w2())
    if "W3" in wanted:
        measure("W3", w3, fb.gpt_tx(), *wl.w3())
