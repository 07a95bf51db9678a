"""Layers and pooling against PyTorch with the same parameters: values, and gradients of inputs and parameters."""

from __future__ import annotations

import numpy as np
import pytest

import funcgrad as fg
import funcgrad.numpy as fnp
from funcgrad import lax, nn, random
from funcgrad.nn.module import fill

torch = pytest.importorskip("torch")
F = torch.nn.functional

R = np.random.default_rng(0)


@pytest.fixture(autouse=True)
def _seeded():
    torch.manual_seed(0)


def close(a, b, rtol=1e-5, atol=2e-6):
    b = b.detach().numpy() if isinstance(b, torch.Tensor) else b
    a = np.asarray(a, np.float64)
    assert a.shape == b.shape
    np.testing.assert_allclose(a, np.asarray(b, np.float64), rtol=rtol, atol=atol * max(1.0, np.abs(b).max(initial=0)))


def with_values(layer, **values):
    """A copy of a layer with these fields."""
    new = object.__new__(type(layer))
    fill(new, **{f: getattr(layer, f) for f in type(layer).__dataclass_fields__})
    fill(new, **{k: None if v is None else fnp.asarray(v) for k, v in values.items()})
    return new


def last(x):
    """Channels first to channels last."""
    return np.moveaxis(np.asarray(x), 1, -1)


def first(x):
    return np.moveaxis(np.asarray(x), -1, 1)


def compare(layer, module, x, into=lambda a: a, back=lambda a: a, pairs=(), call=lambda m, x: m(x)):
    """Values, and the gradients of a weighted sum, of both; ``pairs`` are (our field, their parameter, how it
    reads)."""
    mine = fnp.asarray(into(x))
    theirs = torch.tensor(x, requires_grad=True)
    out = module(theirs)
    weights = R.normal(size=out.shape).astype("f")
    (out * torch.tensor(weights)).sum().backward()
    for how in (lambda f: f, fg.jit):
        y = how(call)(layer, mine)
        close(back(y), out)
        g_layer, g_x = how(fg.grad(lambda m, x: (call(m, x) * into(weights)).sum(), argnums=(0, 1)))(layer, mine)
        close(back(g_x), theirs.grad)
        for ours, param, read in pairs:
            close(getattr(g_layer, ours), read(param.grad.numpy()))


def randomised(module):
    for p in module.parameters():
        torch.nn.init.normal_(p, std=0.5)
    return module


def test_linear(device):
    m = randomised(torch.nn.Linear(3, 5))
    w, b = m.weight.detach().numpy(), m.bias.detach().numpy()
    layer = with_values(nn.Linear(3, 5, key=random.key(0)), kernel=w.T, bias=b)
    pairs = [("kernel", m.weight, lambda g: g.T), ("bias", m.bias, lambda g: g)]
    for shape in ((3,), (4, 3), (2, 4, 3)):
        m.zero_grad()
        compare(layer, m, R.normal(size=shape).astype("f"), pairs=pairs)


def test_embedding(device):
    m = torch.nn.Embedding(7, 4)
    layer = with_values(nn.Embedding(7, 4, key=random.key(0)), table=m.weight.detach().numpy())
    ids = R.integers(0, 7, (3, 5))
    w = R.normal(size=(3, 5, 4)).astype("f")
    (m(torch.tensor(ids)) * torch.tensor(w)).sum().backward()
    close(layer(fnp.asarray(ids)), m(torch.tensor(ids)))
    close(fg.grad(lambda e: (e(fnp.asarray(ids)) * w).sum())(layer).table, m.weight.grad)
    h = R.normal(size=(2, 4)).astype("f")
    close(layer.attend(fnp.asarray(h)), torch.tensor(h) @ m.weight.T)


AFFINE = [("scale", "weight"), ("bias", "bias")]


def affine(layer, module, move=True):
    values = {ours: getattr(module, theirs).detach().numpy() for ours, theirs in AFFINE if hasattr(layer, ours)}
    pairs = [(ours, getattr(module, theirs), lambda g: g) for ours, theirs in AFFINE if hasattr(layer, ours)]
    return with_values(layer, **values), pairs


def test_layer_norm(device):
    m = randomised(torch.nn.LayerNorm(6))
    layer, pairs = affine(nn.LayerNorm(6), m)
    compare(layer, m, R.normal(3, 2, size=(2, 4, 6)).astype("f"), pairs=pairs)


def test_layer_norm_far_from_zero(device):
    x = (R.normal(size=(4, 64)) + 1000).astype("f")
    layer = nn.LayerNorm(64)
    wide = x.astype(float)
    want = (wide - wide.mean(-1, keepdims=True)) / np.sqrt(wide.var(-1, keepdims=True) + 1e-5)
    np.testing.assert_allclose(np.asarray(layer(fnp.asarray(x))), want, atol=2e-4)


def test_rms_norm(device):
    m = randomised(torch.nn.RMSNorm(6, eps=1e-6))
    layer = with_values(nn.RMSNorm(6), scale=m.weight.detach().numpy())
    compare(layer, m, R.normal(size=(2, 4, 6)).astype("f"), pairs=[("scale", m.weight, lambda g: g)])


@pytest.mark.parametrize("space", [(), (5,), (3, 4)])
@pytest.mark.parametrize("groups", [1, 2, 6])
def test_group_norm(groups, space, device):
    m = randomised(torch.nn.GroupNorm(groups, 6))
    layer, pairs = affine(nn.GroupNorm(6, groups), m)
    if groups == 6 and not space:
        return  # one value in a group: the gradient is rounding
    compare(layer, m, R.normal(2, 3, size=(2, 6, *space)).astype("f"), last, first, pairs)


@pytest.mark.parametrize("space", [(5,), (3, 4)])
def test_instance_norm(space, device):
    kind = torch.nn.InstanceNorm1d if len(space) == 1 else torch.nn.InstanceNorm2d
    m = randomised(kind(3, affine=True))
    layer, pairs = affine(nn.InstanceNorm(3), m)
    compare(layer, m, R.normal(2, 3, size=(2, 3, *space)).astype("f"), last, first, pairs)


@pytest.mark.parametrize("space", [(), (5,), (3, 4)])
def test_batch_norm(space, device):
    """In training and evaluation; the gradient goes through the batch's statistics."""
    kind = {0: torch.nn.BatchNorm1d, 1: torch.nn.BatchNorm1d, 2: torch.nn.BatchNorm2d}[len(space)]
    m = randomised(kind(3))
    layer, pairs = affine(nn.BatchNorm(3), m)
    x = R.normal(2, 3, size=(8, 3, *space)).astype("f")
    compare(layer, m, x, last, first, pairs, lambda bn, x: bn(x, bn.init_state(), train=True)[0])
    m = randomised(kind(3))
    layer, _ = affine(nn.BatchNorm(3), m)
    state, n = layer.init_state(), x.size / 3
    mean, variance = np.zeros(3), np.ones(3)
    for _ in range(3):
        x = R.normal(2, 3, size=x.shape).astype("f")
        m(torch.tensor(x))
        _, state = fg.jit(lambda x, s, bn: bn(x, s, train=True))(fnp.asarray(last(x)), state, layer)
        axes = (0, *range(2, x.ndim))
        mean = 0.9 * mean + 0.1 * x.astype(float).mean(axes)
        variance = 0.9 * variance + 0.1 * x.astype(float).var(axes)
    close(state.mean, m.running_mean)
    close(state.mean, mean)
    close(state.variance, variance)  # the biased one; PyTorch keeps the unbiased
    unbiased = (m.running_var.numpy() - 0.9**3) * (n - 1) / n + 0.9**3
    close(state.variance, unbiased)
    m.running_var = torch.tensor(np.asarray(state.variance, np.float32))
    m.eval()
    close(first(layer(fnp.asarray(last(x)), state, train=False)[0]), m(torch.tensor(x)))


CONV = [
    dict(window=3),
    dict(window=3, padding=1),
    dict(window=3, strides=2, padding=1),
    dict(window=2, dilation=2, padding=2),
    dict(window=3, groups=2, padding=1),
    dict(window=1, use_bias=False),
]


@pytest.mark.parametrize("n", [1, 2, 3])
@pytest.mark.parametrize("kwargs", CONV, ids=str)
def test_convolution(n, kwargs, device):
    names = {"window": "kernel_size", "strides": "stride", "use_bias": "bias"}
    kind = [torch.nn.Conv1d, torch.nn.Conv2d, torch.nn.Conv3d][n - 1]
    m = randomised(kind(4, 6, **{names.get(k, k): v for k, v in kwargs.items()}))
    make = [nn.Conv1d, nn.Conv2d, nn.Conv3d][n - 1]
    layer = make(4, 6, key=random.key(0), **{"padding": 0, **kwargs})

    def read(w):
        return np.moveaxis(w, (0, 1), (-1, -2))

    values = {"kernel": read(m.weight.detach().numpy())}
    pairs = [("kernel", m.weight, read)]
    if m.bias is not None:
        values["bias"] = m.bias.detach().numpy()
        pairs.append(("bias", m.bias, lambda g: g))
    layer = with_values(layer, **values)
    compare(layer, m, R.normal(size=(2, 4, *(7, 6, 5)[:n])).astype("f"), last, first, pairs)


@pytest.mark.parametrize("n", [1, 2])
@pytest.mark.parametrize(
    "kwargs",
    [
        dict(window=3),
        dict(window=4, strides=2, padding=1),
        dict(window=3, strides=2, padding=1, output_padding=1),
        dict(window=3, dilation=2, padding=1),
    ],
    ids=str,
)
def test_transposed_convolution(n, kwargs, device):
    names = {"window": "kernel_size", "strides": "stride"}
    kind = [torch.nn.ConvTranspose1d, torch.nn.ConvTranspose2d][n - 1]
    m = randomised(kind(3, 5, **{names.get(k, k): v for k, v in kwargs.items()}))
    make = [nn.ConvTranspose1d, nn.ConvTranspose2d][n - 1]

    def read(w):
        return np.moveaxis(np.flip(w, tuple(range(2, w.ndim))), (0, 1), (-2, -1))

    layer = make(3, 5, key=random.key(0), **{"padding": 0, **kwargs})
    layer = with_values(layer, kernel=read(m.weight.detach().numpy()), bias=m.bias.detach().numpy())
    pairs = [("kernel", m.weight, read), ("bias", m.bias, lambda g: g)]
    compare(layer, m, R.normal(size=(2, 3, *(5, 4)[:n])).astype("f"), last, first, pairs)


POOL = [((2,), None, 0), ((3,), (2,), 1), ((2, 3), None, 0), ((3, 2), (1, 2), 1)]


@pytest.mark.parametrize(("window", "strides", "padding"), POOL)
def test_pooling(window, strides, padding, device):
    n = len(window)
    x = R.permutation(2 * 3 * 56).astype("f")[: 2 * 3 * 8 * (7 if n == 2 else 1)].reshape(2, 3, *(8, 7)[:n])
    pads = [(padding, padding)] * n
    stride = strides or window
    theirs = [(F.max_pool1d, F.avg_pool1d), (F.max_pool2d, F.avg_pool2d)][n - 1]
    compare(None, lambda t: theirs[0](t, window, stride, padding), x, last, first,
            call=lambda _, x: nn.max_pool(x, window, strides, pads))  # fmt: skip
    for count in (True, False):
        compare(None, lambda t, c=count: theirs[1](t, window, stride, padding, count_include_pad=c), x, last, first,
                call=lambda _, x, c=count: nn.avg_pool(x, window, strides, pads, c))  # fmt: skip
    compare(None, lambda t: -theirs[0](-t, window, stride, padding), x, last, first,
            call=lambda _, x: nn.min_pool(x, window, strides, pads))  # fmt: skip


def test_multi_head_attention(device):
    m = torch.nn.MultiheadAttention(8, 2, batch_first=True)
    randomised(m)
    w, b = m.in_proj_weight.detach().numpy(), m.in_proj_bias.detach().numpy()
    base = nn.MultiHeadAttention(8, 2, key=random.key(0))
    parts = {
        name: with_values(base.query, kernel=w[i * 8 : i * 8 + 8].T, bias=b[i * 8 : i * 8 + 8])
        for i, name in enumerate(("query", "key", "value"))
    }
    out = with_values(base.query, kernel=m.out_proj.weight.detach().numpy().T, bias=m.out_proj.bias.detach().numpy())
    layer = object.__new__(type(base))
    fill(layer, **parts, output=out, dropout=base.dropout, heads=2)
    x = R.normal(size=(2, 5, 8)).astype("f")
    causal = torch.triu(torch.ones(5, 5, dtype=torch.bool), 1)
    compare(layer, lambda t: m(t, t, t, attn_mask=causal)[0], x, call=lambda a, x: a(x, is_causal=True))
    compare(layer, lambda t: m(t, t, t)[0], x)
    keep = np.arange(5)[None] < np.array([3, 5])[:, None]
    compare(layer, lambda t: m(t, t, t, key_padding_mask=torch.tensor(~keep))[0], x,
            call=lambda a, x: a(x, mask=fnp.asarray(keep)[:, None, None, :]))  # fmt: skip
    source = R.normal(size=(2, 7, 8)).astype("f")
    compare(layer, lambda t: m(t, torch.tensor(source), torch.tensor(source))[0], x,
            call=lambda a, x: a(x, fnp.asarray(source)))  # fmt: skip


@pytest.mark.parametrize("kind", ["lstm", "gru"])
def test_recurrent_cells_under_scan(kind, device):
    m = randomised({"lstm": torch.nn.LSTM, "gru": torch.nn.GRU}[kind](3, 4))
    get = dict(m.named_parameters())
    wx, wh, bx, bh = (get[f"{n}_l0"].detach().numpy() for n in ("weight_ih", "weight_hh", "bias_ih", "bias_hh"))
    cell = {"lstm": nn.LSTMCell, "gru": nn.GRUCell}[kind](3, 4, key=random.key(0))
    biases = {"bias": bx + bh} if kind == "lstm" else {"input_bias": bx, "hidden_bias": bh}
    cell = with_values(cell, input_kernel=wx.T, hidden_kernel=wh.T, **biases)
    pairs = [
        ("input_kernel", get["weight_ih_l0"], lambda g: g.T),
        ("hidden_kernel", get["weight_hh_l0"], lambda g: g.T),
    ]
    pairs += [("bias", get["bias_ih_l0"], lambda g: g)] if kind == "lstm" else [
        ("input_bias", get["bias_ih_l0"], lambda g: g), ("hidden_bias", get["bias_hh_l0"], lambda g: g)
    ]  # fmt: skip
    compare(cell, lambda t: m(t)[0], R.normal(size=(6, 2, 3)).astype("f"), pairs=pairs,
            call=lambda c, x: lax.scan(c, c.init_carry((2,)), x)[1])  # fmt: skip
