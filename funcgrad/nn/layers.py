"""Layers: Linear, Embedding, Dropout, Sequential.  Keys are explicit; there is no hidden mode."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Sequence
from typing import Any

from funcgrad import numpy as fnp
from funcgrad import random
from funcgrad.errors import ShapeError, message
from funcgrad.nn import initializers
from funcgrad.nn.module import fill, module, shown, static

__all__ = ["Dropout", "Embedding", "Linear", "Sequential"]

Init = initializers.Initializer


@module
class Linear:
    """``x @ kernel + bias`` over the last axis: shape (..., in) to (..., out).

    >>> Linear(2, 3, key=random.key(0))(fnp.ones((5, 2))).shape
    (5, 3)
    """

    kernel: Any
    bias: Any

    def __init__(
        self,
        in_features: int,
        out_features: int,
        *,
        key: Any,
        use_bias: bool = True,
        kernel_init: Init | None = None,
        bias_init: Init = initializers.zeros,
        dtype: Any = float,
    ):
        k1, k2 = random.split(key)
        init = kernel_init or initializers.lecun_normal()
        bias = bias_init(k2, (out_features,), dtype) if use_bias else None
        fill(self, kernel=init(k1, (in_features, out_features), dtype), bias=bias)

    def __call__(self, x: Any) -> Any:
        if x.shape[-1] != self.kernel.shape[0]:
            raise ShapeError(
                message("Linear", f"the last axis must have {self.kernel.shape[0]} features", str(tuple(x.shape)))
            )
        y = x @ self.kernel
        return y if self.bias is None else y + self.bias


@module
class Embedding:
    """Rows of a table by integer index: shape (...) to (..., features).

    >>> Embedding(10, 4, key=random.key(0))(fnp.asarray([1, 2])).shape
    (2, 4)
    """

    table: Any

    def __init__(self, vocab: int, features: int, *, key: Any, init: Init | None = None, dtype: Any = float):
        scale = 1.0 / math.sqrt(features)
        fill(self, table=(init or initializers.normal(scale))(key, (vocab, features), dtype))

    def __call__(self, ids: Any) -> Any:
        return fnp.take(self.table, ids, axis=0, mode="clip")

    def attend(self, x: Any) -> Any:
        """Return the products of ``x`` with every row: tied output weights."""
        return x @ self.table.T


@module
class Dropout:
    """Zeroes elements with probability ``rate`` and scales the others by 1 / (1 - rate); nothing when
    ``deterministic``.

    >>> Dropout(0.5)(fnp.ones(3), deterministic=True)
    Array([1., 1., 1.], dtype=float32)
    """

    rate: float = static()

    def __init__(self, rate: float):
        if not 0.0 <= rate < 1.0:
            raise ValueError(message("Dropout", "the rate must be in [0, 1)", repr(rate)))
        fill(self, rate=rate)

    def __call__(self, x: Any, *, key: Any = None, deterministic: bool = False) -> Any:
        if deterministic or self.rate == 0.0:
            return x
        if key is None:
            way_out = "pass key=, or deterministic=True for evaluation"
            raise ValueError(message("Dropout", "a key is required in training", "None", way_out))
        keep = random.bernoulli(key, 1.0 - self.rate, x.shape)
        return fnp.where(keep, x * (1.0 / (1.0 - self.rate)), 0.0)


@module
class Sequential:
    """Functions and modules one after another; a module that takes a ``key`` (a Dropout) gets its own.

    >>> Sequential([Linear(2, 3, key=random.key(0)), fnp.tanh])(fnp.ones((1, 2))).shape
    (1, 3)
    """

    layers: tuple[Any, ...]
    functions: tuple[Any, ...] = static()

    def __init__(self, layers: Sequence[Callable[..., Any]]):
        kinds = [None if hasattr(type(f), "__dataclass_fields__") else f for f in layers]
        held = tuple([f if k is None else () for f, k in zip(layers, kinds, strict=True)])
        fill(self, layers=held, functions=tuple(kinds))

    def __repr__(self) -> str:
        parts = [shown(f or layer) for layer, f in zip(self.layers, self.functions, strict=True)]
        return f"Sequential([{', '.join(parts)}])"

    def __call__(self, x: Any, *, key: Any = None, deterministic: bool = False) -> Any:
        given = {"key": key, "deterministic": deterministic}
        for i, (layer, function) in enumerate(zip(self.layers, self.functions, strict=True)):
            if function is not None:
                x = function(x)
                continue
            names = inspect.signature(type(layer).__call__).parameters.keys() & given.keys()
            own = {name: given[name] for name in names}
            if own.get("key") is not None:
                own["key"] = random.fold_in(key, i)
            x = layer(x, **own)
        return x
