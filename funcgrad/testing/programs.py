"""Random functions of arrays, for properties that must hold for every program."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from funcgrad import dtypes
from funcgrad import numpy as fnp
from funcgrad.transforms import checkpoint, jit

__all__ = ["RandomFunction", "random_function"]


class RandomFunction(NamedTuple):
    """A function of arrays that returns a tuple, arguments for it, and the source of its randomness."""

    fun: Callable[..., tuple[Any, ...]]
    args: tuple[np.ndarray[Any, Any], ...]
    seed: int


SHAPES = [(), (1,), (3,), (2, 3), (3, 2), (2, 1, 3), (4, 3)]
SMOOTH = ["sin", "cos", "tanh", "arctan", "negative", "exp2m1", "sigmoid"]
EXACT = ["abs", "negative", "sign", "floor", "ceil", "round", "square"]
SPECIAL = [*SMOOTH, *EXACT, "sqrt", "log", "exp", "reciprocal", "log1p", "isnan"]


def random_function(
    seed: int, kind: str = "smooth", size: int = 25, dtype: Any = np.float32, calls: bool = True
) -> RandomFunction:
    """Draw a function of about ``size`` operations, the same one for the same arguments.

    ``kind`` is "smooth" (differentiable everywhere, values of order 1), "exact" (small integers in floats: no
    operation rounds, so that every device must agree to the bit) or "special" (also operations and arguments with
    NaN, infinities and -0).  With ``calls`` parts of it are jitted or checkpointed.

    >>> f, args, _ = random_function(3)
    >>> len(f(*args)) > 0
    True
    """
    rng = np.random.default_rng(seed)
    shapes = [SHAPES[i] for i in rng.integers(0, len(SHAPES), 3)]
    args = tuple([_values(rng, kind, s, dtype) for s in shapes])

    def fun(*xs: Any) -> tuple[Any, ...]:
        # A generator of its own at every call: tracing twice gives the same function.
        return _Program(np.random.default_rng([seed, 1]), kind, calls).run(xs, size)

    return RandomFunction(fun, args, seed)


def _values(rng: np.random.Generator, kind: str, shape: tuple[int, ...], dtype: Any) -> np.ndarray[Any, Any]:
    if kind == "exact":
        return rng.integers(-3, 4, shape).astype(dtype)
    x = np.asarray(rng.uniform(-1.5, 1.5, shape)).astype(dtype)
    if kind == "special" and x.size:
        specials = rng.choice([np.nan, np.inf, -np.inf, -0.0, 0.0, 1e-40, 3e38], x.shape)
        x = np.where(rng.random(x.shape) < 0.3, specials, x).astype(dtype)
    return x


class _Program:
    """Draws operations on a pool of values that grows."""

    def __init__(self, rng: np.random.Generator, kind: str, calls: bool):
        self.rng, self.kind, self.calls = rng, kind, calls
        self.pool: list[Any] = []

    def run(self, xs: Sequence[Any], size: int) -> tuple[Any, ...]:
        """Start from ``xs``, apply ``size`` operations, return some of the values."""
        self.pool = [fnp.asarray(x) for x in xs]
        moves = [self.unary, self.binary, self.binary, self.scalar, self.again, self.layout, self.layout, self.reduce]
        moves += [self.product, self.choose, self.index] + [self.call] * self.calls
        for _ in range(size):
            made = moves[self.rng.integers(len(moves))]()
            if made is not None:
                self.pool.append(made)
        outs = [self.pool[-1], *[self.pick() for _ in range(3)]]
        return (*outs, outs[1], 1.0)

    def pick(self, shape: tuple[int, ...] | None = None) -> Any:
        """A random value, of a given shape if there is one; newer ones more often."""
        found = [x for x in self.pool if shape is None or x.shape == shape]
        k = len(found)
        return found[max(self.rng.integers(k), self.rng.integers(k))] if k else None

    def bounded(self, x: Any) -> Any:
        """Keep exact values small, so that they stay exact."""
        return fnp.maximum(fnp.minimum(x, 8.0), -8.0) if self.kind == "exact" else x

    def unary(self) -> Any:
        """One function of one value."""
        names = {"smooth": SMOOTH, "exact": EXACT, "special": SPECIAL}[self.kind]
        return self.bounded(apply_named(names[self.rng.integers(len(names))], self.pick()))

    def binary(self) -> Any:
        """Two values of one shape, or a scalar beside an array."""
        x = self.pick()
        y = self.pick(x.shape if self.rng.random() < 0.7 else ())
        y = x if y is None else y
        ops: list[Callable[[Any, Any], Any]] = [fnp.add, fnp.subtract, fnp.multiply]
        if self.kind != "smooth":
            ops += [fnp.maximum, fnp.minimum]
        if self.kind == "special":
            ops += [fnp.divide, fnp.power, fnp.arctan2]
        out = ops[self.rng.integers(len(ops))](x, y)
        return fnp.tanh(out) if self.kind == "smooth" else self.bounded(out)

    def scalar(self) -> Any:
        """A value beside a number, neutral elements included."""
        numbers = [0.0, -0.0, 1.0, -1.0, 2.0] + ([float("nan"), float("inf")] if self.kind == "special" else [])
        c = numbers[self.rng.integers(len(numbers))]
        x = self.pick()
        ops = [lambda: x + c, lambda: x - c, lambda: x * c, lambda: c - x, lambda: fnp.negative(-x)]
        ops += [lambda: x / c] if self.kind == "special" else [lambda: x / 1.0]
        return self.bounded(ops[self.rng.integers(len(ops))]())

    def again(self) -> Any:
        """The same operation on the same value twice: what simplify merges."""
        x = self.pick()
        return (
            self.bounded(fnp.square(x) - fnp.square(x) + fnp.abs(x) * 0.0 + x)
            if self.kind == "exact"
            else fnp.sin(x) + fnp.sin(x) * 0.5
        )

    def layout(self) -> Any:
        """Move elements without computing."""
        x, rng = self.pick(), self.rng
        n = x.ndim
        ways: list[Callable[[], Any]] = [
            lambda: x.reshape(-1),
            lambda: fnp.broadcast_to(x, (2, *x.shape)) if n < 3 else x,
        ]
        if n:
            perm = tuple(int(i) for i in rng.permutation(n))
            axis = int(rng.integers(n))
            ways += [
                lambda: fnp.transpose(x, perm),
                lambda: fnp.flip(x, axis),
                lambda: fnp.transpose(fnp.transpose(x, perm), np.argsort(perm).tolist()),
            ]
            ways += [
                lambda: fnp.concatenate([x, x], axis)[tuple([slice(0, d) for d in x.shape])],
                lambda: fnp.roll(x, 1, axis),
            ]
            ways += [
                lambda: fnp.pad(x, 1)[tuple([slice(1, -1)] * n)],
                lambda: fnp.take(x, fnp.arange(x.shape[axis])[::-1], axis),
            ]
        return ways[rng.integers(len(ways))]()

    def reduce(self) -> Any:
        """Sum or extremum over some axes; a running sum."""
        x = self.pick()
        if not x.ndim:
            return None
        axes = tuple(sorted({int(i) for i in self.rng.integers(0, x.ndim, 2)}))
        if self.kind == "smooth":
            ways = [lambda: fnp.tanh(x.sum(axes)), lambda: fnp.mean(x, axes), lambda: fnp.tanh(fnp.cumsum(x, axes[0]))]
        else:
            ways = [
                lambda: x.sum(axes),
                lambda: x.max(axes),
                lambda: x.min(axes),
                lambda: fnp.argmax(x, axes[0]).astype(x.dtype),
            ]
        return self.bounded(ways[self.rng.integers(len(ways))]())

    def product(self) -> Any:
        """A matrix product in a random layout."""
        x, y = self.pick(), self.pick()
        pairs = [(i, j) for i in range(x.ndim) for j in range(y.ndim) if x.shape[i] == y.shape[j]]
        if not pairs or x.ndim + y.ndim > 5:
            return None
        i, j = pairs[self.rng.integers(len(pairs))]
        out = fnp.tensordot(x, y, ([i], [j]))
        return fnp.tanh(out) if self.kind == "smooth" else self.bounded(out)

    def choose(self) -> Any:
        """where, on a condition that does not depend on rounding."""
        x = self.pick()
        y = self.pick(x.shape)
        condition = (fnp.arange(x.size).reshape(x.shape) % 2 == 0) if self.kind == "smooth" else x > y
        return fnp.where(condition, x, y * 0.5 if self.kind == "smooth" else y)

    def index(self) -> Any:
        """Read at or write to positions."""
        x = self.pick()
        if not x.ndim:
            return None
        rows = fnp.asarray(self.rng.integers(0, x.shape[0], 2).astype(np.int32))
        return (
            x[rows] if self.rng.random() < 0.5 else self.bounded(x.at[rows].add(fnp.ones((2, *x.shape[1:]), x.dtype)))
        )

    def call(self) -> Any:
        """A part of the function, jitted or checkpointed."""
        xs = [self.pick() for _ in range(2)]
        inner = _Program(np.random.default_rng(self.rng.integers(1 << 30)), self.kind, False)
        wrap = (jit, checkpoint)[self.rng.integers(2)]
        seed = inner.rng.bit_generator.state

        def body(*args: Any) -> Any:
            inner.rng.bit_generator.state = seed
            return inner.run(args, 5)[0]

        return wrap(body)(*xs)


def apply_named(name: str, x: Any) -> Any:
    """A function of :mod:`funcgrad.numpy` by name, or one of two that it does not have."""
    if name == "exp2m1":
        return fnp.expm1(x * 0.5)
    if name == "sigmoid":
        return 1.0 / (1.0 + fnp.exp(-x))
    if name == "isnan":
        return fnp.isnan(x).astype(x.dtype if dtypes.is_float(x.dtype) else np.float32)
    return getattr(fnp, name)(x)
