"""Executables of a Vulkan device: a program with its tables of addresses and its recorded commands."""

from __future__ import annotations

import threading
import weakref
from collections import Counter, OrderedDict
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import repeat
from typing import Any, NamedTuple

import numpy as np

from funcgrad import dtypes
from funcgrad.errors import DeviceError, message
from funcgrad.ir import Aval
from funcgrad.primitive import Primitive
from funcgrad.runtime import ggml
from funcgrad.runtime.execute import NodeTime
from funcgrad.runtime.plan import Plan
from funcgrad.runtime.spirv.lower import Lowered, lower
from funcgrad.runtime.vulkan.launches import Launches, Symbol
from funcgrad.runtime.vulkan.memory import Memory, MemoryFull, Slice, VulkanArray, read_together
from funcgrad.runtime.vulkan.program import Branch, Call, Carry, HostLoop, Program, WhileLoop

__all__ = ["Executable", "Fallback", "Pipelines"]

TABLES = range(4, 33)  # of addresses that one block of launches keeps, most of them where
RECORDED = 16384  # launches are not exceeded by all together
LATEST = 512  # kernels that are kept although no executable may hold them


Addresses = tuple[int, ...]


class Fallback(NamedTuple):
    """One operation that runs on the CPU: its name, its results, why, and where the user wrote it.

    ``nbytes`` cross the bus at every call, those of the iterations of a while loop counted once.  A callback is the
    user's wish, not the device's lack: ``wanted``.
    """

    primitive: str
    results: str
    reason: str
    site: Any
    nbytes: int
    wanted: bool


class Pipelines:
    """A device's kernels by their code: those that executables hold, and the latest ones."""

    def __init__(self, memory: Memory):
        self.memory = memory
        self._living: weakref.WeakValueDictionary[tuple[bytes, int], Any] = weakref.WeakValueDictionary()
        self._latest: OrderedDict[tuple[bytes, int], Any] = OrderedDict()  # for functions that are made again
        self._lock = threading.Lock()

    def lower(self, kind: int, words: list[int]) -> Lowered:
        """The launches of a node."""
        return lower(kind, words, self.memory.target)

    def make(self, codes: Sequence[bytes], subgroups: Sequence[int]) -> list[Any]:
        """The pipelines of kernels; those that are new are compiled side by side."""
        keys = list(zip(codes, subgroups, strict=True))
        with self._lock:
            made = {k: self._living.get(k) for k in keys}
        new = [k for k, found in made.items() if found is None]
        if len(new) > 1:
            with ThreadPoolExecutor() as pool:
                made.update(zip(new, pool.map(self._compile, new), strict=True))
        elif new:
            made[new[0]] = self._compile(new[0])
        with self._lock:
            for k, pipeline in made.items():
                self._living[k] = self._latest[k] = pipeline
                self._latest.move_to_end(k)
            while len(self._latest) > LATEST:
                self._latest.popitem(last=False)
        return [made[k] for k in keys]

    def __len__(self) -> int:
        return len(self._living)

    def _compile(self, key: tuple[bytes, int]) -> Any:
        library, memory = self.memory.library, self.memory
        code, subgroup = key
        err = library.new_message()
        words = library.ffi.from_buffer("uint32_t[]", code)
        made = library.lib.fgv_pipeline_new(memory.handle, words, len(words), subgroup, err, ggml.MESSAGE)
        memory.check(-1 if made == library.ffi.NULL else 0, err)
        return library.ffi.gc(made, library.lib.fgv_pipeline_free)

    def clear(self) -> None:
        """Forget what no executable holds."""
        with self._lock:
            self._latest.clear()


class _Table(NamedTuple):
    """Addresses on the device, and the commands that read them there."""

    piece: Slice
    commands: Any


class _Block:
    """Launches ready to be submitted."""

    def __init__(self, launches: Launches, pipelines: Pipelines):
        self.memory = pipelines.memory
        self.whole = launches.whole()
        self.kernels = pipelines.make(launches.codes, launches.subgroups)
        self.starts = np.concatenate([[0], np.cumsum(self.whole.sizes)])[:-1]
        self._tables: OrderedDict[Addresses, _Table] = OrderedDict()
        self._most = min(max(RECORDED // max(len(self.whole.kernels), 1), TABLES.start), TABLES.stop - 1)
        self._lock = threading.Lock()  # a table may be rewritten for other addresses

    def run(self, addresses: Addresses) -> None:
        """Submit with these addresses; returns at once."""
        with self._lock:
            self.memory.submit(self.table(addresses).commands)

    def table(self, addresses: Addresses) -> _Table:
        """The table for these addresses, and its commands."""
        found = self._tables.get(addresses)
        if found is not None:
            self._tables.move_to_end(addresses)
            return found
        values = np.array(addresses, np.uint64)[self.whole.which] + self.whole.offset.astype(np.uint64)
        if len(self._tables) < self._most:
            piece = self.memory.upload(values)
            found = _Table(piece, self._record(piece.address))
        else:
            _, found = self._tables.popitem(last=False)
            self.memory.write(found.piece.address, values)
        self._tables[addresses] = found
        return found

    def _record(self, address: int) -> Any:
        library, memory, whole = self.memory.library, self.memory, self.whole
        ffi, lib = library.ffi, library.lib
        err = library.new_message()
        count = len(whole.kernels)
        handles = ffi.new("fgv_pipeline *[]", [self.kernels[k] for k in whole.kernels])
        where = np.uint64(address) + self.starts.astype(np.uint64) * np.uint64(8)
        made = lib.fgv_commands_new(
            memory.handle, count, handles, ffi.from_buffer("uint64_t[]", where),
            ffi.from_buffer("uint32_t[]", np.ascontiguousarray(whole.groups).reshape(-1)),
            ffi.from_buffer("uint8_t[]", whole.barrier), err, ggml.MESSAGE,
        )  # fmt: skip
        memory.check(-1 if made == ffi.NULL else 0, err)
        return ffi.gc(made, lib.fgv_commands_free)

    def profile(self, addresses: Addresses) -> Any:
        """Nanoseconds of each launch."""
        library, memory = self.memory.library, self.memory
        err, out = library.new_message(), np.zeros(len(self.whole.kernels), np.int64)
        commands = self.table(addresses).commands
        numbers = library.ffi.from_buffer("int64_t[]", out)
        memory.check(library.lib.fgv_profile(memory.handle, commands, numbers, err, ggml.MESSAGE), err)
        return out


class _Runner:
    """A program ready to run on a table of addresses."""

    def __init__(self, program: Program, pipelines: Pipelines):
        self.program, self.memory = program, pipelines.memory
        self.blocks = {id(i): _Block(i, pipelines) for i in program.items if isinstance(i, Launches)}
        self.parts = {id(p): _Runner(p, pipelines) for p in program.parts()}

    def run(self, addresses: Addresses) -> None:
        """Run every item in order."""
        for item in self.program.items:
            if isinstance(item, Launches):
                self.blocks[id(item)].run(addresses)
            else:
                verb: Callable[[Any, Addresses], None] = getattr(self, f"_{type(item).__name__.lower()}")
                verb(item, addresses)

    def _address(self, s: Symbol, addresses: Addresses) -> int:
        return addresses[s.number] + s.offset

    def _read(self, places: Sequence[Symbol], avals: Sequence[Aval], addresses: Addresses) -> list[Any]:
        return self.memory.read([self._address(s, addresses) for s in places], avals)

    def _part(self, part: Program, bound: Sequence[Symbol], workspace: Symbol, addresses: Addresses) -> None:
        """Run a part on its operands and results."""
        table = [self._address(s, addresses) for s in (*bound, workspace)]
        self.parts[id(part)].run((*table, *addresses[self.program.scratch :]))

    def _copy(self, source: Symbol, to: Symbol, nbytes: int, addresses: Addresses) -> None:
        self.memory.copy(self._address(to, addresses), self._address(source, addresses), nbytes)

    # -- what the host does --------------------------------------------------------------------------------------
    def _call(self, item: Call, addresses: Addresses) -> None:
        xs = self._read(item.inputs, item.call.inputs, addresses)
        results = item.call.results([dtypes.widen(x) if x.dtype == dtypes.bfloat16 else x for x in xs])
        for place, host in zip(item.outputs, results, strict=True):
            self.memory.write(self._address(place, addresses), np.ascontiguousarray(host))

    def _branch(self, item: Branch, addresses: Addresses) -> None:
        index = int(self._read([item.choice], [Aval((), dtypes.int32)], addresses)[0])
        part = item.parts[min(max(index, 0), len(item.parts) - 1)]
        self._part(part, item.operands, item.workspace, addresses)

    def _begin(self, carries: Sequence[Carry], addresses: Addresses) -> None:
        for c in carries:
            if c.moves:
                self._copy(c.init, c.result, c.nbytes, addresses)

    def _hostloop(self, item: HostLoop, addresses: Addresses) -> None:
        self._begin(item.carries, addresses)
        for bound in item.steps():
            self._part(item.body, bound, item.workspace, addresses)

    def _whileloop(self, item: WhileLoop, addresses: Addresses) -> None:
        self._begin(item.carries, addresses)
        now, to_result = [c.start for c in item.carries], True
        while True:
            self._part(item.cond, [*item.cond_consts, *now, item.flag], item.workspace, addresses)
            if not self._read([item.flag], [Aval((), dtypes.bool_)], addresses)[0]:
                break
            after = [c.after(to_result) for c in item.carries]
            self._part(item.body, [*item.consts, *now, *after], item.workspace, addresses)
            now, to_result = after, not to_result
        for c, where in zip(item.carries, now, strict=True):
            if where != c.result and c.nbytes:
                self._copy(where, c.result, c.nbytes, addresses)


class Executable:
    """A graph ready to run; ``plan`` has its memory, ``donated`` the arguments whose memory results take."""

    def __init__(self, plan: Plan, pipelines: Pipelines, fixed: Callable[[Any], Slice]):
        self.plan, self.memory = plan, pipelines.memory
        self.program = Program(plan, pipelines.lower)
        self.donated, self.donation = frozenset(plan.alias.values()), plan.donation
        self._whole = self.program.is_pure  # nothing can come between its parts
        self._runner = _Runner(self.program, pipelines)
        self._held = [fixed(value) for _, value in self.program.constants.values()]
        self._tail = [p.address for p in reversed(self._held)]
        self._sources = [plan.alias.get(j, -1) for j in range(len(plan.outputs))]  # whose memory a result gets
        self._avals = [b.aval for b in plan.outputs]
        self.fallbacks = _host_calls(self.program, 1)
        plan.scratch = [self.program.scratch_bytes] * len(plan.nodes)  # kernels' own memory, shared by all nodes
        self._fresh = plan.output_bytes - (plan.alias_bytes if self._whole else 0)
        self._needs = self._fresh + plan.temp_bytes + self.program.scratch_bytes

    def run(self, arrays: Sequence[VulkanArray]) -> list[VulkanArray]:
        """Return the results; the device may still be busy with them."""
        plan, memory = self.plan, self.memory
        if memory.in_use + self._needs > memory.limit:
            raise self._too_large()
        try:
            pieces = self._pieces(arrays)
            outs = self._results(pieces)
            workspace = memory.take(plan.temp_bytes)
            scratch = memory.take(self.program.scratch_bytes)
        except MemoryFull:
            raise self._too_large() from None
        self._runner.run(self._addresses([*pieces, *outs, workspace, scratch]))
        results = list(map(VulkanArray, repeat(memory), self._avals, repeat(None), outs))
        read_together(results)
        return results

    def _too_large(self) -> MemoryFull:
        """What to raise, before anything runs, when there is no room for a call."""
        plan = self.plan
        rows = sorted(plan.rows, key=lambda r: -r.nbytes)[:3]
        largest = "".join([f"; {r.nbytes:,} of {r.aval}" + (f" at {r.site}" if r.site else "") for r in rows])
        text = f"{self._needs:,} bytes for a call ({self._fresh:,} of results, {plan.temp_bytes:,} of workspace, "
        text += f"{self.program.scratch_bytes:,} of kernels; peak with arguments {plan.peak_bytes:,}; largest{largest})"
        return self.memory.full(text)

    def _pieces(self, arrays: Sequence[VulkanArray]) -> list[Slice]:
        """The arguments' memory.

        What is donated and given twice is copied.  So is what is donated to a program that the host drives: it may be
        interrupted halfway, and then what the caller has must be whole.
        """
        pieces = [a.piece or a.on_device() for a in arrays]
        if self._whole and len(set(map(id, pieces))) == len(pieces):
            for i in self.donated:
                arrays[i].host = None  # from now on its memory has the result
            return pieces
        times = Counter(map(id, pieces))
        for i in self.donated:
            given = pieces[i]
            if not self._whole or times[id(given)] > 1:
                times[id(given)] -= 1
                pieces[i] = self.memory.take(given.nbytes)
                self.memory.copy(pieces[i].address, given.address, given.nbytes)
            else:
                arrays[i].host = None
        return pieces

    def _results(self, pieces: Sequence[Slice]) -> list[Slice]:
        take, avals = self.memory.take, self._avals
        return [pieces[i] if i >= 0 else take(a.nbytes) for i, a in zip(self._sources, avals, strict=True)]

    def _addresses(self, pieces: Sequence[Slice]) -> Addresses:
        """The program's table: arguments, results, workspace and scratch memory, and the captured arrays."""
        return (*[p.address for p in pieces], *self._tail)

    # -- what it is ----------------------------------------------------------------------------------------------
    @property
    def n_nodes(self) -> int:
        """Kernels that a run launches, those in loops that the host drives counted once."""
        return self.program.count

    def as_text(self) -> str:
        """What runs, one item a line."""
        return "\n".join(_lines(self.program, ""))

    def profile(self, arrays: Sequence[VulkanArray], repeat: int = 10) -> list[NodeTime]:
        """Return each node's mean time, the longest first; DeviceError where the host takes part."""
        if not self.program.is_pure:
            got = "loops, branches or calls of the host"
            raise DeviceError(message("profile", "a function that runs on the device alone is required", got))
        copies = [VulkanArray(self.memory, a.aval, host=a.on_host()) for a in arrays]
        pieces = [a.on_device() for a in copies]
        outs = self._results(pieces)
        kept = [self.memory.take(n) for n in (self.plan.temp_bytes, self.program.scratch_bytes)]
        addresses = self._addresses([*pieces, *outs, *kept])
        spent: dict[int, float] = {}
        for item in self.program.items:
            block = self._runner.blocks[id(item)]
            total = sum([block.profile(addresses) for _ in range(repeat)]) / repeat / 1e9
            for n, seconds in zip(block.whole.nodes, total, strict=True):
                spent[int(n)] = spent.get(int(n), 0.0) + float(seconds)
        rows = []
        for n, seconds in spent.items():
            node = self.plan.nodes[n]
            aval = max([node.operands[w].aval for w in node.writes], key=lambda a: a.nbytes)
            rows.append(NodeTime(node.name, aval, node.site, seconds))
        return sorted(rows, key=lambda r: -r.seconds)


def _host_calls(program: Program, times: int) -> list[Fallback]:
    """What the host computes in ``times`` runs of a program."""
    found: list[Fallback] = []
    for item in program.items:
        if isinstance(item, Call):
            call = item.call
            owner: Any = getattr(call.fn, "__self__", None)  # of a primitive's reference
            wanted = not isinstance(owner, Primitive)
            name = getattr(call.fn, "__name__", "a function") if wanted else owner.name
            reason = "a function of the host" if wanted else "no kernel of the device computes it"
            nbytes = times * sum([a.nbytes for a in (*call.inputs, *call.outputs)])
            found.append(Fallback(name, ", ".join(map(str, call.outputs)), reason, item.site, nbytes, wanted))
        elif isinstance(item, HostLoop):
            found += _host_calls(item.body, times * item.length)
        elif isinstance(item, WhileLoop):
            found += _host_calls(item.cond, times) + _host_calls(item.body, times)
        elif isinstance(item, Branch):
            found += [f for p in item.parts for f in _host_calls(p, times)]
    return found


def _lines(program: Program, indent: str) -> list[str]:
    lines = []
    for item in program.items:
        if isinstance(item, Launches):
            kinds = [program.plan.nodes[int(n)].name for n in item.whole().nodes]
            lines.append(f"{indent}device: {item.count} kernels: {', '.join(kinds[:200])}")
        else:
            lines.append(f"{indent}host: {type(item).__name__}")
            for part in [getattr(item, a) for a in ("cond", "body") if hasattr(item, a)] + list(
                getattr(item, "parts", ())
            ):
                lines += _lines(part, indent + "  ")
    return lines
