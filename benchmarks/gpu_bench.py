"""The workloads on one GPU, of one library at a time.

    python gpu_bench.py funcgrad|jax|torch|torch-compile tensorfloat32|float32 W2 W3 ... large-gpt

funcgrad runs on vulkan:0, the others on CUDA.  The programs are those of fg_bench, jax_bench and torch_bench; every
timed call ends when the device is done.  ``large-gpt`` is W3's training step at d_model 768, 12 layers, sequence 512,
batch 32: the first call (tracing and compiling included), and steps one by one and back to back.
"""

import importlib
import os
import sys
import time

import numpy as np
import workloads as wl
from harness import emit

LIBRARY, PRECISION = sys.argv[1], sys.argv[2]
PEER = f"{LIBRARY} {PRECISION}"
LARGE = dict(d=768, layers=12, heads=12, seq=512, batch=32, vocab=65)


def large_params(rng):
    d, v = LARGE["d"], LARGE["vocab"]

    def normal(*shape):
        return (rng.standard_normal(shape) * 0.02).astype(np.float32)

    def block():
        out = {f"{n}_{k}": np.full(d, k == "g", np.float32) for n in ("ln1", "ln2") for k in "gb"}
        for name, shape in {"qkv": (d, 3 * d), "proj": (d, d), "fc": (d, 4 * d), "out": (4 * d, d)}.items():
            out[f"{name}_w"], out[f"{name}_b"] = normal(*shape), np.zeros(shape[1], np.float32)
        return out

    ends = {"lnf_g": np.ones(d, np.float32), "lnf_b": np.zeros(d, np.float32), "head_w": normal(d, v)}
    return {
        "wte": normal(v, d), "wpe": normal(LARGE["seq"], d), **ends, "blocks": [block() for _ in range(LARGE["layers"])]
    }  # fmt: skip


def large_step(module):
    """The step as a function without arguments that returns the loss, and what waits for the device."""
    rng = np.random.default_rng(0)
    wl.W3.update(d=LARGE["d"], heads=LARGE["heads"], seq=LARGE["seq"], batch=LARGE["batch"])
    params = large_params(rng)
    x, y = [rng.integers(0, LARGE["vocab"], (LARGE["batch"], LARGE["seq"])).astype(np.int32) for _ in range(2)]
    if LIBRARY.startswith("torch"):
        return torch_step(module, params, x, y)
    jax, optax = module.jax, module.optax
    tx = module.gpt_tx()

    def update(p, s, x, y):
        loss, g = jax.value_and_grad(module.gpt_loss)(p, x, y)
        u, s = tx.update(g, s, p)
        return optax.apply_updates(p, u), s, loss

    step = jax.jit(update, donate_argnums=(0, 1))
    p = jax.tree.map(module.jnp.asarray, params)
    state = [p, tx.init(p), None]
    x, y = module.jnp.asarray(x), module.jnp.asarray(y)

    def one():
        state[:] = step(state[0], state[1], x, y)
        return state[2]

    return one, lambda: jax.block_until_ready((state[2], state[0]))


def torch_step(module, params, x, y):
    torch = module.torch
    p = module.gpt_p(params)
    opt, ps = module.gpt_opt(p), module.leaves(p)
    x, y = module.T(x), module.T(y).long()
    loss_of = module.maybe(module.gpt_loss)

    def one():
        opt.zero_grad(set_to_none=True)
        loss = loss_of(p, x, y)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(ps, wl.W3["clip"], foreach=True)
        opt.step()
        return loss.detach()

    return one, torch.cuda.synchronize


def run_large(module):
    one, wait = large_step(module)
    start = time.perf_counter()
    loss = one()
    wait()
    emit(PEER, "large-gpt", "first_step_s", time.perf_counter() - start)
    emit(PEER, "large-gpt", "loss0", float(loss), 8)
    for _ in range(5):
        loss = one()
    wait()
    seconds = []
    for _ in range(15):
        start = time.perf_counter()
        loss = one()
        wait()
        seconds.append(time.perf_counter() - start)
    emit(PEER, "large-gpt", "step_ms", [s * 1e3 for s in seconds])
    start = time.perf_counter()
    for _ in range(10):
        loss = one()
    wait()
    emit(PEER, "large-gpt", "step_back_to_back_ms", (time.perf_counter() - start) * 100)
    emit(PEER, "large-gpt", "loss31", float(loss), 8)


def cuda_torch(module):
    """torch_bench on CUDA: tensors made there, and every timed call waits."""
    torch, times = module.torch, module.times
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = PRECISION != "float32"
    module.T = lambda a: torch.from_numpy(np.array(a)).cuda()

    def waiting(f, *args, **kwargs):
        return times(lambda: (f(), torch.cuda.synchronize()), *args, **kwargs)

    def w1():  # without the part whose batches are numpy arrays
        params, x, y = wl.w1()
        p = module.mlp_p(params)
        module.train(wl.W1["name"], module.mlp_loss, p, x, y, module.adam(p), 2000, 50, 5, module.us, "us")

    module.times, module.run_w1 = waiting, w1


def main():
    if LIBRARY == "funcgrad":
        os.environ["FUNCGRAD_PLATFORMS"] = "vulkan"
    os.environ["JAX_PLATFORMS"] = "cuda"
    if LIBRARY == "torch-compile":
        sys.argv.append("--compile")
    name = {"funcgrad": "fg_bench", "jax": "jax_bench"}.get(LIBRARY, "torch_bench")
    module = importlib.import_module(name)
    module.PEER = PEER
    if name == "torch_bench":
        cuda_torch(module)
    else:
        module.jax.config.update("jax_default_matmul_precision", PRECISION) if LIBRARY == "jax" else None
    for workload in [a for a in sys.argv[3:] if not a.startswith("-")]:
        if LIBRARY == "funcgrad":
            with module.jax.default_matmul_precision(PRECISION):
                run(module, workload)
        else:
            run(module, workload)


def run(module, workload):
    run_large(module) if workload == "large-gpt" else getattr(module, f"run_{workload.lower()}")()


if __name__ == "__main__":
    main()
