"""Contractions: products summed over axes, as matrix products and convolutions; both are bilinear.

The reference sums float32 products in float64 and rounds once, so that it does not depend on the order of the sum.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from funcgrad import dtypes
from funcgrad.ir import Aval
from funcgrad.primitive import Arg, Bilinear, Example, Primitive, example, zeros
from funcgrad.prims.layout import reshape, reverse, transpose
from funcgrad.prims.window import Ints, Pairs, check_windows, dilated, transposed_padding, window_counts, windows
from funcgrad.trace import bind

NUMBERS = dtypes.FLOATS | dtypes.INTS


def _check_dtypes(prim: Primitive, x: Aval, y: Aval) -> None:
    if x.dtype != y.dtype:
        raise prim.dtype_error("operands must have one dtype", x, y, way_out="convert with astype")
    if x.dtype not in NUMBERS:
        raise prim.dtype_error("numbers are required", x, y, way_out="convert with astype(int), or use any/all")


def _wide(x: Any) -> Any:
    return x.astype(np.float64) if x.dtype == np.float32 else x


# -- matrix products ---------------------------------------------------------------------------------------------
def free_axes(ndim: int, *taken: Ints) -> Ints:
    """The axes below ``ndim`` that are in none of ``taken``."""
    return tuple([d for d in range(ndim) if all(d not in t for t in taken)])


def _dot(lhs: str, rhs: str, dims: str, smooth: bool = True) -> Example:
    """An example from types and axes: "lhs contract, rhs contract; lhs batch, rhs batch", one digit an axis."""
    lc, rc, lb, rb = [tuple(map(int, part.strip())) for half in dims.split(";") for part in half.split(",")]
    return example(lhs, rhs, smooth=smooth, lhs_contract=lc, rhs_contract=rc, lhs_batch=lb, rhs_batch=rb)


@dataclass(frozen=True)
class DotGeneral(Bilinear):
    """Products summed over the contracted axes, for each index of the batch axes.

    The result's axes are the batch axes, then the free axes of the left, then those of the right operand.  float16 and
    bfloat16 accumulate in float32 and round once.  ``precision`` names a cheaper product ("tensorfloat32", "float16").
    """

    lhs_contract: Ints
    rhs_contract: Ints
    lhs_batch: Ints
    rhs_batch: Ints
    precision: str | None = None
    name = "dot_general"
    examples = [
        _dot("f32[2,3]", "f32[3,4]", "1,0;,"),
        _dot("f32[2,3]", "f32[4,3]", "1,1;,"),
        _dot("f32[3]", "f32[3]", "0,0;,"),
        _dot("f32[3,2]", "f32[3]", "0,0;,"),
        _dot("f32[3]", "f32[2,3]", "0,1;,"),
        _dot("f32[]", "f32[2]", ",;,"),
        _dot("f32[2]", "f32[3]", ",;,"),
        _dot("f32[2,3,4]", "f32[2,4,2]", "2,1;0,0"),
        _dot("f32[3,2,4]", "f32[4,2,2]", "2,0;1,2"),
        _dot("f32[2,3,4,2]", "f32[4,2,3,2]", "21,02;30,31"),
        _dot("f32[2,3]", "f32[2,3]", ",;01,01"),
        _dot("f32[0,3]", "f32[3,2]", "1,0;,"),
        _dot("f32[2,0]", "f32[0,3]", "1,0;,"),
        _dot("f16[2,3]", "f16[3,2]", "1,0;,", smooth=False),
        _dot("bf16[2,3]", "bf16[3,2]", "1,0;,", smooth=False),
        _dot("i32[2,3]", "i32[3,2]", "1,0;,", smooth=False),
        example(
            Arg("u32[2]", values=[2**31, 3]),
            Arg("u32[2]", values=[2, 5]),
            smooth=False,
            lhs_contract=(0,),
            rhs_contract=(0,),
            lhs_batch=(),
            rhs_batch=(),
        ),
    ]

    def infer(self, *avals: Aval) -> Aval:
        x, y = avals
        _check_dtypes(self, x, y)
        self._check_axes(x, y)
        batch = [x.shape[d] for d in self.lhs_batch]
        left = [x.shape[d] for d in free_axes(x.ndim, self.lhs_contract, self.lhs_batch)]
        right = [y.shape[d] for d in free_axes(y.ndim, self.rhs_contract, self.rhs_batch)]
        return Aval((*batch, *left, *right), x.dtype)

    def _check_axes(self, x: Aval, y: Aval) -> None:
        sides = ((x, self.lhs_contract, self.lhs_batch), (y, self.rhs_contract, self.rhs_batch))
        for a, contract, batch in sides:
            axes = (*contract, *batch)
            if len(set(axes)) != len(axes) or any(not 0 <= d < a.ndim for d in axes):
                raise self.shape_error(f"axes must be distinct and below {a.ndim}", f"{contract} and {batch} for {a}")
        pairs = ("contracted", self.lhs_contract, self.rhs_contract), ("batch", self.lhs_batch, self.rhs_batch)
        for what, left, right in pairs:
            if [x.shape[d] for d in left] != [y.shape[d] for d in right]:
                got = f"{x.shape} at {left} and {y.shape} at {right}"
                way_out = "transpose one operand, or check the order of the operands"
                raise self.shape_error(f"{what} axes must have equal sizes", got, way_out=way_out)

    def eval(self, *xs: Any) -> Any:
        x, y = map(_wide, xs)
        left = free_axes(x.ndim, self.lhs_contract, self.lhs_batch)
        right = free_axes(y.ndim, self.rhs_contract, self.rhs_batch)
        batch = [x.shape[d] for d in self.lhs_batch]
        k = math.prod([x.shape[d] for d in self.lhs_contract])
        m, n = [x.shape[d] for d in left], [y.shape[d] for d in right]
        a = np.transpose(x, (*self.lhs_batch, *left, *self.lhs_contract)).reshape(*batch, math.prod(m), k)
        b = np.transpose(y, (*self.rhs_batch, *self.rhs_contract, *right)).reshape(*batch, k, math.prod(n))
        return np.matmul(a, b).reshape((*batch, *m, *n))

    def transpose_left(self, ct: Any, x: Any, y: Any) -> Any:
        kept = free_axes(x.aval.ndim, self.lhs_contract, self.lhs_batch)
        others = free_axes(y.aval.ndim, self.rhs_contract, self.rhs_batch)
        first = len(self.lhs_batch) + len(kept)
        summed = tuple(range(first, first + len(others)))
        back = tuple([c for _, c in sorted(zip(self.rhs_contract, self.lhs_contract, strict=True))])
        return self._transposed(ct, y, (summed, others, self.rhs_batch), (self.lhs_batch, kept, back))

    def transpose_right(self, ct: Any, x: Any, y: Any) -> Any:
        kept = free_axes(y.aval.ndim, self.rhs_contract, self.rhs_batch)
        others = free_axes(x.aval.ndim, self.lhs_contract, self.lhs_batch)
        first = len(self.rhs_batch)
        summed = tuple(range(first, first + len(others)))
        back = tuple([c for _, c in sorted(zip(self.lhs_contract, self.rhs_contract, strict=True))])
        return self._transposed(ct, x, (summed, others, self.lhs_batch), (self.rhs_batch, kept, back))

    def _transposed(self, ct: Any, other: Any, axes: tuple[Ints, Ints, Ints], made: tuple[Ints, Ints, Ints]) -> Any:
        """The product of ct and the other operand, its axes put where ``made`` says; no transpose if possible."""
        summed, others, other_batch = axes
        batch, kept, back = made
        ct_batch = tuple(range(len(batch)))
        if (*batch, *back, *kept) == tuple(range(len(batch) + len(back) + len(kept))):
            return bind(DotGeneral(others, summed, other_batch, ct_batch, self.precision), other, ct)
        out = bind(DotGeneral(summed, others, ct_batch, other_batch, self.precision), ct, other)
        return transpose(out, _inverse((*batch, *kept, *back)))

    def batch(self, size: int, mapped: Sequence[bool], *xs: Any) -> tuple[Any, Any]:
        x, y = xs
        left = [tuple([d + mapped[0] for d in t]) for t in (self.lhs_contract, self.lhs_batch)]
        right = [tuple([d + mapped[1] for d in t]) for t in (self.rhs_contract, self.rhs_batch)]
        if all(mapped):
            return bind(DotGeneral(left[0], right[0], (0, *left[1]), (0, *right[1]), self.precision), x, y), True
        ndims = len(self.lhs_batch), x.aval.ndim - len(left[0]) - len(left[1])
        if mapped[1] and len(right[0]) + len(right[1]) + 1 == y.aval.ndim:
            # The right operand's only free axis is the mapped one: as the left operand it leads without a transpose.
            return _front(bind(DotGeneral(right[0], left[0], right[1], left[1], self.precision), y, x), ndims[0]), True
        out = bind(DotGeneral(left[0], right[0], left[1], right[1], self.precision), x, y)
        return _front(out, ndims[0] if mapped[0] else sum(ndims)), True

    def lower(self, g: Any, *xs: Any) -> Any:
        axes = (self.lhs_contract, self.rhs_contract, self.lhs_batch, self.rhs_batch)
        return g.dot(*xs, *axes) if self.precision is None else g.dot(*xs, *axes, precision=self.precision)


def _inverse(perm: Ints) -> Ints:
    return tuple(sorted(range(len(perm)), key=perm.__getitem__))


def _front(x: Any, axis: int) -> Any:
    """x with ``axis`` moved to the front."""
    return transpose(x, (axis, *free_axes(x.aval.ndim, (axis,))))


# -- convolution -------------------------------------------------------------------------------------------------
def _conv(x: str, kernel: str, strides: Ints = (), padding: Pairs = (), smooth: bool = True, **params: Any) -> Example:
    n = x.count(",") - 1
    fields: dict[str, Any] = {"strides": strides or (1,) * n, "padding": padding or ((0, 0),) * n}
    fields |= {"lhs_dilation": (1,) * n, "rhs_dilation": (1,) * n, "groups": 1, "batch_groups": 1}
    return example(x, kernel, smooth=smooth, **(fields | params))


@dataclass(frozen=True)
class Conv(Bilinear):
    """Cross-correlation of x [N, *spatial, C] with a kernel [*spatial, C/groups, O] to [N/batch_groups, *spatial, O].

    ``lhs_dilation`` spreads x, ``rhs_dilation`` the kernel.  With ``groups``, a block of O/groups output channels sees
    its own block of input channels; with ``batch_groups``, its own block of the batch.  A negative padding cuts.
    ``precision`` is that of the products, as in DotGeneral.
    """

    strides: Ints
    padding: Pairs
    lhs_dilation: Ints
    rhs_dilation: Ints
    groups: int = 1
    batch_groups: int = 1
    precision: str | None = None
    name = "conv"
    examples = [
        _conv("f32[2,5,3]", "f32[3,3,2]"),
        _conv("f32[2,7,2]", "f32[2,2,3]", (2,), ((1, 2),)),
        _conv("f32[1,6,4,2]", "f32[3,2,2,2]", (2, 1), ((1, 0), (0, 1))),
        _conv("f32[2,4,4,1]", "f32[2,2,1,2]", rhs_dilation=(2, 1), lhs_dilation=(1, 2)),
        _conv("f32[1,3,4,2,1]", "f32[2,2,1,1,2]", (1, 2, 1)),
        _conv("f32[2,5,4]", "f32[2,2,6]", (2,), ((0, 1),), groups=2),
        _conv("f32[1,4,3]", "f32[2,1,3]", groups=3),
        _conv("f32[4,4,2]", "f32[2,2,6]", (1,), ((1, 0),), batch_groups=2),
        _conv("f32[2,6,1]", "f32[2,1,1]", (1,), ((-1, -2),)),
        _conv("f32[2,6,1]", "f32[2,1,1]", (3,), ((2, 3),), lhs_dilation=(2,)),
        _conv("f32[1,2,1]", "f32[3,1,1]"),
        _conv("f32[0,4,2]", "f32[2,2,1]"),
        _conv("f32[2,4,0]", "f32[2,0,1]"),
        _conv("f16[1,4,2]", "f16[2,2,1]", smooth=False),
        _conv("i32[1,4,2]", "i32[2,2,1]", smooth=False),
    ]

    def infer(self, *avals: Aval) -> Aval:
        x, kernel = avals
        _check_dtypes(self, x, kernel)
        if x.ndim != kernel.ndim or not 3 <= x.ndim <= 5:
            need = "x must be [N, *spatial, C] and the kernel [*spatial, C/groups, O] with 1 to 3 spatial axes"
            raise self.shape_error(need, x, kernel)
        window = kernel.shape[:-2]
        check_windows(self, x.ndim - 2, window, self.padding, self.strides, self.lhs_dilation, self.rhs_dilation)
        self._check_groups(x, kernel)
        spatial = window_counts(x.shape[1:-1], window, *self._steps())
        return Aval((x.shape[0] // self.batch_groups, *spatial, kernel.shape[-1]), x.dtype)

    def _steps(self) -> tuple[Ints, Pairs, Ints, Ints]:
        return self.strides, self.padding, self.lhs_dilation, self.rhs_dilation

    def _check_groups(self, x: Aval, kernel: Aval) -> None:
        g, b, features = self.groups, self.batch_groups, kernel.shape[-1]
        if g < 1 or b < 1 or (g > 1 and b > 1):
            raise self.shape_error("groups and batch_groups must be positive, and one of them 1", f"{g} and {b}")
        if x.shape[-1] != kernel.shape[-2] * g:
            need = f"x's channels must be the kernel's input channels times {g} groups"
            way_out = "put the channels last in x and second to last in the kernel"
            raise self.shape_error(need, f"{x.shape[-1]} of {x}", f"{kernel.shape[-2]} of {kernel}", way_out=way_out)
        if features % (g * b) or x.shape[0] % b:
            need = "groups must divide the output channels, and batch_groups the batch as well"
            raise self.shape_error(need, f"{x} and {kernel} in {g} groups, {b} batch groups")

    def eval(self, *xs: Any) -> Any:
        x, kernel = map(_wide, xs)
        n, c, window = x.shape[0], x.shape[-1], kernel.shape[:-2]
        d, g, b, o = len(window), self.groups, self.batch_groups, kernel.shape[-1]
        strides, padding, base, dilation = self._steps()
        view = windows(
            x, (1, *window, 1), (1, *strides, 1), ((0, 0), *padding, (0, 0)), (1, *base, 1), (1, *dilation, 1), 0
        )
        spatial = view.shape[1 : d + 1]
        # [N, *spatial, C, 1, *window, 1] to [block, N, *spatial, *window, C], a block being a group of either kind
        view = view.reshape(b, n // b, *spatial, g, c // g, *window)
        view = np.moveaxis(view, d + 2, 1)
        view = np.moveaxis(view, d + 3, -1)
        rows = view.reshape(b * g, (n // b) * math.prod(spatial), math.prod(window) * (c // g))
        weights = np.moveaxis(kernel.reshape(rows.shape[2], b * g, o // (b * g)), 1, 0)
        out = np.moveaxis(np.matmul(rows, weights), 0, 1)
        return out.reshape(n // b, *spatial, o)

    def transpose_left(self, ct: Any, x: Any, y: Any) -> Any:
        if not ct.aval.size or not x.aval.size:
            return zeros(x.aval)
        (*window, ci, o), d = y.aval.shape, y.aval.ndim - 2
        blocks = self.groups * self.batch_groups
        kernel = reshape(reverse(y, tuple(range(d))), (*window, ci, blocks, o // blocks))
        kernel = reshape(transpose(kernel, (*range(d), d + 2, d + 1, d)), (*window, o // blocks, blocks * ci))
        padding = transposed_padding(x.aval.shape[1:-1], tuple(window), *self._steps())
        back = Conv(self.lhs_dilation, padding, self.strides, self.rhs_dilation, blocks, precision=self.precision)
        out = bind(back, ct, kernel)
        if self.batch_groups == 1:
            return out
        out = reshape(out, (*out.aval.shape[:-1], self.batch_groups, ci))
        return reshape(_front(out, d + 1), x.aval.shape)

    def transpose_right(self, ct: Any, x: Any, y: Any) -> Any:
        if not ct.aval.size or not x.aval.size:
            return zeros(y.aval)
        d, window = y.aval.ndim - 2, y.aval.shape[:-2]
        back = (d + 1, *range(1, d + 1), 0)
        padding = []
        for n, k, m, (lo, _), b, w, s in zip(
            x.aval.shape[1:-1],
            window,
            ct.aval.shape[1:-1],
            self.padding,
            self.lhs_dilation,
            self.rhs_dilation,
            self.strides,
            strict=True,
        ):
            padding.append((lo, dilated(m, s) + dilated(k, w) - 1 - dilated(n, b) - lo))
        steps = self.rhs_dilation, tuple(padding), self.lhs_dilation, self.strides
        conv = Conv(*steps, self.batch_groups, self.groups, self.precision)
        kernel = transpose(ct, (*range(1, d + 1), 0, d + 1))
        return transpose(bind(conv, transpose(x, back), kernel), (*range(1, d + 1), 0, d + 1))

    def batch(self, size: int, mapped: Sequence[bool], *xs: Any) -> tuple[Any, Any]:
        x, kernel = xs
        if not mapped[1]:
            return self._batch_x(size, x, kernel), True
        blocks = self.groups * self.batch_groups
        *window, ci, o = kernel.aval.shape[1:]
        d = len(window)
        if not mapped[0]:
            # The mapped axis joins the output channels, inside each block.
            kernel = reshape(kernel, (size, *window, ci, blocks, o // blocks))
            kernel = transpose(kernel, (*range(1, d + 3), 0, d + 3))
            out = bind(self, x, reshape(kernel, (*window, ci, size * o)))
            out = reshape(out, (*out.aval.shape[:-1], blocks, size, o // blocks))
            out = _front(out, d + 2)
            return reshape(out, (*out.aval.shape[:-2], o)), True
        # Both mapped: every mapped index is a group of its own.
        kernel = transpose(kernel, (*range(1, d + 2), 0, d + 2))
        kernel = reshape(kernel, (*window, ci, size * o))
        if self.batch_groups > 1:
            x = reshape(x, (size * x.aval.shape[1], *x.aval.shape[2:]))
            out = bind(replace(self, batch_groups=size * self.batch_groups), x, kernel)
        else:
            c = x.aval.shape[-1]
            x = reshape(transpose(x, (*range(1, d + 2), 0, d + 2)), (*x.aval.shape[1:-1], size * c))
            out = bind(replace(self, groups=size * self.groups), x, kernel)
        return _front(reshape(out, (*out.aval.shape[:-1], size, o)), d + 1), True

    def _batch_x(self, size: int, x: Any, kernel: Any) -> Any:
        b, (n, *rest) = self.batch_groups, x.aval.shape[1:]
        if b > 1:
            x = _front(reshape(x, (size, b, n // b, *rest)), 1)
        out = bind(self, reshape(x, (size * n, *rest)), kernel)
        return reshape(out, (size, n // b, *out.aval.shape[1:]))

    def lower(self, g: Any, *xs: Any) -> Any:
        return g.conv(*xs, self)


# -- the operations as functions ---------------------------------------------------------------------------------
def dot_general(
    x: Any,
    y: Any,
    lhs_contract: Ints,
    rhs_contract: Ints,
    lhs_batch: Ints = (),
    rhs_batch: Ints = (),
    precision: str | None = None,
) -> Any:
    """Products summed over the contracted axes; the result has the batch axes, x's free axes, y's free axes."""
    return bind(DotGeneral(lhs_contract, rhs_contract, lhs_batch, rhs_batch, precision), x, y)


def conv(x: Any, kernel: Any, prim: Conv) -> Any:
    """The cross-correlation that ``prim`` describes."""
    return bind(prim, x, kernel)
