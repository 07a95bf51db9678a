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

__all__ = ["MultiHeadAttention", "dot_product_attention", "rope", "sinusoidal_positions"]


def dot_product_attention(
    query: Any,
    key: Any,
    value: Any,
    bias: Any = None,
    mask: Any = None,
    *,
    scale: float | None = None,
    is_causal: bool = False,
    query_seq_lengths: Any = None,
    key_value_seq_lengths: Any = None,
    local_window_size: int | tuple[int, int] | None = None,
    implementation: str | None = None,
    return_residual: bool = False,
) -> Any:
    """Return softmax(scale * query @ key.T + bias) @ value for each head: Vaswani et al. (2017).

    Shapes are JAX's: query (batch, length, heads, features), key and value (batch, source, kv_heads, features) with
    kv_heads dividing heads, or all without the batch; mask (bool, True keeps) and bias broadcast to (batch, heads,
    length, source).  ``scale`` is 1 / sqrt(features) by default.

    ``query_seq_lengths`` and ``key_value_seq_lengths``, (batch,) integers, say how many rows of each sequence count;
    ``local_window_size`` (before, after), or one number for both, limits how far from its own position a query looks.
    A query that may look at nothing gets zeros.  ``implementation`` is accepted for JAX's sake; ``return_residual`` is
    not supported.

    >>> q = fnp.ones((1, 3, 2, 4))
    >>> dot_product_attention(q, q, q, is_causal=True).shape
    (1, 3, 2, 4)
    """
    if return_residual:
        requirement, way_out = "return_residual must be False", "logsumexp of the scaled scores"
        raise NotImplementedError(message("dot_product_attention", requirement, "True", way_out))
    if query.ndim == 3 == key.ndim == value.ndim:
        query, key, value = query[None], key[None], value[None]
        options: dict[str, Any] = dict(scale=scale, is_causal=is_causal, local_window_size=local_window_size)
        lengths = [None if n is None else fnp.reshape(n, (1,)) for n in (query_seq_lengths, key_value_seq_lengths)]
        options |= dict(query_seq_lengths=lengths[0], key_value_seq_lengths=lengths[1])
        return dot_product_attention(query, key, value, bias, mask, **options)[0]
    _check_shapes(query, key, value)
    heads, kv_heads = query.shape[2], key.shape[2]
    if kv_heads != heads:
        key, value = [fnp.repeat(x, heads // kv_heads, axis=2) for x in (key, value)]
    factor = 1.0 / math.sqrt(query.shape[-1]) if scale is None else scale
    scores = fnp.einsum("bqhd,bkhd->bhqk", query, key) * factor
    scores = scores if bias is None else scores + bias
    allowed = _allowed(query.shape[1], key.shape[1], is_causal, local_window_size)
    for axis, lengths_of in ((-2, query_seq_lengths), (-1, key_value_seq_lengths)):
        if lengths_of is not None:
            inside = fnp.arange(scores.shape[axis]) < fnp.asarray(lengths_of)[:, None]
            allowed = _both(allowed, inside[:, None, :, None] if axis == -2 else inside[:, None, None, :])
    weights = softmax(scores, axis=-1, where=_both(allowed, mask))
    return fnp.einsum("bhqk,bkhd->bqhd", weights, value)


def _check_shapes(query: Any, key: Any, value: Any) -> None:
    shapes = f"{tuple(query.shape)}, {tuple(key.shape)}, {tuple(value.shape)}"
    if query.ndim != 4 or key.ndim != 4 or value.ndim != 4 or key.shape[:3] != value.shape[:3]:
        requirement = "shapes (batch, length, heads, features) are required"
        raise ShapeError(message("dot_product_attention", requirement, shapes))
    fits = key.shape[2] and query.shape[2] % key.shape[2] == 0 and query.shape[3] == key.shape[3]
    if not fits or query.shape[0] != key.shape[0]:
        requirement = "kv heads must divide heads, batch and features must agree"
        raise ShapeError(message("dot_product_attention", requirement, shapes))


def _both(a: Any, b: Any) -> Any:
    """The and of two masks, each of which may be None."""
    return b if a is None else a if b is None else fnp.logical_and(a, b)


def _allowed(length: int, source: int, is_causal: bool, window: int | tuple[int, int] | None) -> Any:
    """The mask (length, source) of what positions alone allow, or None."""
    allowed = fnp.tri(length, source, dtype=bool) if is_causal else None
    if window is None:
        return allowed
    before, after = (window, window) if isinstance(window, int) else window
    offset = fnp.arange(source)[None, :] - fnp.arange(length)[:, None]
    return _both(allowed, fnp.logical_and(offset >= -before, offset <= after))


def rope(x: Any, positions: Any = None, *, base: float = 10000.0) -> Any:
    """Return x with pairs of features rotated by angles proportional to the position (Su et al., 2021).

    Shape (batch, length, heads, features), features even; feature i is paired with i + features / 2.  ``positions``
    (length,) or (batch, length) are 0, 1, ... by default.

    >>> rope(fnp.ones((1, 2, 1, 4))).shape
    (1, 2, 1, 4)
    """
    if x.ndim != 4 or x.shape[-1] % 2:
        requirement = "shape (batch, length, heads, features) with an even number of features is required"
        raise ShapeError(message("rope", requirement, str(tuple(x.shape))))
    half = x.shape[-1] // 2
    where = fnp.arange(x.shape[1], dtype=float) if positions is None else fnp.astype(positions, float)
    frequencies = base ** (-fnp.arange(half, dtype=float) / half)
    angles = fnp.expand_dims(where[..., None] * frequencies, -2)
    cos, sin = fnp.cos(angles), fnp.sin(angles)
    first, second = x[..., :half], x[..., half:]
    return fnp.concatenate([first * cos - second * sin, second * cos + first * sin], axis=-1)


def sinusoidal_positions(length: int, features: int, *, base: float = 10000.0) -> Any:
    """Return the table (length, features) of sines, then cosines, of the positions at falling frequencies (Vaswani et
    al., 2017).

    >>> sinusoidal_positions(2, 2)
    Array([[0.       , 1.       ],
           [0.841471 , 0.5403023]], dtype=float32)
    """
    if features % 2:
        raise ShapeError(message("sinusoidal_positions", "the number of features must be even", str(features)))
    frequencies = base ** (-fnp.arange(features // 2, dtype=float) / (features // 2))
    angles = fnp.arange(length, dtype=float)[:, None] * frequencies
    return fnp.concatenate([fnp.sin(angles), fnp.cos(angles)], axis=-1)


def _check_rope(base: Any, features: int) -> None:
    if isinstance(base, bool) or not isinstance(base, (int, float)) or not 0 < base < math.inf:
        raise ValueError(message("MultiHeadAttention", "rope must be None or a positive number", repr(base)))
    if features % 2:
        requirement = "features / heads must be even for rope"
        raise ShapeError(message("MultiHeadAttention", requirement, str(features), "another number of heads"))


@module
class MultiHeadAttention:
    """Self- or cross-attention with learned projections: (batch, length, features) to the same shape.

    ``rope``, the base of :func:`rope` (10000.0 is usual), rotates queries and keys by their positions 0, 1, ...; None
    does not.  Features / heads must be even for it.

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
    rope: float | None = static(default=None)

    def __init__(
        self,
        features: int,
        heads: int,
        *,
        key: Any,
        use_bias: bool = True,
        dropout: float = 0.0,
        rope: float | None = None,
        dtype: Any = float,
    ):
        if features % heads:
            raise ShapeError(message("MultiHeadAttention", "heads must divide features", f"{heads} and {features}"))
        if rope is not None:
            _check_rope(rope, features // heads)
        keys = random.split(key, 4)
        parts = [Linear(features, features, key=k, use_bias=use_bias, dtype=dtype) for k in keys]
        named = dict(zip(("query", "key", "value", "output"), parts, strict=True))
        fill(self, **named, dropout=Dropout(dropout), heads=heads, rope=rope)

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
        if self.rope is not None:
            q, k = [fnp.astype(rope(y, base=self.rope), y.dtype) for y in (q, k)]  # angles are float32
        mixed = dot_product_attention(q, k, v, mask=mask, is_causal=is_causal)
        out = self.output(mixed.reshape((*x.shape[:-1], mixed.shape[-2] * mixed.shape[-1])))
        return self.dropout(out, key=key, deterministic=deterministic or self.dropout.rate == 0.0)
