"""Random programs of more than ``funcgrad.testing`` draws: all dtypes, broadcasting, views, order, loops in loops.

Numbers are small integers in every dtype, so that no operation rounds and all devices must agree to the bit.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import funcgrad as fg
import funcgrad.numpy as fnp
from funcgrad import dtypes, lax
from funcgrad.testing.programs import RandomFunction, _Program

SHAPES = [
    (),
    (1,),
    (3,),
    (2, 3),
    (5, 1),
    (0,),
    (3, 0, 2),
    (17,),
    (8, 8),
    (2, 3, 4, 5),
    (32, 32),
    (2, 1, 2, 1, 3),
    (257,),
]
DTYPES = [np.float32, np.float32, np.float16, dtypes.bfloat16, np.int32, np.uint32, np.bool_]
MOST = 20_000  # elements of a value
Move = Callable[[], Any]


def is_float(x: Any) -> bool:
    return dtypes.is_float(x.dtype)


def is_int(x: Any) -> bool:
    return dtypes.is_int(x.dtype)


def is_bool(x: Any) -> bool:
    return bool(x.dtype == np.bool_)


def small(x: Any) -> Any:
    """Values that float16 and bfloat16 hold exactly, sums of a few hundred of them too."""
    return fnp.maximum(fnp.minimum(x, 8.0), -8.0) if is_float(x) else x


def beside(x: Any, y: Any) -> tuple[Any, Any]:
    """Two values for one operation: an integer beside a float is small, a truth value beside a number is one."""
    x, y = [v.astype(np.int32) if is_bool(v) and not is_bool(o) else v for v, o in ((x, y), (y, x))]
    return tuple([v % 5 if is_int(v) and is_float(o) else v for v, o in ((x, y), (y, x))])  # type: ignore[return-value]


class WideProgram(_Program):
    """Draws operations on a pool of values that grows."""

    def __init__(self, rng: np.random.Generator, depth: int = 0):
        super().__init__(rng, "exact", False)
        self.depth = depth

    def run(self, xs: Any, size: int) -> tuple[Any, ...]:
        """Start from ``xs``, apply ``size`` operations, return some of the values."""
        self.pool = [fnp.asarray(x) for x in xs]
        moves: list[Move] = [self.one, self.two, self.two, self.view, self.view, self.join, self.fold, self.running]
        moves += [self.order, self.take, self.put, self.moving, self.multiply, self.select, self.convert, self.window]
        moves += [self.scan, self.count, self.repeat, self.branch, self.mapped, self.slope] * (self.depth < 2)
        for _ in range(size):
            made = self.draw(moves)
            if made is not None and made.size <= MOST and made.ndim <= 5:
                self.pool.append(small(made))
        return self.pool[-1], *[self.pick() for _ in range(3)]

    def draw(self, ways: list[Move]) -> Any:
        """One of some ways, tried."""
        return ways[self.rng.integers(len(ways))]()

    def fitting(self, *xs: Any, like: Callable[[Any], bool] = lambda y: True) -> Any:
        """A value that broadcasts with others; the first of them where there is none."""
        shape = np.broadcast_shapes(*[x.shape for x in xs])
        found = []
        for y in self.pool:
            pairs = zip(shape[::-1], y.shape[::-1], strict=False)
            if like(y) and all(a == b or 1 in (a, b) for a, b in pairs):
                found.append(y)
        return found[self.rng.integers(len(found))] if found else xs[0]

    def axis(self, x: Any) -> int:
        """One of a value's axes."""
        return int(self.rng.integers(x.ndim))

    # -- elementwise ---------------------------------------------------------------------------------------------
    def one(self) -> Any:
        """A function of one value, or of a value and a number."""
        x, c = self.pick(), int(self.rng.integers(1, 9))
        if is_bool(x):
            return ~x
        if is_int(x):
            return self.draw([lambda: ~x, lambda: abs(x), lambda: x << c, lambda: x >> c, lambda: x // c, lambda: -x])
        ways: list[Move] = [lambda: x - 0.0, lambda: x * 1.0, lambda: -x, lambda: fnp.sign(x), lambda: c - x]
        return self.draw([*ways, lambda: fnp.square(x) + x, lambda: fnp.floor(x * 0.5)])

    def two(self) -> Any:
        """A function of two values that broadcast."""
        x = self.pick()
        x, y = beside(x, self.fitting(x))
        if is_bool(x):
            return self.draw([lambda: x & y, lambda: x ^ y, lambda: x | y])
        ways: list[Move] = [lambda: x + y, lambda: x - y, lambda: x * y, lambda: fnp.maximum(x, y), lambda: x > y]
        if is_int(x) and is_int(y):
            ways += [lambda: x // fnp.where(y == 0, 1, y), lambda: x % fnp.where(y == 0, 3, y), lambda: x ^ y]
        return self.draw(ways)

    def select(self) -> Any:
        """where, with a condition that broadcasts."""
        x = self.pick()
        x, y = beside(x, self.fitting(x))
        condition = self.fitting(x, y, like=is_bool)
        return fnp.where(condition if is_bool(condition) else fnp.arange(x.size).reshape(x.shape) % 3 == 0, x, y)

    def convert(self) -> Any:
        """Another dtype."""
        x, to = self.pick(), DTYPES[self.rng.integers(len(DTYPES))]
        if is_float(x):
            return fnp.abs(x).astype(to)
        return (x % 9 if is_int(x) else x).astype(to)

    # -- layout --------------------------------------------------------------------------------------------------
    def view(self) -> Any:
        """The same values, or some of them, in another layout."""
        x, r = self.pick(), self.rng
        if not x.ndim:
            return fnp.broadcast_to(x, (3, 1))
        a = self.axis(x)
        steps = tuple([slice(None, None, int(r.choice([1, 2, -1, -2]))) for _ in x.shape])
        ways: list[Move] = [lambda: x[steps], lambda: x[1:], lambda: x.T, lambda: x.reshape(-1), lambda: fnp.flip(x, a)]
        ways += [lambda: x.T.reshape(-1), lambda: fnp.broadcast_to(x, (3, *x.shape)), lambda: fnp.expand_dims(x, a)]
        return self.draw([*ways, lambda: fnp.broadcast_to(fnp.expand_dims(x, a), (*x.shape[:a], 4, *x.shape[a:]))])

    def join(self) -> Any:
        """Longer values: pieces in a row, with edges, repeated, shifted."""
        x, r = self.pick(), self.rng
        if not x.ndim:
            return fnp.stack([x, x])
        a, shift = self.axis(x), int(r.integers(-4, 5))
        pad = [
            (int(r.integers(-1, 2)), int(r.integers(0, 3)), int(r.integers(2))) if n > 1 else (0, 1, 0) for n in x.shape
        ]
        ways: list[Move] = [lambda: fnp.concatenate([x, fnp.flip(x, a), x], a), lambda: fnp.roll(x, shift, a)]
        return self.draw([*ways, lambda: fnp.repeat(x, 2, a), lambda: lax.pad(x, fnp.zeros((), x.dtype), pad)])

    # -- along axes ----------------------------------------------------------------------------------------------
    def fold(self) -> Any:
        """A reduction over some axes."""
        x, r = self.pick(), self.rng
        if not x.size or not x.ndim:
            return fnp.sum(x)
        axes = tuple([int(a) for a in r.permutation(x.ndim)[: r.integers(1, x.ndim + 1)]])
        keep = bool(r.integers(2))
        if is_bool(x):
            return self.draw([lambda: fnp.any(x, axes, keepdims=keep), lambda: fnp.sum(x, axes, keepdims=keep)])
        ways: list[Move] = [lambda: fnp.sum(x, axes, keepdims=keep), lambda: fnp.max(x, axes, keepdims=keep)]
        return self.draw([*ways, lambda: fnp.argmin(x, axes[0]), lambda: x - fnp.min(x, axes, keepdims=True)])

    def running(self) -> Any:
        """A running sum or extremum, from either end."""
        x = self.pick()
        if not x.ndim or is_bool(x):
            return None
        way = (lax.cumsum, lax.cummax, lax.cummin)[self.rng.integers(3)]
        return way(x, self.axis(x), reverse=bool(self.rng.integers(2)))

    def order(self) -> Any:
        """Sorted, or the order."""
        x = self.pick()
        if not x.ndim:
            return None
        a, k = self.axis(x), min(3, x.shape[-1])
        ways: list[Move] = [lambda: fnp.sort(x, a), lambda: fnp.argsort(x, a), lambda: fnp.flip(fnp.sort(x, a), a)]
        return self.draw(ways if is_bool(x) else [*ways, lambda: lax.top_k(x, k)[self.rng.integers(2)]])

    def window(self) -> Any:
        """A sum over windows."""
        x = self.pick()
        if not is_float(x) or x.ndim not in (1, 2) or not x.size:
            return None
        sizes = [min(3, n) for n in x.shape]
        return lax.reduce_window(x, 0.0, lax.add, sizes, [2] * x.ndim, ("SAME", "VALID")[self.rng.integers(2)])

    def multiply(self) -> Any:
        """A matrix product of operands in any layout."""
        x = self.pick()
        y = self.fitting(x, like=is_float)
        if not is_float(x) or not is_float(y) or not x.ndim or not y.ndim or x.size * y.size > 100 * MOST:
            return None
        i, j = self.axis(x), self.axis(y)
        return fnp.tensordot(x, y, ([i], [j])) if x.shape[i] == y.shape[j] else None

    # -- places that are values ------------------------------------------------------------------------------------
    def places(self, n: int) -> Any:
        """Some indices below n, negative ones among them, that may be known only when it runs."""
        ints = [v for v in self.pool if v.dtype == np.int32 and v.ndim == 1 and 0 < v.size < 300]
        drawn = fnp.asarray(self.rng.integers(-n, n, 4).astype(np.int32))
        return ints[self.rng.integers(len(ints))] % n if ints and self.rng.random() < 0.5 else drawn

    def take(self) -> Any:
        """Read rows at places, or at places beyond the end."""
        x = self.pick()
        if not x.ndim or not x.size:
            return None
        a = self.axis(x)
        i = self.places(x.shape[a])
        ways: list[Move] = [lambda: fnp.take(x, i, a), lambda: fnp.take(x, i * 2, a, mode="clip"), lambda: x[i[0]]]
        return self.draw([*ways, lambda: fnp.take(x, i * 2, a, mode="fill", fill_value=1)]) if not a else ways[0]()

    def put(self) -> Any:
        """Write to rows: the last one wins, or all count."""
        x = self.pick()
        if not x.ndim or not x.size:
            return None
        i = self.places(x.shape[0])
        rows = fnp.take(x, i[::-1], 0)
        ways: list[Move] = [lambda: x.at[i].set(rows), lambda: x.at[::2].set(x[::-2])]
        return self.draw(ways if is_bool(x) else [*ways, lambda: x.at[i].add(rows), lambda: x.at[i].max(rows)])

    def moving(self) -> Any:
        """A slice whose place is a value, read or written."""
        x, r = self.pick(), self.rng
        if not x.ndim or not x.size:
            return None
        at = [self.places(n)[0] + 1 for n in x.shape]
        sizes = [int(r.integers(1, n + 1)) for n in x.shape]
        some = lax.dynamic_slice(x, at, sizes)
        return lax.dynamic_update_slice(x, some, at[::-1]) if r.random() < 0.5 else some

    # -- functions of functions ------------------------------------------------------------------------------------
    def part(self) -> Callable[..., Any]:
        """A program of a few operations, the same one at every call."""
        inner = WideProgram(np.random.default_rng(self.rng.integers(1 << 30)), self.depth + 1)
        state, size = inner.rng.bit_generator.state, int(self.rng.integers(2, 6))

        def body(*args: Any) -> Any:
            inner.rng.bit_generator.state = state
            return inner.run(args, size)[0]

        return body

    def shifted(self, x: Any, by: Any) -> Any:
        """A value of x's type that depends on another."""
        shift = fnp.sum(by.reshape(-1)[:1]).astype(np.float32) % 4.0
        return x ^ (shift > 1) if is_bool(x) else small(x + shift.astype(x.dtype))

    def light(self) -> Any:
        """A value that a loop may carry."""
        x = self.pick()
        return x if x.size < 1000 else fnp.sum(x)

    def scan(self) -> Any:
        """A loop over rows."""
        rows, carry, body = self.light(), self.light(), self.part()
        if not rows.ndim:
            return None

        def step(c: Any, row: Any) -> Any:
            out = body(c, row)
            return self.shifted(c, out), (out, row)

        last, ys = lax.scan(step, carry, rows, reverse=bool(self.rng.integers(2)))
        return last if self.rng.random() < 0.5 else ys[0]

    def count(self) -> Any:
        """A loop of a fixed number of steps whose two values change places."""
        x, body, length = self.light(), self.part(), int(self.rng.integers(0, 5))

        def step(i: Any, state: Any) -> Any:
            a, b = state
            return self.shifted(b, body(a, fnp.asarray(i, dtype=np.int32))), a

        return lax.fori_loop(0, length, step, (x, fnp.flip(x)))[0]

    def repeat(self) -> Any:
        """A loop whose length is a value."""
        x, body, length = self.light(), self.part(), self.places(5)[0] % 5
        step = lambda s: (s[0] + 1, self.shifted(s[1], body(s[1], s[0])))
        return lax.while_loop(lambda s: s[0] < length, step, (fnp.asarray(0, dtype=np.int32), x))[1]

    def branch(self) -> Any:
        """One of three functions."""
        x, parts = self.light(), [self.part() for _ in range(2)]
        ways = [lambda v: v, *[lambda v, p=p: self.shifted(v, p(v)) for p in parts]]
        return lax.switch(self.places(3)[0] % 3, ways, x)

    def mapped(self) -> Any:
        """The same program for each row."""
        x, y, body = self.light(), self.light(), self.part()
        return fg.vmap(body, (0, None))(x, y) if x.ndim and 0 < x.shape[0] < 40 else None

    def slope(self) -> Any:
        """A gradient, of a program that has one."""
        x, inner = self.light(), _Program(np.random.default_rng(self.rng.integers(1 << 30)), "exact", False)
        if x.dtype != np.float32 or not x.size:
            return None
        state = inner.rng.bit_generator.state

        def loss(v: Any) -> Any:
            inner.rng.bit_generator.state = state
            return sum([fnp.sum(fnp.asarray(o)) for o in inner.run([v], 4)])

        return fnp.round(small(fg.grad(loss)(x)))


def wide_function(seed: int, size: int = 20) -> RandomFunction:
    """Draw a function of four arrays of any dtypes, and arguments for it."""
    rng = np.random.default_rng(seed)
    args = []
    for k in range(4):
        shape, dtype = SHAPES[rng.integers(len(SHAPES))], DTYPES[rng.integers(len(DTYPES)) if k else 0]
        low = 0 if dtype in (np.uint32, np.bool_) else -3
        args.append(dtypes.narrow(rng.integers(low, 4, shape).astype(np.float32), dtypes.as_dtype(dtype)))

    def fun(*xs: Any) -> tuple[Any, ...]:
        return WideProgram(np.random.default_rng([seed, 1])).run(xs, size)

    return RandomFunction(fun, tuple(args), seed)
