"""Executables: a plan becomes one program of the extension, and every call of it is one call into C.

A run binds the arguments' addresses, gets its results' memory and its workspace from the extension's allocator, and
returns new buffers; a donated argument's buffer comes back as the result.
"""

from __future__ import annotations

import threading
import weakref
from array import array
from collections.abc import Callable, Sequence
from itertools import accumulate
from operator import itemgetter
from typing import Any, NamedTuple

import numpy as np

from funcgrad.errors import DeviceError, Site, message
from funcgrad.ir import Aval
from funcgrad.runtime import ggml, memory
from funcgrad.runtime.buffers import Buffer, check_room, copy_buffer, free_with, host_copy, out_of_memory
from funcgrad.runtime.emit_control import HostCall
from funcgrad.runtime.plan import Buf, Node, Plan, Storage
from funcgrad.runtime.program import CODES

__all__ = ["Executable", "NodeTime"]

FIXED = -2  # a tensor whose address is known when the program is made


class _Builder:
    """Turns plans into programs; collects what must live as long as they do."""

    def __init__(self, fixed: Any):
        self.library = ggml.load()
        self.fixed = fixed  # maps a captured value to a Buffer
        self.keep: list[Any] = []
        self.functions: list[int] = []
        self.programs: list[tuple[Any, Plan]] = []

    def program(self, plan: Plan) -> Any:
        """One program; its parts first."""
        tensors: dict[
            Any, int
        ] = {}  # by buffer; arguments and results by their memory, which several buffers may share
        parts: list[Any] = []
        nodes: list[int] = []
        count = 0
        for node in plan.nodes:
            if not node.elided:
                count += 1
                self._node(node, tensors, parts, nodes)
        words = [len(plan.inputs), len(plan.outputs), plan.temp_bytes]
        for j, b in enumerate(plan.outputs):
            words += (b.nbytes, plan.alias.get(j, -1))
        words += self._events(plan)
        words.append(len(tensors))
        for b in tensors:
            words += self._tensor(b)
        words.append(count)
        made = self._make(words + nodes, parts)
        self.programs.append((made, plan))
        return made

    @staticmethod
    def _events(plan: Plan) -> list[int]:
        """What happens to memory at nodes, which are numbered among those that run."""
        words = [len(plan.events)]
        if plan.events:
            number = list(accumulate([not node.elided for node in plan.nodes], initial=0))
            for e in plan.events:
                words += (number[e.node], e.what, e.number, e.nbytes)
        return words

    def _node(self, node: Node, tensors: dict[Any, int], parts: list[Any], words: list[int]) -> None:
        used = []
        for p in node.parts:
            if isinstance(p, HostCall):
                node.words[0] = self._function(p)
            else:
                used.append(len(parts))
                parts.append(self.program(p))
        operands = [tensors.setdefault(_tensor_key(b), len(tensors)) for b in node.operands]
        out = operands[node.writes[0]]
        words += (node.kind, len(operands), *operands, out, len(used), *used, len(node.words))
        words += node.words

    def _tensor(self, key: Any) -> tuple[int, int, int, int]:
        b: Buf = key.occupant if isinstance(key, Storage) else key  # type: ignore[assignment]
        dtype = b.aval.dtype
        place, offset = -1, 0
        if b.kind == "constant":
            buffer = self.fixed(b.value)
            self.keep.append(buffer)
            place, offset = FIXED, buffer.ptr
        elif b.storage is not None:
            place, offset = b.storage.bound, max(b.storage.offset, 0)
        return CODES[dtype], b.nbytes // dtype.itemsize, place, offset

    def _function(self, call: HostCall) -> int:
        ffi = self.library.ffi
        n_in = len(call.inputs)

        def run(pointers: Any) -> None:
            table = ffi.cast("intptr_t *", pointers)
            xs = [host_copy(table[i], a) for i, a in enumerate(call.inputs)]
            for k, host in enumerate(call.results(xs)):
                if host.nbytes:
                    data = np.ascontiguousarray(host).view(np.uint8)
                    ffi.memmove(ffi.cast("void *", table[n_in + k]), data, host.nbytes)

        number = ggml.add_host_function(run)
        self.functions.append(number)
        return number

    def _make(self, words: list[int], parts: list[Any]) -> Any:
        ffi, lib = self.library.ffi, self.library.lib
        data = array("q", words)
        err = self.library.new_message()
        handles = ffi.new("fg_program *[]", parts) if parts else ffi.NULL
        made = lib.fg_program_new(ffi.from_buffer("int64_t[]", data), len(data), handles, len(parts), err, ggml.MESSAGE)
        if made == ffi.NULL:
            raise AssertionError(f"the extension refused a program: {self.library.text(err)}")
        return ffi.gc(made, lib.fg_program_free)


def _tensor_key(b: Buf) -> Any:
    st = b.storage
    return st if st is not None and st.bound >= 0 else b


def _forget(functions: Sequence[int]) -> None:
    for number in functions:
        ggml.remove_host_function(number)


def _picker(positions: Sequence[int]) -> Callable[[Sequence[Any]], Sequence[Any]]:
    """A function that takes the elements at these positions out of a sequence, fast."""
    if not positions:
        return lambda xs: ()
    first, last = positions[0], positions[-1]
    if list(positions) == list(range(first, last + 1)):
        return itemgetter(slice(first, last + 1))
    return itemgetter(*positions)


class NodeTime(NamedTuple):
    """One node in a profile: its kind, the type of its result, the line that asked for it, seconds for one run."""

    kind: str
    aval: Aval
    site: Site | None
    seconds: float


class Executable:
    """A graph ready to run on the CPU; ``plan`` has its memory, ``donated`` the arguments whose memory results take."""

    def __init__(self, plan: Plan, fixed: Any):
        builder = _Builder(fixed)
        library = builder.library
        ffi, lib = library.ffi, library.lib
        free_with(library)
        self.plan, self._library, self._keep = plan, library, builder.keep
        self._program, self._programs = builder.program(plan), builder.programs
        if builder.functions:
            weakref.finalize(self, _forget, builder.functions)
        n_in, n_out = len(plan.inputs), len(plan.outputs)
        self.donated = frozenset(plan.alias.values())
        self.donation = plan.donation
        self._n_in, self._n_out = n_in, n_out
        self._pointers = ffi.new("intptr_t[]", n_in + n_out + 1)
        self._bound = ffi.cast("void **", self._pointers)
        self._results = self._pointers + n_in
        self._sizes = [b.nbytes for b in plan.outputs]
        self._donated = sorted(self.donated)
        self._fresh = [j for j in range(n_out) if j not in plan.alias]
        rest = [i for i in range(n_in) if i not in self.donated]
        self._rest, self._of_rest = rest, _picker(rest)
        self._of_donated, self._sources = _picker(self._donated), _picker([plan.alias.get(j, 0) for j in range(n_out)])
        self._memory = plan.temp_bytes + sum([self._sizes[j] for j in self._fresh])
        self._known: tuple[Any, set[int]] | None = None
        self._bound_last: Any = None  # the donated addresses that stand in _pointers
        self._err = library.new_message()
        self._call, self._unpack = lib.fg_program_run, ffi.unpack
        self._lock, self._running = threading.Lock(), 0

    def run(self, buffers: Sequence[Buffer]) -> list[Buffer]:
        """Run once on the arguments' buffers; return the results' buffers.

        A second call at the same time waits.  DeviceError when there is not enough memory.
        """
        n = self._n_in
        addresses = [b.ptr for b in buffers]
        if len(addresses) != n:
            raise AssertionError(f"{n} arguments are required, got {len(addresses)}")
        known = None
        if self._donated:
            known = self._check(buffers, addresses)
            if known is None:
                buffers = self._protect(buffers, addresses)
        if self._running == threading.get_ident():
            raise DeviceError(message("jit", "a function cannot be called from its own callback"))
        if self._memory >= memory.LARGE:
            check_room(self._memory)
        with self._lock:
            self._running = threading.get_ident()
            try:
                if known is None or known is not self._bound_last:
                    self._bound_last = None
                    self._pointers[0:n] = addresses
                    self._bound_last = known
                else:
                    for i in self._rest:
                        self._pointers[i] = addresses[i]
                failed = self._call(self._program, self._bound, self._err, ggml.MESSAGE)
                if failed:
                    raise self._error(failed)
                results = self._unpack(self._results, self._n_out) if self._fresh else ()
            finally:
                self._running = 0
        if not self._donated:
            return list(map(Buffer, results, self._sizes))
        outs = list(self._sources(buffers))
        for j in self._fresh:
            outs[j] = Buffer(results[j], self._sizes[j])
        return outs

    def _check(self, buffers: Sequence[Buffer], addresses: list[int]) -> tuple[Any, set[int]] | None:
        """The donated addresses, when all may be written: nobody looks at them and none is given twice; else None.

        State that is updated in place has the same addresses call after call, and is found to be so by one comparison.
        """
        if any([b.guard is not None for b in self._of_donated(buffers)]):  # noqa: C419 (faster)
            return None
        given, known = self._of_donated(addresses), self._known
        if known is None or given != known[0]:
            known = (given, set(given))
            if len(known[1]) < len(given):
                return None
            self._known = known
        return known if known[1].isdisjoint(self._of_rest(addresses)) else None

    def _protect(self, buffers: Sequence[Buffer], addresses: list[int]) -> Sequence[Buffer]:
        """Replace donated buffers that somebody else looks at, or that are given twice, by copies."""
        for i in self._donated:
            b = buffers[i]
            if type(b.guard) is weakref.ref and b.guard() is None:
                b.guard = None
            if b.guard is not None or addresses.count(b.ptr) > 1:
                copy = copy_buffer(b, self._library)
                buffers = [*buffers[:i], copy, *buffers[i + 1 :]]
                addresses[i] = copy.ptr
        return buffers

    def _error(self, failed: int) -> BaseException:
        text = self._library.text(self._err)
        if failed == -2:
            return out_of_memory(int(text))
        raised = ggml.take_host_error()
        if raised is not None:
            return raised
        return DeviceError(message("cpu", "a run ended with an internal error", text))

    def profile(self, buffers: Sequence[Buffer], repeat: int = 10) -> list[NodeTime]:
        """Run ``repeat`` times (donated buffers are copied) and return each node's mean time, the longest first.

        The nodes of loops and branches are listed too, as "inner"; their time is part of the loop's.
        """
        ffi, lib = self._library.ffi, self._library.lib
        times = [ffi.new("int64_t[]", len(plan.nodes) + 1) for _, plan in self._programs]
        try:
            for (program, _), ns in zip(self._programs, times, strict=True):
                lib.fg_program_profile(program, ns)
            for _ in range(repeat):
                self.run([copy_buffer(b, self._library) if i in self.donated else b for i, b in enumerate(buffers)])
        finally:
            for program, _ in self._programs:
                lib.fg_program_profile(program, ffi.NULL)
        rows = []
        for (program, plan), ns in zip(self._programs, times, strict=True):
            where = "" if program is self._program else "inner "
            for n, t in zip([n for n in plan.nodes if not n.elided], ns, strict=False):
                aval = max([n.operands[w].aval for w in n.writes], key=lambda a: a.nbytes)
                rows.append(NodeTime(where + n.name, aval, n.site, t / repeat / 1e9))
        return sorted(rows, key=lambda row: -row.seconds)

    @property
    def n_nodes(self) -> int:
        """The number of nodes that a run computes, those in loops counted once."""
        return sum([not n.elided for n in self.plan.nodes])

    def as_text(self) -> str:
        """The graph that runs, one node a line: kernel, number, results and operands (``*``: an argument or a result
        of the whole, outside the workspace), the user's line."""
        ffi, lib = self._library.ffi, self._library.lib
        size = lib.fg_program_dump(self._program, ffi.NULL, 0) + 1
        text = ffi.new("char[]", size)
        lib.fg_program_dump(self._program, text, size)
        lines = str(ffi.string(text).decode()).splitlines()
        nodes = [n for n in self.plan.nodes if not n.elided]
        width = max([len(n.name) for n in nodes], default=0)
        rows = [f"{n.name:<{width}}  {line}  {n.site or ''}" for n, line in zip(nodes, lines, strict=True)]
        return "\n".join([row.rstrip() for row in rows])
