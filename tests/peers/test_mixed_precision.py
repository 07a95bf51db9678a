"""The scale of a float16 loss against PyTorch's GradScaler, and against jmp's rule written in JAX."""

from __future__ import annotations

import numpy as np
import pytest

import funcgrad as fg
import funcgrad.numpy as fnp
from funcgrad import nn, optim
from funcgrad.training import DynamicLossScale

torch = pytest.importorskip("torch")
jax = pytest.importorskip("jax")
jnp = jax.numpy

RNG = np.random.default_rng(0)
FINITE = [RNG.random(80) < chance for chance in (0.5, 0.8, 0.97)]


def ours(scaling, finite):
    state, out = scaling.init(), []
    for ok in finite:
        state = scaling.update(state, bool(ok))
        out.append((float(state.scale), int(state.growth_tracker)))
    return out


@pytest.mark.parametrize("finite", FINITE)
@pytest.mark.parametrize("first", [2.0**15, 3.0, 2.0**126])
@pytest.mark.parametrize(("growth", "backoff", "interval"), [(2.0, 0.5, 3), (1.5, 0.25, 2), (4.0, 0.75, 1)])
def test_grad_scaler(finite, first, growth, backoff, interval):
    scaler = torch.amp.GradScaler(
        "cpu", init_scale=first, growth_factor=growth, backoff_factor=backoff, growth_interval=interval
    )
    weight = torch.nn.Parameter(torch.zeros(2))
    opt = torch.optim.SGD([weight], lr=0.0)
    want = []
    for ok in finite:
        opt.zero_grad()
        scaler.scale((weight * (1e-40 if ok else float("inf"))).sum()).backward()
        scaler.step(opt)
        scaler.update()
        want.append((scaler.get_scale(), scaler.state_dict()["_growth_tracker"]))
    scaling = DynamicLossScale(first, growth, backoff, interval, min_scale=1e-30)
    assert ours(scaling, finite) == want


@pytest.mark.parametrize("finite", FINITE)
@pytest.mark.parametrize("period", [1, 2, 5])
def test_dynamic_loss_scale_of_jmp(finite, period):
    """DeepMind's jmp: at the end of a period of finite steps times the factor, if finite; else divided, at least 1."""

    def adjust(scale, counter, ok):
        grown = scale * 2.0
        larger = jnp.where(counter == period - 1, jnp.where(jnp.isfinite(grown), grown, scale), scale)
        return jnp.where(ok, larger, jnp.maximum(1.0, scale / 2.0)), ((counter + 1) % period) * ok

    state, want = (jnp.float32(8.0), jnp.int32(0)), []
    for ok in finite:
        state = adjust(*state, jnp.asarray(ok))
        want.append((float(state[0]), int(state[1])))
    assert ours(DynamicLossScale(8.0, growth_interval=period), finite) == want


@pytest.mark.parametrize("device", ["numpy", "cpu"])
def test_a_float16_step_is_the_step_of_jax(device):
    """The same network, scale, skip and momentum in JAX, float32 parameters and a float16 copy of them."""
    x = RNG.normal(size=(64, 16)).astype(np.float32)
    y = RNG.normal(size=(64, 4)).astype(np.float32)
    start = {"a": RNG.normal(size=(16, 32)).astype("f") / 4, "b": RNG.normal(size=(32, 4)).astype("f") / 6}

    def loss(xp):
        return lambda p, b: (((xp.tanh(b["x"] @ p["a"]) @ p["b"] - b["y"]) ** 2).mean()) * b["times"]

    batches = [{"x": x, "y": y, "times": np.float32(t)} for t in (1, 1, 2000, 1, 1, 1, 2000, 1, 1, 1)]
    scaling = DynamicLossScale(init_scale=2.0**10, growth_interval=2)
    optax = pytest.importorskip("optax")
    opt = optax.sgd(0.1, momentum=0.9)

    def narrow(tree):
        return jax.tree.map(lambda v: v.astype(jnp.float16), tree)

    def scaled(p, b, scale):
        return loss(jnp)(narrow(p), narrow(b)).astype(jnp.float32) * scale

    params, moments, scale, good, want = start, opt.init(start), 2.0**10, 0, []
    for b in batches:
        grads = jax.grad(scaled)(params, b, jnp.float32(scale))
        grads = jax.tree.map(jnp.multiply, grads, jax.tree.map(lambda _, by=1.0 / scale: by, grads))
        ok = all(bool(jnp.isfinite(g).all()) for g in jax.tree.leaves(grads))
        if ok:
            updates, moments = opt.update(grads, moments, params)
            params = optax.apply_updates(params, updates)
        good = (good + 1) * ok
        scale = scale * 0.5 if not ok else scale * 2.0 if good == 2 else scale
        good %= 2
        want.append((scale, ok))
    assert {ok for _, ok in want} == {True, False}
    with fg.default_device(device):
        ts = fg.make_train_step(loss(fg.numpy), optim.sgd(0.1, momentum=0.9), precision="float16", loss_scale=scaling)
        state, got = ts.init(start), []
        for b in batches:
            state, metrics = ts.step(state, b)
            got.append((float(state.loss_scale.scale), bool(metrics["finite"])))
    assert got == want
    for name in start:
        want_now = np.asarray(params[name])
        np.testing.assert_allclose(np.asarray(state.params[name]), want_now, atol=1e-3)
        assert np.abs(want_now - start[name]).max() > 0.1


@pytest.mark.parametrize("size", [4e-3, 1.0, 300.0])
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_norms_of_half_floats(dtype, size):
    """Values, dtypes and gradients of LayerNorm and BatchNorm on half floats are PyTorch's to their own rounding."""
    x, ct = RNG.normal(size=(64, 32)).astype(np.float32) * size, RNG.normal(size=(64, 32)).astype(np.float32)
    narrow = getattr(torch, dtype)

    def half(a):
        return fnp.asarray(a).astype(dtype)

    batch = nn.BatchNorm(32)
    ours = {
        "layer": lambda a: fg.tree.map(half, nn.LayerNorm(32))(a),
        "batch": lambda a: fg.tree.map(half, batch)(a, batch.init_state(), train=True)[0],
        "running": lambda a: fg.tree.map(half, batch)(a, batch.init_state(), train=False)[0],
    }
    running = torch.zeros(32), torch.ones(32)
    theirs = {
        "layer": lambda a: torch.nn.functional.layer_norm(a, (32,)),
        "batch": lambda a: torch.nn.functional.batch_norm(a, None, None, training=True),
        "running": lambda a: torch.nn.functional.batch_norm(a.float(), *running).to(narrow),
    }
    rtol = 2.0**-9 if dtype == "float16" else 2.0**-6
    for name, f in ours.items():
        t = torch.tensor(x).to(narrow).requires_grad_()
        want = theirs[name](t)
        (want * torch.tensor(ct).to(narrow)).float().sum().backward()
        value, grad = f(half(x)), fg.grad(lambda a, f=f: fnp.sum((f(a) * half(ct)).astype("float32")))(half(x))
        assert fg.dtypes.NAMES[value.dtype] == fg.dtypes.NAMES[grad.dtype] == dtype
        for a, b in ((value, want), (grad, t.grad)):
            b = b.detach().float().numpy()
            np.testing.assert_allclose(np.asarray(a.astype("float32")), b, rtol=rtol, atol=rtol * np.abs(b).max())
