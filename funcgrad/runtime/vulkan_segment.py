"""Which equations a Vulkan device can do, and the parts of a graph between the CPU's: one ggml graph each."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from funcgrad import dtypes
from funcgrad.ir import Aval, Equation, Literal, Var
from funcgrad.runtime import ggml
from funcgrad.runtime.views import row_major
from funcgrad.runtime.vulkan_emit import VulkanEmitter
from funcgrad.runtime.vulkan_memory import HELD, Memory, VulkanArray
from funcgrad.runtime.vulkan_tape import Tape, Unsupported, Val

__all__ = ["Segment", "Verdict", "Verdicts"]

MOST_NODES = 600  # ggml tensors that one equation may take
REMEMBERED = 8192


class Verdict(NamedTuple):
    """Whether the device can do an equation: how many ggml tensors it takes, bounds of int32 results, or why not."""

    tensors: int
    bounds: tuple[int | None, ...]
    reason: str


class Verdicts:
    """Finds out by lowering an equation on a tape that is thrown away, once for each primitive and types."""

    def __init__(self, memory: Memory):
        self.memory = memory
        self._known: OrderedDict[Any, Verdict] = OrderedDict()

    def of(self, eqn: Equation, bounds: dict[Var, int | None]) -> Verdict:
        """The verdict on an equation, given the bounds known of its operands."""
        operands = [a.key() if isinstance(a, Literal) else (a.aval, bounds.get(a)) for a in eqn.inputs]
        key = (type(eqn.prim), eqn.prim, tuple(operands), tuple([v.aval for v in eqn.outputs]))
        found = self._known.get(key)
        if found is None:
            found = self._known[key] = self._try(eqn, bounds)
            if len(self._known) > REMEMBERED:
                self._known.popitem(last=False)
        return found

    def _try(self, eqn: Equation, bounds: dict[Var, int | None]) -> Verdict:
        none = (None,) * len(eqn.outputs)
        for a in (*eqn.inputs, *eqn.outputs):
            if a.aval.dtype not in HELD:
                return Verdict(0, none, f"dtype {dtypes.NAMES[a.aval.dtype]}")
        tape = Tape(self.memory, MOST_NODES, dry=True)
        try:
            env = {a: operand(tape, a.aval, bounds.get(a)) for a in eqn.inputs if isinstance(a, Var)}
            VulkanEmitter(tape).equation(eqn, env)
            results = [env[v] for v in eqn.outputs]
            for r in results:
                result(tape, r)
        except Unsupported as why:
            return Verdict(0, none, str(why))
        return Verdict(tape.count + 16, tuple([r.bound for r in results]), "")


def operand(tape: Tape, aval: Aval, bound: int | None) -> Val:
    """A value that comes from outside."""
    t = tape.leaf(max(1, aval.size), aval.dtype == dtypes.int32)
    return Val(aval, t, 0, row_major(aval.shape, 1), None, bound if aval.dtype == dtypes.int32 else None)


def result(tape: Tape, x: Val) -> Any:
    """The tensor of a value that goes outside."""
    return (tape.integers(x) if x.dtype == dtypes.int32 else tape.floats(x)).tensor


class Segment:
    """Equations that the device does in one go."""

    def __init__(
        self,
        memory: Memory,
        eqns: Sequence[Equation],
        inputs: Sequence[Var],
        outputs: Sequence[Var],
        bounds: dict[Var, int | None],
        count: int,
    ):
        self.memory, self.inputs, self.outputs, self.eqns = memory, list(inputs), list(outputs), eqns
        self.tape = Tape(memory, count + 8 * (len(self.inputs) + len(self.outputs)) + 64)
        env = {v: operand(self.tape, v.aval, bounds.get(v)) for v in self.inputs}
        self.leaves = [env[v].tensor for v in self.inputs]
        emitter = VulkanEmitter(self.tape)
        for eqn in eqns:
            emitter.equation(eqn, env)
        self.results = [self._root(result(self.tape, env[v])) for v in self.outputs]
        self.n_nodes = sum([self._operation(t) not in ("NONE", "RESHAPE", "VIEW") for t in self.tape.tensors])
        self._constants: list[Any] = []
        self._plan: Any = None
        self._views: dict[Any, list[Any]] = {}
        for t in self.tape.tensors:
            if t.view_src != self.tape.ffi.NULL:
                self._views.setdefault(self._root(t), []).append(t)

    def _operation(self, t: Any) -> str:
        return str(self.tape.ffi.string(self.tape.lib.ggml_op_name(t.op)).decode())

    def _root(self, t: Any) -> Any:
        return t if t.view_src == self.tape.ffi.NULL else t.view_src

    def _place(self, t: Any, piece: Any) -> None:
        data = self.tape.ffi.cast("void *", piece.address)
        t.buffer, t.data = piece.buffer, data
        for v in self._views.get(t, ()):
            v.buffer = piece.buffer
            v.data = self.tape.ffi.cast("void *", piece.address + v.view_offs)

    def run(self, arrays: Sequence[VulkanArray]) -> list[VulkanArray]:
        """Run on arrays; return new ones."""
        memory = self.memory
        pieces = [a.on_device() for a in arrays]
        fixed = dict(zip(self.leaves, pieces, strict=True))
        with memory.lock:
            if self._plan is None:
                self._constants = [(t, memory.upload(host)) for t, host in self.tape.constants]
            fixed.update(self._constants)
            made: dict[Any, Any] = {}
            for root, v in zip(self.results, self.outputs, strict=True):
                if root not in fixed and root not in made:
                    made[root] = memory.take(4 * v.aval.size)
            for t, piece in (*fixed.items(), *made.items()):
                self._place(t, piece)
            self._compute()
        return [
            VulkanArray(memory, v.aval, piece=fixed.get(root) or made[root])
            for root, v in zip(self.results, self.outputs, strict=True)
        ]

    def _compute(self) -> None:
        memory, lib, ffi = self.memory, self.tape.lib, self.tape.ffi
        err = memory.library.new_message()
        if self._plan is None:
            plan = lib.fg_backend_plan(memory.backend, self.tape.graph, err, ggml.MESSAGE)
            if plan == ffi.NULL:
                memory.trim()
                plan = lib.fg_backend_plan(memory.backend, self.tape.graph, err, ggml.MESSAGE)
            memory.check(plan == ffi.NULL, err)
            self._plan = plan if memory.forgetful else ffi.gc(plan, lib.ggml_gallocr_free)
        memory.check(lib.fg_backend_run(memory.backend, self.tape.graph, err, ggml.MESSAGE), err)

    @property
    def workspace(self) -> int:
        """Bytes of device memory for values on the way."""
        return 0 if self._plan is None else int(self.tape.lib.ggml_gallocr_get_buffer_size(self._plan, 0))


def host_array(memory: Memory, aval: Aval, value: Any) -> VulkanArray:
    """An array on the host."""
    return VulkanArray(memory, aval, host=np.asarray(value))
