"""Attention: dot_product_attention, rotary positions, MultiHeadAttention."""

from __future__ import annotations

import math
from typing import Any

from funcgrad import numpy as fnp
from funcgrad import random
from funcgrad.errors import ShapeError, message
from funcgrad.nn.functions import softmax
from funcgrad.nn.layers import Dropout, Linear
from funcgrad.nn.module import fill, module, static

__all__ = ["MultiHeadAttention", "dot_product_attention", "rope"]


def dot_product_attention(
    query: Any,
    key: Any,
    value: Any,
    bias: Any = None,
    mask: Any = None,
    *,
    scale: float | None = None,
    is_causal: bool = False,
) -> Any:
    """Return softmax(scale * query @ key.T + bias) @ value for each head: Vaswani et al. (2017).

    Shapes are JAX's: query (batch, length, heads, features), key and value (batch, source, kv_heads, features) with
    kv_heads dividing heads; mask (bool, True keeps) and bias broadcast to (batch, heads, length, source).  ``scale`` is
    1 / sqrt(features) by default.
    A query whose mask is all False gets zeros.

    >>> q = fnp.ones((1, 3, 2, 4))
    >>> dot_product_attention(q, q, q, is_causal=True).shape
    (1, 3, 2, 4)
    """
    if query.ndim != 4 or key.ndim != 4 or key.shape != value.shape[:3] + key.shape[3:]:
        got = f"{tuple(query.shape)}, {tuple(key.shape)}, {tuple(value.shape)}"
        raise ShapeError(message("dot_product_attention", "shapes (batch, length, heads, features) are required", got))
    heads, kv_heads = query.shape[2], key.shape[2]
    if heads % kv_heads or query.shape[3] != key.shape[3]:
        got = f"{tuple(query.shape)} and {tuple(key.shape)}"
        raise ShapeError(message("dot_product_attention", "kv heads must divide heads, features must agree", got))
    if kv_heads != heads:
        key, value = [fnp.repeat(x, heads // kv_heads, axis=2) for x in (key, value)]
    factor = 1.0 / math.sqrt(query.shape[-1]) if scale is None else scale
    scores = fnp.einsum("bqhd,bkhd->bhqk", query, key) * factor
    scores = scores if bias is None else scores + bias
    allowed = mask
    if is_causal:
        causal = fnp.tri(query.shape[1], key.shape[1], dtype=bool)
        allowed = causal if mask is None else fnp.logical_and(mask, causal)
    weights = softmax(scores, axis=-1, where=allowed)
    return fnp.einsum("bhqk,bkhd->bqhd", weights, value)


def rope(x: Any, positions: Any = None, *, base: float = 10000.0) -> Any:
    """Return x with pairs of features rotated by angles proportional to the position (Su et al., 2021).

    Shape (batch, length, heads, features), features even; feature i is paired with i + features / 2.

    >>> rope(fnp.ones((1, 2, 1, 4))).shape
    (1, 2, 1, 4)
    """
    half = x.shape[-1] // 2
    if x.shape[-1] % 2:
        raise ShapeError(message("rope", "the number of features must be even", str(x.shape[-1])))
    where = fnp.arange(x.shape[1], dtype=float) if positions is None else fnp.astype(positions, float)
    frequencies = base ** (-fnp.arange(half, dtype=float) / half)
    angles = fnp.expand_dims(where[..., None] * frequencies, -2)
    cos, sin = fnp.cos(angles), fnp.sin(angles)
    first, second = x[..., :half], x[..., half:]
    return fnp.concatenate([first * cos - second * sin, second * cos + first * sin], axis=-1)


@module
class MultiHeadAttention:
    """Self- or cross-attention with learned projections: (batch, length, features) to the same shape.

    >>> mha = MultiHeadAttention(8, 2, key=random.key(0))
    >>> mha(fnp.ones((1, 3, 8)), is_causal=True).shape
    (1, 3, 8)
    """

    query: Linear
    key: Linear
    value: Linear
    output: Linear
    dropout: Dropout
    heads: int = static()

    def __init__(
        self, features: int, heads: int, *, key: Any, use_bias: bool = True, dropout: float = 0.0, dtype: Any = float
    ):
        if features % heads:
            raise ShapeError(message("MultiHeadAttention", "heads must divide features", f"{heads} and {features}"))
        keys = random.split(key, 4)
        parts = [Linear(features, features, key=k, use_bias=use_bias, dtype=dtype) for k in keys]
        fill(self, query=parts[0], key=parts[1], value=parts[2], output=parts[3], dropout=Dropout(dropout), heads=heads)

    def __call__(
        self,
        x: Any,
        source: Any = None,
        *,
        mask: Any = None,
        is_causal: bool = False,
        key: Any = None,
        deterministic: bool = False,
    ) -> Any:
        source = x if source is None else source

        def split(layer: Linear, of: Any) -> Any:
            y = layer(of)
            return y.reshape((*y.shape[:-1], self.heads, y.shape[-1] // self.heads))

        q, k, v = split(self.query, x), split(self.key, source), split(self.value, source)
        mixed = dot_product_attention(q, k, v, mask=mask, is_causal=is_causal)
        out = self.output(mixed.reshape((*x.shape[:-1], mixed.shape[-2] * mixed.shape[-1])))
        return self.dropout(out, key=key, deterministic=deterministic or self.dropout.rate == 0.0)
