"""What the Vulkan emitter writes to: one ggml graph, its constants, and values as strided views of its tensors."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from funcgrad import dtypes
from funcgrad.ir import Aval
from funcgrad.runtime.program import Const
from funcgrad.runtime.views import coalesce, is_row_major, reshape_strides, row_major
from funcgrad.runtime.vulkan_memory import HELD, Memory

__all__ = ["EXACT", "Tape", "Unsupported", "Val"]

Ints = tuple[int, ...]
EXACT = 1 << 24  # integers up to here are exact in float32
GROUPS = 4  # dimensions that ggml has


class Unsupported(Exception):
    """The device cannot do this exactly; the CPU does it."""


class Val:
    """A value: elements of a tensor at an offset and strides (both in elements), or one constant everywhere.

    bool is float32, 0 or 1.  int32 is int32 as it is in memory, or float32 where it is known not to exceed ``bound``.
    """

    __slots__ = ("aval", "bound", "const", "dense", "offset", "strides", "tensor")

    def __init__(
        self, aval: Aval, tensor: Any, offset: int, strides: Ints, const: Const | None = None, bound: int | None = None
    ):
        self.aval, self.tensor, self.offset, self.strides = aval, tensor, offset, strides
        self.const, self.bound = const, bound
        self.dense: Val | None = None

    @property
    def dtype(self) -> Any:
        """The dtype."""
        return self.aval.dtype

    @property
    def contiguous(self) -> bool:
        """Whether the elements are the tensor's, in its order."""
        return self.const is None and self.offset == 0 and is_row_major(self.aval.shape, self.strides, 1)

    def view(self, shape: Sequence[int], offset: int, strides: Sequence[int]) -> Val:
        """The same tensor seen otherwise."""
        return Val(Aval(shape, self.dtype), self.tensor, offset, tuple(strides), self.const, self.bound)

    def reshape(self, shape: Ints) -> Val | None:
        """The elements under another shape, or None when that takes a copy."""
        strides: Ints | None
        if self.const is not None or not self.aval.size:
            strides = (0,) * len(shape)
        elif self.contiguous:
            strides = row_major(shape, 1)
        else:
            strides = reshape_strides(self.aval.shape, self.strides, shape)
        return None if strides is None else self.view(shape, self.offset, strides)

    def transpose(self, perm: Ints) -> Val:
        """Axis i of the result is axis perm[i]."""
        return self.view([self.aval.shape[i] for i in perm], self.offset, [self.strides[i] for i in perm])


class Tape:
    """One ggml graph while it is written.

    With ``dry`` nothing is kept: each node is only checked, and more than ``capacity`` of them are refused.
    """

    def __init__(self, memory: Memory, capacity: int, dry: bool = False):
        self.memory, self.capacity, self.dry = memory, capacity, dry
        self.ffi, self.lib = memory.library.ffi, memory.library.lib
        lib = self.lib
        params = self.ffi.new("struct ggml_init_params *")
        params.mem_size = (capacity + 16) * lib.ggml_tensor_overhead() + lib.ggml_graph_overhead_custom(capacity, False)
        params.mem_buffer, params.no_alloc = self.ffi.NULL, True
        self.context = self.ffi.gc(lib.ggml_init(params[0]), lib.ggml_free)
        self.graph = lib.ggml_new_graph_custom(self.context, capacity, False)
        self.tensors: list[Any] = []
        self.constants: list[tuple[Any, np.ndarray[Any, Any]]] = []
        self.count = 0
        self._scalars: dict[int, Any] = {}

    # -- tensors -------------------------------------------------------------------------------------------------
    def _keep(self, t: Any) -> Any:
        if t == self.ffi.NULL:
            raise Unsupported("ggml made no tensor")
        self.tensors.append(t)
        return t

    def _room(self, n: int = 1) -> None:
        self.count += n
        if self.count > self.capacity:
            raise Unsupported(f"more than {self.capacity} nodes")

    def leaf(self, n: int, integer: bool = False) -> Any:
        """A tensor of n elements whose memory is given from outside."""
        self._room()
        return self._keep(
            self.lib.ggml_new_tensor_1d(self.context, self.lib.GGML_TYPE_I32 if integer else self.lib.GGML_TYPE_F32, n)
        )

    def node(self, name: str, *xs: Any) -> Any:
        """Append the node that ggml's function ``name`` makes; Unsupported when the device refuses it."""
        self._room(2)
        t = self._keep(getattr(self.lib, "ggml_" + name)(self.context, *xs))
        if self.dry:
            if not self.lib.ggml_backend_supports_op(self.memory.backend, t):
                raise Unsupported(name)
        else:
            self.lib.ggml_build_forward_expand(self.graph, t)
        return t

    def unary(self, name: str, x: Any) -> Any:
        """One of ggml's unary functions."""
        return self.node("unary", x, getattr(self.lib, "GGML_UNARY_OP_" + name))

    def view(self, t: Any, ne: Sequence[int], nb: Sequence[int], offset: int) -> Any:
        """Elements of a tensor at byte strides, also such that ggml's own views refuse; fastest axis first."""
        self._room()
        v = self._keep(self.lib.ggml_view_1d(self.context, t, 1, offset))
        ne, nb = list(ne), list(nb)
        while len(ne) < GROUPS:
            nb.append(nb[-1] * ne[-1] if ne else 4)
            ne.append(1)
        for i in range(GROUPS):
            v.ne[i], v.nb[i] = ne[i], nb[i]
        return v

    def shaped(self, t: Any, *ne: int) -> Any:
        """A contiguous tensor under other sizes, fastest axis first."""
        self._room()
        return self._keep(self.lib.ggml_reshape_4d(self.context, t, *ne, *(1,) * (GROUPS - len(ne))))

    def constant(self, host: np.ndarray[Any, Any]) -> Any:
        """A tensor of fixed four-byte values."""
        t = self.leaf(host.size, host.dtype == np.int32)
        self.constants.append((t, np.ascontiguousarray(host).reshape(-1)))
        return t

    def scalar(self, value: float) -> Any:
        """One float32."""
        host = np.array([value], np.float32)
        key = int(host.view(np.int32)[0])
        if key not in self._scalars:
            self._scalars[key] = self.constant(host)
        return self._scalars[key]

    # -- values --------------------------------------------------------------------------------------------------
    def full(self, value: Any, aval: Aval) -> Val:
        """The same value everywhere."""
        const = Const(value, aval.dtype)
        bound = None
        if aval.dtype == dtypes.int32:
            bound = abs(int(const.value)) if abs(int(const.value)) <= EXACT else None
        return Val(aval, None, 0, (0,) * aval.ndim, const, bound)

    def number(self, const: Const) -> float:
        """A constant as the device's float32."""
        if const.dtype == dtypes.int32 and abs(int(const.value)) > EXACT:
            raise Unsupported("an integer beyond 2^24")
        if const.dtype not in HELD:
            raise Unsupported(f"dtype {const.dtype}")
        return float(const.value)

    def repeat(self, t: Any, n: int) -> Any:
        """One element n times."""
        return t if n == 1 else self.node("repeat_4d", t, n, 1, 1, 1)

    def dense(self, x: Val) -> Val:
        """x itself when it is a whole tensor in order, else a copy that is."""
        if x.contiguous and self.lib.ggml_nelements(x.tensor) == x.aval.size:
            return x
        if x.dense is None:
            if x.aval.dtype not in HELD:
                raise Unsupported(f"dtype {x.aval.dtype}")
            if x.const is not None:
                t = self.repeat(self.scalar(self.number(x.const)), x.aval.size)
            else:
                t = self._copied(x)
            x.dense = Val(x.aval, t, 0, row_major(x.aval.shape, 1), None, x.bound)
        return x.dense

    def _copied(self, x: Val) -> Any:
        dims, (steps,) = coalesce(x.aval.shape, (x.strides,))
        if min(steps, default=0) < 0:
            raise Unsupported("a negative stride")
        if len(dims) <= GROUPS:
            return self._flat(self.node("cont", self._strided(x.tensor, dims, steps, x.offset)))
        out = self.leaf(x.aval.size, x.tensor.type == self.lib.GGML_TYPE_I32)
        self._copy_pieces(x.tensor, dims, steps, x.offset, out, 0)
        return out

    def _strided(self, t: Any, dims: Sequence[int], steps: Sequence[int], offset: int) -> Any:
        return self.view(t, list(reversed(dims)) or [1], [4 * s for s in reversed(steps)] or [4], 4 * offset)

    def _copy_pieces(self, t: Any, dims: list[int], steps: list[int], offset: int, out: Any, at: int) -> None:
        """Copy along more axes than ggml has: one copy for each index of the outermost ones."""
        size = math.prod(dims[1:])
        if dims[0] > 64:
            raise Unsupported("a copy in many pieces")
        for i in range(dims[0]):
            start = offset + i * steps[0]
            if len(dims) > GROUPS + 1:
                self._copy_pieces(t, dims[1:], steps[1:], start, out, at + i * size)
            else:
                to = self._strided(out, dims[1:], row_major(tuple(dims[1:]), 1), at + i * size)
                self.node("cpy", self._strided(t, dims[1:], steps[1:], start), to)

    def _flat(self, t: Any) -> Any:
        return self.shaped(t, self.lib.ggml_nelements(t))

    def floats(self, x: Val) -> Val:
        """x dense, as float32: of int32, rounded where it is beyond 2^24."""
        x = self.dense(x)
        if x.tensor.type == self.lib.GGML_TYPE_I32:
            t = self.node("cast", x.tensor, self.lib.GGML_TYPE_F32)
            return Val(x.aval, t, 0, x.strides, None, x.bound)
        return x

    def integers(self, x: Val) -> Val:
        """x of int32, dense, as it lies in memory."""
        x = self.dense(x)
        if x.tensor.type != self.lib.GGML_TYPE_I32:
            return Val(x.aval, self.node("cast", x.tensor, self.lib.GGML_TYPE_I32), 0, x.strides, None, x.bound)
        return x
