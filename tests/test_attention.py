"""Attention, positions, masks and ragged batches: exact values."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
from compare import close

import funcgrad as fg
import funcgrad.numpy as fnp
from funcgrad import data, losses, nn, random
from funcgrad.errors import ShapeError

R = np.random.default_rng(0)


# -- attention and positions -------------------------------------------------------------------------------------
def attention64(q: Any, k: Any, v: Any, mask: Any) -> Any:
    """Attention one query at a time, in float64."""
    out = np.zeros(q.shape)
    for b, i, h in np.ndindex(q.shape[:3]):
        keep = mask[b, i]
        if keep.any():
            s = k[b, keep, h].astype(float) @ q[b, i, h].astype(float) / np.sqrt(q.shape[-1])
            p = np.exp(s - s.max())
            out[b, i, h] = p / p.sum() @ v[b, keep, h].astype(float)
    return out


def test_attention_by_the_definition(device: str) -> None:
    q, k, v = R.normal(size=(3, 2, 5, 2, 4)).astype("f")
    mask = R.random((2, 5, 5)) < 0.5
    mask[0, 1] = False  # a query that may look at nothing
    how = fg.jit(lambda q, k, v: nn.dot_product_attention(q, k, v, mask=fnp.asarray(mask)[:, None]))
    close(how(*map(fnp.asarray, (q, k, v))), attention64(q, k, v, mask))
    grads = fg.grad(
        lambda *a: (nn.dot_product_attention(*a, mask=fnp.asarray(mask)[:, None]) ** 2).sum(), argnums=(0, 1, 2)
    )(*map(fnp.asarray, (q, k, v)))
    assert all(np.isfinite(np.asarray(g)).all() for g in grads)
    assert not np.asarray(grads[0])[0, 1].any()
    tri = np.broadcast_to(np.tri(5, dtype=bool), (2, 5, 5))
    close(nn.dot_product_attention(*map(fnp.asarray, (q, k, v)), is_causal=True), attention64(q, k, v, tri))
    one = [fnp.asarray(x[0]) for x in (q, k, v)]
    close(nn.dot_product_attention(*one, is_causal=True), attention64(q, k, v, tri)[0])
    near = np.abs(np.arange(5)[:, None] - np.arange(5)) <= 1
    close(
        nn.dot_product_attention(*map(fnp.asarray, (q, k, v)), local_window_size=1),
        attention64(q, k, v, np.broadcast_to(near, (2, 5, 5))),
    )


def test_attention_with_wrong_shapes() -> None:
    x = fnp.ones((2, 5, 4, 6))
    for k, v in ((x[:, :, :3], x[:, :, :3]), (x, x[:, :4]), (x[..., :5], x), (x[:1], x[:1]), (x[0], x)):
        with pytest.raises(ShapeError, match="dot_product_attention"):
            nn.dot_product_attention(x, k, v)
    with pytest.raises(ShapeError, match="heads must divide features"):
        nn.MultiHeadAttention(6, 4, key=random.key(0))


def rotated64(x: Any, base: float) -> Any:
    """Each pair of features as a complex number, turned by its position times its frequency."""
    half = x.shape[-1] // 2
    angle = np.arange(x.shape[1])[:, None, None] * base ** (-np.arange(half) / half)
    z = (x[..., :half] + 1j * x[..., half:]) * np.exp(1j * angle)
    return np.concatenate([z.real, z.imag], -1)


@pytest.mark.parametrize("base", [10000.0, 100])
@pytest.mark.parametrize("across", [False, True])
def test_attention_with_rotary_positions(base: float, across: bool, device: str) -> None:
    mha = nn.MultiHeadAttention(12, 3, key=random.key(4), rope=base)
    x, source = R.normal(size=(2, 6, 12)).astype("f"), R.normal(size=(2, 4 if across else 6, 12)).astype("f")
    source = source if across else x

    def heads64(layer: Any, of: Any) -> Any:
        y = of.astype(float) @ np.asarray(layer.kernel, float) + np.asarray(layer.bias, float)
        return y.reshape(*y.shape[:2], 3, 4)

    q, k = rotated64(heads64(mha.query, x), base), rotated64(heads64(mha.key, source), base)
    mixed = attention64(q, k, heads64(mha.value, source), np.ones((2, 6, source.shape[1]), bool)).reshape(x.shape)
    want = mixed @ np.asarray(mha.output.kernel, float) + np.asarray(mha.output.bias, float)
    close(mha(fnp.asarray(x), fnp.asarray(source) if across else None), want, 2e-5)
    plain = mha(fnp.asarray(x)) - dataclasses.replace(mha, rope=None)(fnp.asarray(x))
    assert np.abs(np.asarray(plain)).max() > 1e-3


def test_rotary_attention_knows_distances_only(device: str) -> None:
    """A token that comes two places later is seen as before by what comes two places later as well."""
    mha = nn.MultiHeadAttention(8, 2, key=random.key(5), rope=10000.0)
    x = R.normal(size=(1, 5, 8)).astype("f")
    later = np.concatenate([R.normal(size=(1, 2, 8)).astype("f"), x], axis=1)
    hidden = fnp.asarray(np.arange(7) >= 2)[None, None, None]
    close(mha(fnp.asarray(later), mask=hidden)[:, 2:], mha(fnp.asarray(x)), 2e-5)
    backwards = np.asarray(mha(fnp.asarray(x[:, ::-1].copy())))[:, ::-1]
    assert np.abs(backwards - np.asarray(mha(fnp.asarray(x)))).max() > 1e-3  # but it does know order


def test_rotary_attention_refuses_what_cannot_be_rotated() -> None:
    for bad in (0.0, -1.0, float("inf"), float("nan"), True, "10000"):
        with pytest.raises(ValueError, match="MultiHeadAttention: rope must be None or a positive number"):
            nn.MultiHeadAttention(8, 2, key=random.key(0), rope=bad)  # type: ignore[arg-type]
    with pytest.raises(ShapeError, match="features / heads must be even for rope, got 3"):
        nn.MultiHeadAttention(6, 2, key=random.key(0), rope=100.0)


def test_rope_is_a_rotation_in_float64(device: str) -> None:
    x = R.normal(size=(2, 7, 3, 8)).astype("f")
    at = R.integers(0, 500, (2, 7))
    count, same = np.tile(np.arange(7), (2, 1)), np.tile(at[0], (2, 1))
    for positions, rows in ((None, count), (at, at), (at[0], same)):
        angle = rows[:, :, None, None] * 10000.0 ** (-np.arange(4) / 4)
        z = (x[..., :4].astype(float) + 1j * x[..., 4:]) * np.exp(1j * angle)
        given = None if positions is None else fnp.asarray(positions)
        close(nn.rope(fnp.asarray(x), given), np.concatenate([z.real, z.imag], -1), 1e-4)
    # A product of rotated vectors depends on their distance alone.
    q, k = (fnp.asarray(R.normal(size=(1, 1, 1, 8)).astype("f")) for _ in range(2))

    def product(i: int, j: int) -> float:
        return float((nn.rope(q, fnp.asarray([i])) * nn.rope(k, fnp.asarray([j]))).sum())

    assert product(3, 1) == pytest.approx(product(13, 11), abs=1e-5)
    for bad in (fnp.ones((1, 2, 1, 5)), fnp.ones((2, 4))):
        with pytest.raises(ShapeError, match="rope"):
            nn.rope(bad)


# -- masks and ragged batches ------------------------------------------------------------------------------------
LENGTHS = [3, 5, 1]


def ragged(features: int = 4) -> tuple[list[Any], Any, Any]:
    examples = [R.normal(2, 3, (n, features)).astype("f") for n in LENGTHS]
    padded, mask = data.bucket(examples, [8], fill=np.nan)
    return examples, fnp.asarray(padded), fnp.asarray(mask)


def test_bucket() -> None:
    examples = [{"x": np.ones((n, 2), "f"), "ids": np.arange(n)} for n in LENGTHS]
    batch, mask = data.bucket(examples, [4, 6, 12], rows=4, fill=-1)
    assert batch["x"].shape == (4, 6, 2) and batch["ids"].dtype == np.arange(1).dtype
    assert mask.sum(1).tolist() == [3, 5, 1, 0]
    assert batch["ids"].tolist()[1:3] == [[0, 1, 2, 3, 4, -1], [0, -1, -1, -1, -1, -1]]
    assert data.bucket(examples[2:], [4, 6, 12])[1].shape == (1, 4)
    with pytest.raises(ShapeError, match=r"longer than 4, got 5[\s\S]*larger size"):
        data.bucket(examples, [2, 4])
    with pytest.raises(ShapeError, match="at most rows=2"):
        data.bucket(examples, [8], rows=2)
    with pytest.raises(ShapeError, match="must share their first axis"):
        data.bucket([{"x": np.ones(2), "y": np.ones(3)}], [8])
    with pytest.raises(ShapeError, match="first axis only"):
        data.bucket([np.ones((2, 3)), np.ones((2, 4))], [8])
    with pytest.raises(ValueError, match="examples and sizes"):
        data.bucket([], [8])


@pytest.mark.filterwarnings("ignore::funcgrad.RetraceWarning")
def test_a_bucket_size_is_traced_once() -> None:
    f = fg.jit(lambda x, mask: nn.masked_mean(x, mask))
    for lengths in ((3, 2), (1, 4), (7, 1), (6, 2)):
        rows = [np.full(n, float(n), "f") for n in lengths]
        x, mask = data.bucket(rows, [4, 8])
        assert float(f(x, mask)) == pytest.approx(np.concatenate(rows).mean())
    assert f.stats.traces == 2


def test_masked_mean_and_losses(device: str) -> None:
    examples, x, mask = ragged()
    every = np.concatenate(examples).astype(float)
    close(nn.masked_mean(x, mask), every.mean())
    close(nn.masked_mean(x, mask, axis=(0, 1)), every.mean(0))
    close(nn.masked_mean(x, mask, axis=1), [e.astype(float).mean(0) for e in examples])
    g = fg.grad(lambda x: nn.masked_mean(x**2, mask))(x)
    close(np.asarray(g)[np.asarray(mask)], 2 * every / every.size)
    assert not np.asarray(g)[~np.asarray(mask)].any()  # though there was NaN
    none = fnp.zeros((3, 8), bool)
    assert float(nn.masked_mean(x, none)) == 0.0
    assert not np.asarray(fg.grad(lambda x: nn.masked_mean(x, none))(x)).any()
    logits, ids = fnp.where(mask[..., None], x, 0.0), fnp.zeros((3, 8), int)
    each = losses.softmax_cross_entropy_with_integer_labels(logits, ids)
    shifted = every - every.max(1, keepdims=True)
    close(nn.masked_mean(each, mask), (np.log(np.exp(shifted).sum(1)) - shifted[:, 0]).mean())


def test_norms_honour_a_mask(device: str) -> None:
    """Each example, and the batch, is normalised as if there were no padding, which may hold anything."""
    examples, x, mask = ragged()
    m = np.asarray(mask)

    def alone(layer: Any) -> Any:
        return [np.asarray(layer(fnp.asarray(e)[None]))[0] for e in examples]

    for layer in (nn.InstanceNorm(4), nn.GroupNorm(4, 2)):
        y = np.asarray(layer(x, mask=mask))
        for row, keep, want in zip(y, m, alone(layer), strict=True):
            close(row[keep], want, 1e-5)
        g = fg.grad(lambda x, layer=layer: fnp.sum(fnp.where(mask[..., None], layer(x, mask=mask) ** 3, 0.0)))(x)
        assert np.isfinite(np.asarray(g)).all()
    bn = nn.BatchNorm(4)
    whole = fnp.asarray(np.concatenate(examples))
    y, state = bn(x, bn.init_state(), train=True, mask=mask)
    want, wanted = bn(whole, bn.init_state(), train=True)
    close(np.asarray(y)[m], want, 1e-5)
    close(state.mean, wanted.mean), close(state.variance, wanted.variance)
    _, same = bn(x, state, train=True, mask=fnp.zeros((3, 8), bool))
    assert np.array_equal(same.mean, state.mean) and np.array_equal(same.variance, state.variance)


@pytest.mark.parametrize("kind", [nn.GRUCell, nn.LSTMCell])
@pytest.mark.parametrize("reverse", [False, True])
def test_cells_over_ragged_sequences(kind: Any, reverse: bool, device: str) -> None:
    examples, x, mask = ragged()
    cell = kind(4, 3, key=random.key(1))
    last, ys = fg.jit(lambda c, x, m: nn.scan_cell(c, x, mask=m, reverse=reverse))(cell, x, mask)
    for i, e in enumerate(examples):
        own, outs = nn.scan_cell(cell, fnp.asarray(e)[None], reverse=reverse)
        for a, b in zip(fg.tree.leaves(last), fg.tree.leaves(own), strict=True):
            close(a[i], b[0])
        close(ys[i, : len(e)], outs[0])
        assert not np.asarray(ys)[i, len(e) :].any()
    g = fg.grad(lambda c: nn.scan_cell(c, x, mask=mask)[1].sum())(cell)
    assert all(np.isfinite(np.asarray(leaf)).all() for leaf in fg.tree.leaves(g))


def test_attention_over_padding(device: str) -> None:
    examples, x, mask = ragged()
    mha = nn.MultiHeadAttention(4, 2, key=random.key(2))
    y = mha(fnp.where(mask[..., None], x, 0.0), mask=mask[:, None, None, :])
    for i, e in enumerate(examples):
        close(y[i, : len(e)], mha(fnp.asarray(e)[None])[0], 1e-5)
