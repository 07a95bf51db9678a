"""The Vulkan emitter: the verbs that primitives' ``lower`` calls, as ggml nodes.  What it cannot do is Unsupported."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from funcgrad import dtypes
from funcgrad.ir import Aval, Equation, Var
from funcgrad.primitive import Pointwise
from funcgrad.runtime.program import Const
from funcgrad.runtime.views import row_major
from funcgrad.runtime.vulkan_memory import HELD
from funcgrad.runtime.vulkan_program import LARGEST, VulkanProgram
from funcgrad.runtime.vulkan_tape import EXACT, Tape, Unsupported, Val

__all__ = ["VulkanEmitter"]

Ints = tuple[int, ...]
LONGEST = 1 << 15  # of a row that one workgroup sums; longer ones are summed in two stages
BATCH = 65535  # what a dispatch takes along its third axis


class VulkanEmitter:
    """Lowers equations onto a tape; it is the ``g`` of every primitive's ``lower``."""

    def __init__(self, tape: Tape):
        self.tape = tape

    def equation(self, eqn: Equation, env: dict[Any, Val]) -> None:
        """Lower one equation; its results go into ``env``."""
        if any(a.aval.dtype not in HELD for a in (*eqn.inputs, *eqn.outputs)):
            raise Unsupported("dtype")
        if not eqn.outputs or eqn.prim.effectful:
            raise Unsupported("effect")
        if any(not a.aval.size for a in (*eqn.inputs, *eqn.outputs)):
            raise Unsupported("empty operands")
        args = [env[a] if type(a) is Var else self.tape.full(a.value, a.aval) for a in eqn.inputs]  # type: ignore[union-attr]
        if isinstance(eqn.prim, Pointwise):
            results = [self.pointwise(eqn.prim, args, eqn.outputs[0].aval)]
        else:
            made = eqn.prim.lower(self, *args)
            results = list(made) if eqn.prim.multiple else [made]
        for v, r in zip(eqn.outputs, results, strict=True):
            if r.aval != v.aval:
                raise AssertionError(f"{eqn.prim.name}: lowered to {r.aval}, inferred {v.aval}")
            env[v] = r

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        raise Unsupported(name)  # a verb that this emitter does not have

    # -- pointwise -----------------------------------------------------------------------------------------------
    def pointwise(self, prim: Pointwise, xs: Sequence[Val], aval: Aval) -> Val:
        """Nodes over the flattened operands."""
        if prim.name in ("copy", "stop_gradient") or (prim.name == "convert" and xs[0].dtype == aval.dtype):
            return xs[0]
        g = VulkanProgram(self.tape, aval.size)
        made = prim.lower(g, *[g.load(x) for x in xs])
        if isinstance(made, Const):
            return self.tape.full(made.value, aval)
        t = g.t(made, full=True)
        return Val(aval, t, 0, row_major(aval.shape, 1), None, made.bound)

    def compute(self, aval: Aval, *xs: Val) -> tuple[VulkanProgram, list[Any]]:
        """A program over operands of one size, for compositions of this emitter."""
        g = VulkanProgram(self.tape, aval.size)
        return g, [g.load(x) for x in xs]

    def value(self, t: Any, shape: Sequence[int], dtype: Any, bound: int | None = None) -> Val:
        """A whole tensor as a value."""
        return Val(Aval(shape, dtype), t, 0, row_major(tuple(shape), 1), None, bound)

    # -- layout --------------------------------------------------------------------------------------------------
    def full(self, value: Any, aval: Aval) -> Val:
        return self.tape.full(value, aval)

    def constant(self, value: Any) -> Val:
        """A captured array."""
        host = np.asarray(value)
        if host.dtype not in HELD or not host.size:
            raise Unsupported("a constant's dtype")
        if host.size == 1:
            return self.full(host.reshape(-1)[0], Aval(host.shape, host.dtype))
        t = self.tape.constant(host.astype(np.float32) if host.dtype == dtypes.bool_ else np.ascontiguousarray(host))
        return self.value(t, host.shape, host.dtype)

    def iota(self, aval: Aval, axis: int) -> Val:
        n = aval.shape[axis]
        if n > EXACT or aval.dtype not in (dtypes.float32, dtypes.int32):
            raise Unsupported("iota")
        if n == 1:
            return self.full(0, aval)
        t = self.tape.node("arange", 0.0, float(n), 1.0)
        strides = [int(d == axis) for d in range(aval.ndim)]
        return Val(aval, t, 0, tuple(strides), None, n if aval.dtype == dtypes.int32 else None)

    def reshape(self, x: Val, shape: Ints) -> Val:
        out = x.reshape(shape)
        if out is None:
            out = self.tape.dense(x).reshape(shape)
            assert out is not None
        return out

    def transpose(self, x: Val, perm: Ints) -> Val:
        return x.transpose(perm)

    def broadcast(self, x: Val, shape: Ints, dims: Ints) -> Val:
        strides = [0] * len(shape)
        for i, d in enumerate(dims):
            if x.aval.shape[i] != 1:
                strides[d] = x.strides[i]
        return x.view(shape, x.offset, strides)

    def slice(self, x: Val, start: Ints, limit: Ints, strides: Ints) -> Val:
        shape = [max(0, -(-(b - a) // s)) for a, b, s in zip(start, limit, strides, strict=True)]
        offset = x.offset + sum(a * st for a, st in zip(start, x.strides, strict=True))
        return x.view(shape, offset, [st * s for st, s in zip(x.strides, strides, strict=True)])

    def reverse(self, x: Val, axes: Ints) -> Val:
        """Rows in the opposite order, one axis after another."""
        for axis in axes:
            n = x.aval.shape[axis]
            if n > 1:
                up = self.tape.node("arange", 0.0, float(n), 1.0)
                at = self.value(self.tape.node("scale_bias", up, -1.0, float(n - 1)), (n,), dtypes.int32, n)
                x = self.take(x, at, axis, "clip", 0)
        return x

    def concatenate(self, xs: Sequence[Val], axis: int) -> Val:
        shape, dtype = xs[0].aval.shape, xs[0].dtype
        before = math.prod(shape[:axis])
        small = dtype == dtypes.int32 and all(x.bound is not None for x in xs)
        change = self.tape.integers if dtype == dtypes.int32 and not small else self.tape.floats
        tensors = []
        for x in xs:
            x = change(x)
            tensors.append(self.tape.shaped(x.tensor, x.aval.size // before, before))
        joined = tensors[0]
        for t in tensors[1:]:
            joined = self.tape.node("concat", joined, t, 0)
        total = sum(x.aval.shape[axis] for x in xs)
        bound = max(x.bound or 0 for x in xs) if small else None
        flat = self.tape.shaped(joined, before * (self.tape.lib.ggml_nelements(joined) // before))
        return self.value(flat, (*shape[:axis], total, *shape[axis + 1 :]), dtype, bound)

    def pad(self, x: Val, value: Val, low: Ints, high: Ints, interior: Ints) -> Val:
        """Cut, then put between blocks of the value, axis by axis."""
        for axis in range(x.aval.ndim):
            x = self._pad_axis(x, value, axis, low[axis], high[axis], interior[axis])
        return x

    def _pad_axis(self, x: Val, value: Val, axis: int, low: int, high: int, gap: int) -> Val:
        if gap and x.aval.shape[axis] > 1:
            n, shape = x.aval.shape[axis], x.aval.shape
            apart = x.view((*shape[: axis + 1], 1, *shape[axis + 1 :]), x.offset,
                           (*x.strides[: axis + 1], 0, *x.strides[axis + 1 :]))  # fmt: skip
            apart = self._block(apart, value, axis + 1, 0, gap)
            joined = self.reshape(apart, (*shape[:axis], n * (gap + 1), *shape[axis + 1 :]))
            x = self._cut(joined, axis, 0, n * (gap + 1) - gap)
        n = x.aval.shape[axis]
        if low < 0 or high < 0:
            x = self._cut(x, axis, max(0, -low), n - max(0, -high))
        if not x.aval.size:
            raise Unsupported("a pad that leaves nothing")
        return self._block(x, value, axis, max(0, low), max(0, high))

    def _cut(self, x: Val, axis: int, start: int, limit: int) -> Val:
        starts, limits = [0] * x.aval.ndim, list(x.aval.shape)
        starts[axis], limits[axis] = start, max(start, limit)
        return self.slice(x, tuple(starts), tuple(limits), (1,) * x.aval.ndim)

    def _block(self, x: Val, value: Val, axis: int, low: int, high: int) -> Val:
        parts = [x]
        for n, at in ((low, 0), (high, len(parts))):
            if n:
                shape = (*x.aval.shape[:axis], n, *x.aval.shape[axis + 1 :])
                block = self.broadcast(value, shape, ())
                parts = [block, *parts] if at == 0 else [*parts, block]
        return self.concatenate(parts, axis) if len(parts) > 1 else x

    # -- reductions ----------------------------------------------------------------------------------------------
    def reduce(self, op: str, x: Val, axes: Ints) -> Val:
        shape, dtype = x.aval.shape, x.dtype
        kept = [d for d in range(len(shape)) if d not in axes]
        aval = Aval([shape[d] for d in kept], dtypes.int32 if op in ("argmax", "argmin") else dtype)
        if dtype == dtypes.bool_:
            op = {"max": "any", "min": "all", "sum": "any", "prod": "all"}.get(op, op)
        verbs: dict[str, Callable[[Val, int], Val]] = {
            "sum": self._sum, "max": self._max, "min": self._min, "any": self._any, "all": self._all,
            "argmax": self._argmax, "argmin": self._argmin,
        }  # fmt: skip
        if op not in verbs or dtype == dtypes.int32:
            raise Unsupported(f"reduce {op} of {dtype}")
        size = math.prod([shape[d] for d in axes])
        rows = self.tape.dense(x.transpose((*kept, *axes)))
        out = verbs[op](self.reshape(rows, (x.aval.size // size, size)), size)
        return self.value(self.tape.shaped(out.tensor, aval.size), aval.shape, aval.dtype, out.bound)

    def _sum_rows(self, t: Any, n: int) -> Any:
        """The sums of rows of n; long ones in two stages, for one workgroup sums a row."""
        total = self.tape.lib.ggml_nelements(t)
        piece = next((p for p in range(1024, 255, -1) if n % p == 0), 0) if n > LONGEST else 0
        if piece:
            t, n = self.tape.node("sum_rows", self.tape.shaped(t, piece, total // piece)), n // piece
            total //= piece
        return self.tape.shaped(self.tape.node("sum_rows", self.tape.shaped(t, n, total // n)), total // n)

    def _sum(self, x: Val, n: int) -> Val:
        return self.value(self._sum_rows(x.tensor, n), x.aval.shape[:1], x.dtype)

    def _any(self, x: Val, n: int) -> Val:
        return self.value(self.tape.unary("STEP", self._sum_rows(x.tensor, n)), x.aval.shape[:1], x.dtype)

    def _all(self, x: Val, n: int) -> Val:
        g, (r,) = self.compute(x.aval, x)
        missing = self._any(self.value(g.op_not(r).tensor, x.aval.shape, x.dtype), n)
        return self.value(g.affine(missing.tensor, -1.0, 1.0), x.aval.shape[:1], x.dtype)

    def _max(self, x: Val, n: int) -> Val:
        """A pool over each row, which starts at the lowest finite number and passes over NaN: both are mended."""
        tape = self.tape
        g, (r,) = self.compute(x.aval, x)
        rows = x.aval.size // n
        top = self._top(x.tensor, n, rows)
        over = tape.unary("STEP", g.affine(r.tensor, 0.5, LARGEST))
        some = tape.unary("STEP", self._sum_rows(over, n))
        top = tape.node("add", top, tape.node("log", some))
        odd = tape.unary("STEP", self._sum_rows(g.affine(g.ordered(r), -1.0, 1.0), n))
        ordered = g.affine(odd, -1.0, 1.0)
        h = VulkanProgram(tape, rows)
        return self.value(h.with_nan(top, ordered), (rows,), x.dtype)

    def _top(self, t: Any, n: int, rows: int) -> Any:
        """The largest finite number of each row of n."""
        piece = next((p for p in range(64, 15, -1) if n % p == 0), 0) if n > 1024 else 0
        if piece:
            return self._top(self._top(t, piece, rows * (n // piece)), n // piece, rows)
        pooled = self.tape.node("pool_1d", self.tape.shaped(t, n, rows), self.tape.lib.GGML_OP_POOL_MAX, n, n, 0)
        return self.tape.shaped(pooled, rows)

    def _min(self, x: Val, n: int) -> Val:
        turned = self.value(self.tape.unary("NEG", x.tensor), x.aval.shape, x.dtype)
        out = self._max(turned, n)
        return self.value(self.tape.unary("NEG", out.tensor), out.aval.shape, x.dtype)

    def _argmax(self, x: Val, n: int) -> Val:
        """The first place of NaN if there is one, else of the largest number: the smallest index of a mask."""
        if n >= EXACT or x.dtype != dtypes.float32:
            raise Unsupported("argmax")
        tape, rows = self.tape, x.aval.size // n
        top = self._max(x, n)
        g, (a,) = self.compute(x.aval, x)
        spread = tape.dense(self.broadcast(top, (rows, n), (0,)))
        b = g.load(spread)
        equal = g.op_eq(a, b)
        both_nan = g.op_and(g.op_isnan(a), g.op_isnan(b))
        places = g.load(self.broadcast(self.iota(Aval((n,), dtypes.float32), 0), (rows, n), (1,)))
        score = tape.node("mul", g.op_or(equal, both_nan).tensor, g.affine(places.tensor, -1.0, float(n)))
        best = self._top(score, n, rows)
        return self.value(VulkanProgram(tape, rows).affine(best, -1.0, float(n)), (rows,), dtypes.int32, n)

    def _argmin(self, x: Val, n: int) -> Val:
        return self._argmax(self.value(self.tape.unary("NEG", x.tensor), x.aval.shape, x.dtype), n)

    # -- products ------------------------------------------------------------------------------------------------
    def dot(
        self, x: Val, y: Val, lc: Ints, rc: Ints, lb: Ints = (), rb: Ints = (), precision: str | None = None
    ) -> Val:
        if x.dtype != dtypes.float32:
            raise Unsupported(f"dot of {x.dtype}")
        free = [d for d in range(x.aval.ndim) if d not in lc and d not in lb]
        other = [d for d in range(y.aval.ndim) if d not in rc and d not in rb]
        batch = [x.aval.shape[d] for d in lb]
        ms, ns = [x.aval.shape[d] for d in free], [y.aval.shape[d] for d in other]
        b, m, n, k = (math.prod(v) for v in (batch, ms, ns, [x.aval.shape[d] for d in lc]))
        if b > BATCH:
            raise Unsupported("a product of very many matrices")
        left = self.tape.dense(x.transpose((*lb, *free, *lc))).tensor
        right = self.tape.dense(y.transpose((*rb, *other, *rc))).tensor
        t = self.tape.node("mul_mat", self.tape.shaped(right, k, n, b), self.tape.shaped(left, k, m, b))
        return self.value(self.tape.shaped(t, b * m * n), (*batch, *ms, *ns), x.dtype)

    def windows(
        self, x: Val, window: Ints, strides: Ints, padding: Sequence[Ints], base: Ints, dilation: Ints, fill: Any
    ) -> Val:
        """A view of x, padded, with axes (positions, window elements)."""
        low, high = tuple([p[0] for p in padding]), tuple([p[1] for p in padding])
        if any(low) or any(high) or any(v != 1 for v in base):
            x = self.pad(x, self.full(fill, Aval((), x.dtype)), low, high, tuple([v - 1 for v in base]))
        spans = [(k - 1) * d + 1 for k, d in zip(window, dilation, strict=True)]
        counts = [max(0, (n - k) // s + 1) for n, k, s in zip(x.aval.shape, spans, strides, strict=True)]
        outer = [s * t for s, t in zip(x.strides, strides, strict=True)]
        inner = [s * t for s, t in zip(x.strides, dilation, strict=True)]
        return x.view((*counts, *window), x.offset, (*outer, *inner))

    def reduce_window(self, op: str, x: Val, p: Any) -> Val:
        if x.dtype != dtypes.float32:
            raise Unsupported(f"windows of {x.dtype}")
        fill = {"sum": 0.0, "max": -math.inf, "min": math.inf}[op]
        view = self.windows(x, p.window, p.strides, p.padding, p.base_dilation, p.window_dilation, fill)
        return self.reduce(op, view, tuple(range(x.aval.ndim, 2 * x.aval.ndim)))

    def conv(self, x: Val, kernel: Val, p: Any) -> Val:
        """Cross-correlation as a product of unfolded windows with the kernel, for each block of channels."""
        (*window, ci, o), d = kernel.aval.shape, kernel.aval.ndim - 2
        blocks = p.groups * p.batch_groups
        view = self.windows(
            x, (1, *window, 1), (1, *p.strides, 1), ((0, 0), *p.padding, (0, 0)),
            (1, *p.lhs_dilation, 1), (1, *p.rhs_dilation, 1), 0,
        )  # fmt: skip
        n, spatial = x.aval.shape[0] // p.batch_groups, view.aval.shape[1 : d + 1]
        if not view.aval.size:
            raise Unsupported("a convolution without positions")
        shape, steps = view.aval.shape, view.strides
        # [N, *spatial, C, 1, *window, 1] to [batch block, group, N, *spatial, *window, channel of a block]
        dims = (p.batch_groups, p.groups, n, *spatial, *window, ci)
        moved = view.view(
            dims, view.offset,
            (steps[0] * n, steps[d + 1] * ci, steps[0], *steps[1 : d + 1], *steps[d + 3 : 2 * d + 3], steps[d + 1]),
        )  # fmt: skip
        assert math.prod(shape) == math.prod(dims)
        rows = self.reshape(self.tape.dense(moved), (blocks, n * math.prod(spatial), math.prod(window) * ci))
        weights = self.reshape(kernel, (math.prod(window) * ci, blocks, o // blocks))
        out = self.dot(rows, weights, (2,), (0,), (0,), (1,))  # [blocks, positions, features]
        return self.reshape(self.transpose(out, (1, 0, 2)), (n, *spatial, o))

    # -- indexing ------------------------------------------------------------------------------------------------
    def take(self, x: Val, index: Val, axis: int, mode: str, fill: Any) -> Val:
        """Rows of a table, with one more row for what is out of range."""
        shape, n = x.aval.shape, x.aval.shape[axis]
        perm = (axis, *[d for d in range(x.aval.ndim) if d != axis])
        rest = [shape[d] for d in perm[1:]]
        table = self.reshape(self.tape.dense(x.transpose(perm)), (1, n, math.prod(rest)))
        at = self.reshape(self.tape.dense(index), (1, index.aval.size))
        rows = self._rows(table, at, mode, fill)
        inner = index.aval.ndim
        out = self.reshape(rows, (*index.aval.shape, *rest))
        return out.transpose((*range(inner, inner + axis), *range(inner), *range(inner + axis, out.aval.ndim)))

    def take_along(self, x: Val, index: Val, axis: int, mode: str, fill: Any) -> Val:
        """Elements of each row, each a row of one."""
        n, last = x.aval.ndim, x.aval.ndim - 1
        perm = (*[d for d in range(n) if d != axis], axis)
        moved, at = x.transpose(perm), index.transpose(perm)
        lead = math.prod(moved.aval.shape[:last])
        table = self.reshape(self.tape.dense(moved), (lead, moved.aval.shape[last], 1))
        rows = self._rows(table, self.reshape(self.tape.dense(at), (lead, at.aval.shape[last])), mode, fill)
        return self.reshape(rows, at.aval.shape).transpose((*range(axis), last, *range(axis, last)))

    def _rows(self, table: Val, index: Val, mode: str, fill: Any) -> Val:
        """For each batch, rows of table [batch, n, width] at index [batch, count]."""
        if (table.dtype == dtypes.int32 and table.bound is None) or mode not in ("fill", "clip"):
            raise Unsupported("take of integers")
        tape, (b, n, width), count = self.tape, table.aval.shape, index.aval.shape[1]
        if n >= EXACT // 2 or b > BATCH or count > BATCH * 4:
            raise Unsupported("a large take")
        at = tape.floats(index).tensor
        if mode == "fill":
            extra = self.broadcast(self.full(fill, Aval((), table.dtype)), (b, 1, width), ())
            table = self.concatenate([table, extra], 1)
            out = tape.unary("STEP", tape.node("scale_bias", at, -1.0, -0.5))  # below 0
            # Negative to n: clamp first, so that a huge index times 0 stays finite, then add.
            at = tape.node("clamp", at, -1.0, float(n))
            at = tape.node("add", at, tape.node("scale_bias", out, float(n + 1), 0.0))
        else:
            at = tape.node("clamp", at, 0.0, float(n - 1))
        rows = tape.shaped(tape.floats(table).tensor, width, table.aval.shape[1], b)
        places = tape.shaped(tape.node("cast", at, tape.lib.GGML_TYPE_I32), count, b)
        got = tape.node("get_rows", rows, places)
        bound = None if table.bound is None else max(table.bound, abs(int(fill)) if mode == "fill" else 0)
        return self.value(tape.shaped(got, b * count * width), (b, count, width), table.dtype, bound)

    def scatter(self, op: str, x: Val, index: Val, updates: Val) -> Val:
        """x plus the rows of ``updates`` at ``index``; what is out of range goes nowhere."""
        if op != "add" or x.dtype != dtypes.float32:
            raise Unsupported(f"scatter {op}")
        n, width = x.aval.shape[0], x.aval.size // x.aval.shape[0]
        rows = self.reshape(self.tape.dense(updates), (index.aval.size, width))
        places = self.tape.integers(self.reshape(index, (index.aval.size,)))
        tape = self.tape
        like = tape.shaped(tape.dense(x).tensor, width, n)
        added = tape.node("get_rows_back", tape.shaped(rows.tensor, width, index.aval.size), places.tensor, like)
        return self.value(tape.shaped(tape.node("add", like, added), n * width), x.aval.shape, x.dtype)
