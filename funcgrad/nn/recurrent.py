"""Recurrent cells, run by ``lax.scan`` or, over padded sequences, by ``scan_cell``."""

from __future__ import annotations

from typing import Any

from funcgrad import lax, random, tree
from funcgrad import numpy as fnp
from funcgrad.errors import ShapeError, message
from funcgrad.nn import initializers
from funcgrad.nn.functions import sigmoid
from funcgrad.nn.module import fill, module

__all__ = ["GRUCell", "LSTMCell", "scan_cell"]


@module
class LSTMCell:
    """``(h, c), h = cell((h, c), x)``; gates in the order input, forget, cell, output (Hochreiter and Schmidhuber,
    1997).

    >>> cell = LSTMCell(2, 3, key=random.key(0))
    >>> (h, c), y = cell(cell.init_carry((5,)), fnp.ones((5, 2)))
    >>> y.shape
    (5, 3)
    """

    input_kernel: Any
    hidden_kernel: Any
    bias: Any

    def __init__(self, features: int, hidden: int, *, key: Any, dtype: Any = float):
        k1, k2 = random.split(key)
        wx = initializers.lecun_normal()(k1, (features, 4 * hidden), dtype)
        wh = fnp.concatenate(
            [initializers.orthogonal()(k, (hidden, hidden), dtype) for k in random.split(k2, 4)], axis=1
        )
        fill(self, input_kernel=wx, hidden_kernel=wh, bias=fnp.zeros(4 * hidden, dtype))

    def init_carry(self, batch: tuple[int, ...] = ()) -> tuple[Any, Any]:
        """Return the zero state for a batch."""
        zeros = fnp.zeros((*batch, self.hidden_kernel.shape[0]), self.bias.dtype)
        return zeros, zeros

    def __call__(self, carry: tuple[Any, Any], x: Any) -> tuple[tuple[Any, Any], Any]:
        h, c = carry
        gates = x @ self.input_kernel + h @ self.hidden_kernel + self.bias
        i, f, g, o = fnp.split(gates, 4, axis=-1)
        c = sigmoid(f) * c + sigmoid(i) * fnp.tanh(g)
        h = sigmoid(o) * fnp.tanh(c)
        return (h, c), h


@module
class GRUCell:
    """``h, h = cell(h, x)``; gates in the order reset, update, candidate, as in PyTorch (Cho et al., 2014).

    >>> cell = GRUCell(2, 3, key=random.key(0))
    >>> h, y = cell(cell.init_carry((5,)), fnp.ones((5, 2)))
    >>> y.shape
    (5, 3)
    """

    input_kernel: Any
    hidden_kernel: Any
    input_bias: Any
    hidden_bias: Any

    def __init__(self, features: int, hidden: int, *, key: Any, dtype: Any = float):
        k1, k2 = random.split(key)
        wx = initializers.lecun_normal()(k1, (features, 3 * hidden), dtype)
        wh = fnp.concatenate(
            [initializers.orthogonal()(k, (hidden, hidden), dtype) for k in random.split(k2, 3)], axis=1
        )
        zeros = fnp.zeros(3 * hidden, dtype)
        fill(self, input_kernel=wx, hidden_kernel=wh, input_bias=zeros, hidden_bias=fnp.zeros(3 * hidden, dtype))

    def init_carry(self, batch: tuple[int, ...] = ()) -> Any:
        """Return the zero state for a batch."""
        return fnp.zeros((*batch, self.hidden_kernel.shape[0]), self.input_bias.dtype)

    def __call__(self, carry: Any, x: Any) -> tuple[Any, Any]:
        h = carry
        xr, xz, xn = fnp.split(x @ self.input_kernel + self.input_bias, 3, axis=-1)
        hr, hz, hn = fnp.split(h @ self.hidden_kernel + self.hidden_bias, 3, axis=-1)
        r, z = sigmoid(xr + hr), sigmoid(xz + hz)
        n = fnp.tanh(xn + r * hn)
        h = (1.0 - z) * n + z * h
        return h, h


def scan_cell(cell: Any, xs: Any, carry: Any = None, *, mask: Any = None, reverse: bool = False) -> tuple[Any, Any]:
    """Run a cell over sequences (batch, length, features); return the last carry and the outputs.

    Where ``mask`` (batch, length) is False the carry stays as it is and the output is 0, so that the last carry is that
    of each sequence's own end, also in ``reverse``.  ``carry`` is the cell's zero state by default.

    >>> cell = GRUCell(2, 3, key=random.key(0))
    >>> last, ys = scan_cell(cell, fnp.ones((1, 4, 2)), mask=fnp.asarray([[True, True, False, False]]))
    >>> bool((ys[:, 1] == last).all()), ys[0, 3].tolist()
    (True, [0.0, 0.0, 0.0])
    """
    if xs.ndim < 3:
        requirement = "sequences (batch, length, features) are required"
        raise ShapeError(message("scan_cell", requirement, str(tuple(xs.shape)), "add a batch of one: x[None]"))
    carry = cell.init_carry((xs.shape[0],)) if carry is None else carry
    by_time = fnp.moveaxis(xs, 1, 0)
    if mask is None:
        carry, ys = lax.scan(cell, carry, by_time, reverse=reverse)
        return carry, fnp.moveaxis(ys, 0, 1)
    mask = fnp.broadcast_to(fnp.asarray(mask, bool), xs.shape[:2])

    def step(old: Any, item: tuple[Any, Any]) -> tuple[Any, Any]:
        x, on = item
        on = on[:, None]
        new, y = cell(old, fnp.where(on, x, 0.0))
        return tree.map(lambda a, b: fnp.where(on, a, b), new, old), fnp.where(on, y, 0.0)

    carry, ys = lax.scan(step, carry, (by_time, mask.T), reverse=reverse)
    return carry, fnp.moveaxis(ys, 0, 1)
