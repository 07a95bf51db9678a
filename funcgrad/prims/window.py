"""Sliding windows: their geometry, shared with convolution, and the sum, maximum and minimum over each window."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
from numpy.lib.stride_tricks import as_strided

from funcgrad import dtypes
from funcgrad.ir import Aval, Literal
from funcgrad.primitive import Arg, Linear, Primitive, accumulate, dataclass, example
from funcgrad.prims.layout import pad, slice_
from funcgrad.prims.logic import compare, logical_and, logical_not
from funcgrad.prims.pointwise import select
from funcgrad.trace import bind

Ints = tuple[int, ...]
Pairs = tuple[tuple[int, int], ...]
NUMBERS = dtypes.FLOATS | dtypes.INTS


# -- geometry ----------------------------------------------------------------------------------------------------
def dilated(n: int, dilation: int) -> int:
    """The length of n elements with ``dilation - 1`` gaps between neighbours.

    >>> dilated(3, 2), dilated(0, 2)
    (5, 0)
    """
    return (n - 1) * dilation + 1 if n else 0


def window_counts(
    sizes: Sequence[int], window: Ints, strides: Ints, padding: Pairs, base_dilation: Ints, window_dilation: Ints
) -> Ints:
    """The number of window positions on each axis; a window larger than its padded axis has none.

    >>> window_counts((7,), (3,), (2,), ((1, 1),), (1,), (1,))
    (4,)
    """
    out = []
    for n, k, s, (lo, hi), b, w in zip(sizes, window, strides, padding, base_dilation, window_dilation, strict=True):
        out.append(max(0, (dilated(n, b) + lo + hi - dilated(k, w)) // s + 1))
    return tuple(out)


def transposed_padding(
    sizes: Sequence[int], window: Ints, strides: Ints, padding: Pairs, base_dilation: Ints, window_dilation: Ints
) -> Pairs:
    """The padding of the backward windows: from the dilated results, with strides and dilation exchanged, to the input.

    Each input element meets the windows that start up to one window before it.
    """
    counts = window_counts(sizes, window, strides, padding, base_dilation, window_dilation)
    out = []
    for n, k, s, (lo, _), b, w, m in zip(
        sizes, window, strides, padding, base_dilation, window_dilation, counts, strict=True
    ):
        before = dilated(k, w) - lo - 1
        out.append((before, dilated(n, b) + dilated(k, w) - 1 - dilated(m, s) - before))
    return tuple(out)


def check_windows(prim: Primitive, rank: int, window: Ints, padding: Pairs, *positive: Ints) -> None:
    """Raise ShapeError unless parameters have one entry per axis, and windows, strides and dilations are positive."""
    if any(len(p) != rank for p in (window, padding, *positive)):
        raise prim.shape_error(f"window, strides, padding and dilations must have {rank} entries", prim)
    if any(v < 1 for p in (window, *positive) for v in p):
        raise prim.shape_error("window sizes, strides and dilations must be at least 1", prim)


def windows(
    x: np.ndarray[Any, Any], window: Ints, strides: Ints, padding: Pairs, base: Ints, dilation: Ints, fill: Any
) -> np.ndarray[Any, Any]:
    """A view of numpy data with axes (*positions, *window): every window of x, dilated and padded with ``fill``."""
    counts = window_counts(x.shape, window, strides, padding, base, dilation)
    shape = [max(0, dilated(n, b) + lo + hi) for n, (lo, hi), b in zip(x.shape, padding, base, strict=True)]
    full = np.full(shape, fill, x.dtype)
    to, source = [], []
    for n, (lo, _), b, m in zip(x.shape, padding, base, shape, strict=True):
        # element i of x lies at i * b + lo, which may be outside when padding cuts
        first, last = -(min(lo, 0) // b), min(n - 1, (m - 1 - lo) // b)
        inside = first <= last
        to.append(slice(first * b + lo, last * b + lo + 1, b) if inside else slice(0, 0))
        source.append(slice(first, last + 1) if inside else slice(0, 0))
    full[tuple(to)] = x[tuple(source)]
    if 0 in counts or 0 in window:
        return np.zeros((*counts, *window), x.dtype)
    steps = [st * s for st, s in zip(full.strides, strides, strict=True)]
    inner = [st * d for st, d in zip(full.strides, dilation, strict=True)]
    return as_strided(full, (*counts, *window), (*steps, *inner), writeable=False)


# -- reductions over windows -------------------------------------------------------------------------------------
def _examples() -> list[Any]:
    def make(arg: str, window: Ints, strides: Ints = (), padding: Pairs = (), base: Ints = (), dil: Ints = ()) -> Any:
        one = (1,) * len(window)
        return example(
            arg,
            smooth=arg.startswith("f32"),
            window=window,
            strides=strides or one,
            padding=padding or ((0, 0),) * len(window),
            base_dilation=base or one,
            window_dilation=dil or one,
        )

    return [
        make("f32[6]", (2,), (2,)),
        make("f32[2,5,4,1]", (1, 3, 2, 1), (1, 2, 1, 1), ((0, 0), (1, 2), (0, 1), (0, 0))),
        make("f32[7]", (3,), (2,), ((2, 0),), (1,), (2,)),
        make("f32[4]", (3,), (1,), ((1, 1),), (2,)),
        make("f32[7]", (2,), (2,), ((-1, -2),)),
        make("f32[2,3]", (2, 3)),
        make("f32[2]", (3,)),
        make("f32[0,3]", (1, 2)),
        make("f32[]", ()),
        make("i32[2,4]", (1, 2), (1, 2), ((0, 0), (1, 1))),
        make("f16[5]", (3,)),
    ]


@dataclass(frozen=True)
class ReduceWindow(Primitive):
    """One number from each window of x; all parameters have an entry for every axis of x.

    Windows of ``window`` elements, ``window_dilation`` apart, start every ``strides`` elements of x after x has been
    spread by ``base_dilation`` and padded (or cut, for a negative amount) by ``padding``.
    """

    window: Ints
    strides: Ints
    padding: Pairs
    base_dilation: Ints
    window_dilation: Ints
    op: ClassVar[str] = ""

    def infer(self, *avals: Aval) -> Aval:
        x = avals[0]
        if x.dtype not in NUMBERS:
            raise self.dtype_error("numbers are required", x, way_out="convert with astype(int)")
        check_windows(self, x.ndim, *self._geometry())
        return Aval(window_counts(x.shape, *self._sizes()), x.dtype)

    def _sizes(self) -> tuple[Ints, Ints, Pairs, Ints, Ints]:
        return self.window, self.strides, self.padding, self.base_dilation, self.window_dilation

    def _geometry(self) -> tuple[Ints, Pairs, Ints, Ints, Ints]:
        return self.window, self.padding, self.strides, self.base_dilation, self.window_dilation

    def _windows(self, x: Any, fill: Any) -> tuple[Any, Ints]:
        return windows(x, *self._sizes(), fill), tuple(range(x.ndim, 2 * x.ndim))

    def batch(self, size: int, mapped: Sequence[bool], *xs: Any) -> tuple[Any, Any]:
        w, s, p, b, d = self._sizes()
        return bind(type(self)((1, *w), (1, *s), ((0, 0), *p), (1, *b), (1, *d)), xs[0]), True

    def lower(self, g: Any, *xs: Any) -> Any:
        return g.reduce_window(self.op, xs[0], self)


@dataclass(frozen=True)
class ReduceWindowSum(ReduceWindow, Linear):
    """The sum over each window; the transpose is a sum over windows again, strides and base dilation exchanged."""

    name = "reduce_window_sum"
    op = "sum"
    examples = _examples()

    def eval(self, *xs: Any) -> Any:
        view, axes = self._windows(xs[0], 0)
        wide = np.float64 if view.dtype.kind == "f" else view.dtype
        return view.sum(axes, dtype=wide)

    def transpose(self, ct: Any, *xs: Any) -> Sequence[Any]:
        shape = xs[0].aval.shape
        if not ct.aval.size or not xs[0].aval.size:
            return [None]
        back = transposed_padding(shape, *self._sizes())
        return [
            lambda: reduce_window("sum", ct, self.window, self.base_dilation, back, self.strides, self.window_dilation)
        ]


class ReduceWindowChoice(ReduceWindow):
    """A maximum or minimum over each window; its derivative is that of the first element, row by row, to attain it."""

    def derivative_masks(self, out: Any, x: Any) -> list[tuple[Any, Any]]:
        """For each offset in the window (in order): where it is the first to attain the result, and its position."""
        spread = self._spread(x, self._identity(x.aval.dtype))
        free, masks = None, []
        for offset in itertools.product(*[range(k) for k in self.window]):
            start = tuple([o * d for o, d in zip(offset, self.window_dilation, strict=True)])
            hit = compare("eq", self._at(spread, start, out.aval.shape), out)
            first = hit if free is None else logical_and(hit, free)
            free = logical_not(hit) if free is None else logical_and(free, logical_not(hit))
            masks.append((first, start))
        return masks

    def _identity(self, dtype: Any) -> Literal:
        """What padding holds: it never wins."""
        low = -np.inf if dtype in dtypes.FLOATS else np.iinfo(dtype).min
        high = np.inf if dtype in dtypes.FLOATS else np.iinfo(dtype).max
        return Literal(low if self.op == "max" else high, dtype)

    def _spread(self, x: Any, value: Any) -> Any:
        lows, highs = zip(*self.padding, strict=True) if self.padding else ((), ())
        return pad(x, value, lows, highs, tuple([b - 1 for b in self.base_dilation]))

    def _at(self, spread: Any, start: Ints, counts: Ints) -> Any:
        limit = [a + dilated(m, s) for a, m, s in zip(start, counts, self.strides, strict=True)]
        return slice_(spread, start, limit, self.strides)

    def _place(self, part: Any, start: Ints, shape: Ints) -> Any:
        """The transpose of ``_at`` and the padding: a part back on the spread axes of x, what was padding cut away."""
        low = [a - lo for a, (lo, _) in zip(start, self.padding, strict=True)]
        high = []
        for n, b, a, m, s in zip(shape, self.base_dilation, low, part.aval.shape, self.strides, strict=True):
            high.append(dilated(n, b) - a - dilated(m, s))
        return pad(part, 0, low, high, tuple([s - 1 for s in self.strides]))

    def vjp(self, ct: Any, out: Any, *xs: Any) -> Sequence[Any]:
        x = xs[0]
        shape = x.aval.shape
        if not out.aval.size or not x.aval.size:
            return [None]

        def make() -> Any:
            total: Any = None
            zero = Literal(0, ct.aval.dtype)
            for mask, start in self.derivative_masks(out, x):
                total = accumulate(total, self._place(select(mask, ct, zero), start, shape))
            return slice_(total, (0,) * len(shape), total.aval.shape, self.base_dilation)

        return [make]

    def jvp(self, ts: Sequence[Any], out: Any, *xs: Any) -> Any:
        if not out.aval.size:
            return None
        zero = Literal(0, out.aval.dtype)
        spread, total = self._spread(ts[0], zero), None
        for mask, start in self.derivative_masks(out, xs[0]):
            total = accumulate(total, select(mask, self._at(spread, start, out.aval.shape), zero))
        return total


@dataclass(frozen=True)
class ReduceWindowMax(ReduceWindowChoice):
    """The largest element of each window; padding counts as -inf (the smallest integer); NaN wins."""

    name = "reduce_window_max"
    op = "max"
    examples = [
        *_examples(),
        example(
            Arg("i32[6]", values=[1, 1, 2, 2, 0, 0]),
            smooth=False,
            window=(3,),
            strides=(1,),
            padding=((1, 1),),
            base_dilation=(1,),
            window_dilation=(1,),
        ),
    ]

    def eval(self, *xs: Any) -> Any:
        view, axes = self._windows(xs[0], self._identity(xs[0].dtype).value)
        return view.max(axes) if view.size else np.zeros(view.shape[: xs[0].ndim], view.dtype)


@dataclass(frozen=True)
class ReduceWindowMin(ReduceWindowChoice):
    """The smallest element of each window; padding counts as +inf (the largest integer); NaN wins."""

    name = "reduce_window_min"
    op = "min"
    examples = _examples()

    def eval(self, *xs: Any) -> Any:
        view, axes = self._windows(xs[0], self._identity(xs[0].dtype).value)
        return view.min(axes) if view.size else np.zeros(view.shape[: xs[0].ndim], view.dtype)


_OPS: dict[str, type[ReduceWindow]] = {"sum": ReduceWindowSum, "max": ReduceWindowMax, "min": ReduceWindowMin}


def reduce_window(
    op: str,
    x: Any,
    window: Ints,
    strides: Ints,
    padding: Pairs,
    base_dilation: Ints | None = None,
    window_dilation: Ints | None = None,
) -> Any:
    """One number from each window of x: its "sum", "max" or "min"."""
    one = (1,) * len(window)
    return bind(_OPS[op](window, strides, padding, base_dilation or one, window_dilation or one), x)
