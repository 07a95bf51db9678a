"""Executables of a Vulkan device: a graph in steps, each a segment of the device, equations of the CPU, or a loop.

What the device cannot do exactly the CPU does, on copies; ``coverage`` lists it.  Loops and branches are driven from
the host, step by step.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from funcgrad import dtypes
from funcgrad.ir import Equation, Graph, Literal, Var
from funcgrad.passes.pipeline import prepare
from funcgrad.runtime.vulkan_memory import Memory, VulkanArray
from funcgrad.runtime.vulkan_segment import Segment, Verdicts, host_array

__all__ = ["Fallback", "VulkanExecutable"]

SMALL = 1 << 16  # elements
INTEGERS = frozenset({dtypes.int32, dtypes.bool_})
CONTROL = frozenset({"scan", "while", "cond"})


class Fallback(NamedTuple):
    """One equation that runs on the CPU: its primitive, its results, why, and where the user wrote it."""

    primitive: str
    results: str
    reason: str
    site: Any


class HostStep:
    """Equations that the CPU does."""

    def __init__(self, cpu: Any, eqns: Sequence[Equation], inputs: Sequence[Var], outputs: Sequence[Var]):
        self.cpu, self.inputs, self.outputs = cpu, list(inputs), list(outputs)
        self.executable = cpu.compile(Graph(inputs, eqns, outputs, "host"))

    def run(self, arrays: Sequence[VulkanArray]) -> list[VulkanArray]:
        """Run on copies on the host."""
        results = self.executable.run([self.cpu.wrap(a.on_host()) for a in arrays])
        hosts = [self.cpu.get(r, v.aval) for r, v in zip(results, self.outputs, strict=True)]
        memory = arrays[0].memory if arrays else self.memory
        return [host_array(memory, v.aval, h) for v, h in zip(self.outputs, hosts, strict=True)]

    memory: Memory


class ControlStep:
    """A loop or a branch whose parts have work for the device."""

    def __init__(self, eqn: Equation, parts: Sequence[VulkanExecutable], memory: Memory):
        self.prim, self.parts, self.memory = eqn.prim, list(parts), memory
        self.atoms, self.outputs = eqn.inputs, list(eqn.outputs)
        self.inputs = list(dict.fromkeys([a for a in eqn.inputs if isinstance(a, Var)]))

    def run(self, arrays: Sequence[VulkanArray]) -> list[VulkanArray]:
        """Run on the operands."""
        env: dict[Any, VulkanArray] = dict(zip(self.inputs, arrays, strict=True))
        xs = [env[a] if isinstance(a, Var) else host_array(self.memory, a.aval, a.value) for a in self.atoms]
        verb: Callable[[Sequence[VulkanArray]], list[VulkanArray]] = getattr(self, f"run_{self.prim.name}")
        return verb(xs)

    def run_cond(self, xs: Sequence[VulkanArray]) -> list[VulkanArray]:
        """The branch that the first operand names."""
        index = int(np.clip(xs[0].on_host(), 0, len(self.parts) - 1))
        return self.parts[index].run(xs[1:])

    def run_while(self, xs: Sequence[VulkanArray]) -> list[VulkanArray]:
        """The body while the condition holds."""
        cond_consts, body_consts, carry = self.prim.parts(xs)  # type: ignore[attr-defined]
        cond, body = self.parts
        while bool(cond.run([*cond_consts, *carry])[0].on_host()):
            carry = body.run([*body_consts, *carry])
        return list(carry)

    def run_scan(self, xs: Sequence[VulkanArray]) -> list[VulkanArray]:
        """The body for each row; rows are cut and stacked on the host."""
        prim: Any = self.prim
        consts, carry, seqs = prim.parts(xs)
        rows = [s.on_host() for s in seqs]
        avals = self.parts[0].graph.in_avals[len(consts) + len(carry) :]
        stacks = [np.empty(v.aval.shape, v.aval.dtype) for v in self.outputs[len(carry) :]]
        steps = range(prim.length - 1, -1, -1) if prim.reverse else range(prim.length)
        for i in steps:
            cut = [host_array(self.memory, a, r[i]) for a, r in zip(avals, rows, strict=True)]
            outs = self.parts[0].run([*consts, *carry, *cut])
            carry = outs[: len(carry)]
            for stack, y in zip(stacks, outs[len(carry) :], strict=True):
                stack[i] = y.on_host()
        ys = [host_array(self.memory, v.aval, s) for v, s in zip(self.outputs[len(carry) :], stacks, strict=True)]
        return [*carry, *ys]


class VulkanExecutable:
    """A graph ready to run."""

    donated: frozenset[int] = frozenset()

    def __init__(self, graph: Graph, memory: Memory, cpu: Any, verdicts: Verdicts):
        self.memory, self.cpu, self.verdicts = memory, cpu, verdicts
        self.graph = prepare(graph, fused=False)
        self.fallbacks: list[Fallback] = []
        self.donation: dict[int, str] = {}
        self._bounds: dict[Var, int | None] = {}
        self._counts: dict[Equation, int] = {}
        self._bodies: dict[Equation, list[VulkanExecutable]] = {}
        kinds = self._kinds()
        self.steps = [self._step(kind, eqns, inputs, outputs) for kind, eqns, inputs, outputs in self._parts(kinds)]
        self._last = self._last_uses()

    # -- who does what -------------------------------------------------------------------------------------------
    def _kinds(self) -> dict[Equation, str]:
        kinds: dict[Equation, str] = {}
        on_host: set[Var] = set()
        for eqn in self.graph.eqns:
            kinds[eqn] = kind = self._kind(eqn, on_host)
            if kind == "host":
                on_host.update(eqn.outputs)
        self._join_integers(kinds)
        return kinds

    def _join_integers(self, kinds: dict[Equation, str]) -> None:
        """Let the CPU do what only prepares its own small integers, rather than send them to and fro."""
        free: set[Var] = {a for a in self.graph.outputs if isinstance(a, Var)}  # read by others than the CPU
        for eqn in reversed(self.graph.eqns):
            atoms = (*eqn.inputs, *eqn.outputs)
            small = all(a.aval.dtype in INTEGERS and a.aval.size <= SMALL for a in atoms)
            if kinds[eqn] == "device" and small and not any(v in free for v in eqn.outputs):
                kinds[eqn] = "host"
            if kinds[eqn] != "host":
                free.update([a for a in eqn.inputs if isinstance(a, Var)])

    def _kind(self, eqn: Equation, on_host: set[Var]) -> str:
        if eqn.prim.name in CONTROL:
            return self._control(eqn)
        vars_ = [a for a in eqn.inputs if isinstance(a, Var)]
        if any(v in on_host for v in vars_) and all(a.aval.size <= 1 for a in (*vars_, *eqn.outputs)):
            return "host"  # a scalar that is there already, such as a step count: not worth a transfer
        verdict = self.verdicts.of(eqn, self._bounds)
        self._bounds.update(zip(eqn.outputs, verdict.bounds, strict=True))
        if not verdict.tensors:
            self.fallbacks.append(
                Fallback(eqn.prim.name, ", ".join(str(v.aval) for v in eqn.outputs), verdict.reason, eqn.site)
            )
            return "host"
        self._counts[eqn] = verdict.tensors
        return "device"

    def _control(self, eqn: Equation) -> str:
        prim: Any = eqn.prim
        names = {"scan": ["body"], "while": ["cond", "body"]}.get(prim.name, [])
        graphs = [getattr(prim, name) for name in names] or prim.branches
        parts = [VulkanExecutable(g, self.memory, self.cpu, self.verdicts) for g in graphs]
        if not any(isinstance(s, (Segment, ControlStep)) for p in parts for s in p.steps):
            return "host"
        self._bodies[eqn] = parts
        for p in parts:
            self.fallbacks += p.fallbacks
        return "control"

    def _parts(self, kinds: dict[Equation, str]) -> list[tuple[str, list[Equation], list[Var], list[Var]]]:
        """Equations in few groups of one kind, in an order that respects what they read; with what each reads.

        The device does early only what others wait for, so that little crosses from one of its groups to the next.
        """
        made: set[Var] = set(self.graph.inputs)
        early = self._awaited(kinds)
        groups: list[tuple[str, list[Equation]]] = []
        left, kind = list(self.graph.eqns), "host"
        idle = 0
        while left:
            group: list[Equation] = []
            rest: list[Equation] = []
            effect_waits = False
            last = all(kinds[e] == "device" for e in left)
            for eqn in left:
                ready = all(a in made for a in eqn.inputs if isinstance(a, Var))
                ready = ready and (last or kinds[eqn] != "device" or eqn in early)
                held = effect_waits and eqn.prim.effectful
                if ready and not held and kinds[eqn] == kind and not (kind == "control" and group):
                    group.append(eqn)
                    made.update(eqn.outputs)
                else:
                    rest.append(eqn)
                    effect_waits = effect_waits or eqn.prim.effectful
            if group:
                groups.append((kind, group))
            idle = 0 if group else idle + 1
            assert idle < 4, "equations in a circle"
            left, kind = rest, {"host": "device", "device": "control", "control": "host"}[kind]
        return self._with_interfaces(groups)

    def _awaited(self, kinds: dict[Equation, str]) -> set[Equation]:
        """The device's equations that others depend on."""
        needed: set[Var] = set()
        early: set[Equation] = set()
        for eqn in reversed(self.graph.eqns):
            if kinds[eqn] != "device":
                needed.update([a for a in eqn.inputs if isinstance(a, Var)])
            elif any(v in needed for v in eqn.outputs):
                early.add(eqn)
                needed.update([a for a in eqn.inputs if isinstance(a, Var)])
        return early

    def _with_interfaces(
        self, groups: list[tuple[str, list[Equation]]]
    ) -> list[tuple[str, list[Equation], list[Var], list[Var]]]:
        wanted = {a for a in self.graph.outputs if isinstance(a, Var)}
        out = []
        for kind, eqns in reversed(groups):
            here = {v for e in eqns for v in e.outputs}
            reads = list(dict.fromkeys([a for e in eqns for a in e.inputs if isinstance(a, Var) and a not in here]))
            gives = [v for e in eqns for v in e.outputs if v in wanted]
            wanted.update(reads)
            out.append((kind, eqns, reads, gives))
        return list(reversed(out))

    def _step(self, kind: str, eqns: list[Equation], inputs: list[Var], outputs: list[Var]) -> Any:
        if kind == "device":
            count = sum([self._counts[e] for e in eqns])
            return Segment(self.memory, eqns, inputs, outputs, self._bounds, count)
        if kind == "control":
            return ControlStep(eqns[0], self._bodies[eqns[0]], self.memory)
        step = HostStep(self.cpu, eqns, inputs, outputs)
        step.memory = self.memory
        return step

    def _last_uses(self) -> list[list[Var]]:
        """After each step, what nobody reads any more."""
        seen: set[Var] = {a for a in self.graph.outputs if isinstance(a, Var)}
        drops: list[list[Var]] = []
        for step in reversed(self.steps):
            drops.append([v for v in dict.fromkeys([*step.inputs, *step.outputs]) if v not in seen])
            seen.update(step.inputs)
        return list(reversed(drops))

    # -- running -------------------------------------------------------------------------------------------------
    def run(self, arrays: Sequence[VulkanArray]) -> list[VulkanArray]:
        """Return the results for the arguments."""
        env: dict[Any, VulkanArray] = dict(zip(self.graph.inputs, arrays, strict=True))
        for step, drops in zip(self.steps, self._last, strict=True):
            env.update(zip(step.outputs, step.run([env[v] for v in step.inputs]), strict=True))
            for v in drops:
                env.pop(v, None)
        return [
            host_array(self.memory, a.aval, a.value) if isinstance(a, Literal) else env[a] for a in self.graph.outputs
        ]

    # -- what it is ----------------------------------------------------------------------------------------------
    @property
    def n_nodes(self) -> int:
        """ggml nodes that a run computes on the device, those in loops counted once."""
        inner = sum([p.n_nodes for parts in self._bodies.values() for p in parts])
        return inner + sum([s.n_nodes for s in self.steps if isinstance(s, Segment)])

    def as_text(self) -> str:
        """The steps, one a line."""
        lines = []
        for s in self.steps:
            what = {Segment: "device", HostStep: "cpu", ControlStep: "loop or branch"}[type(s)]
            names = [e.prim.name for e in s.eqns] if isinstance(s, Segment) else []
            size = f": {s.n_nodes} nodes for {len(names)} equations" if isinstance(s, Segment) else ""
            lines.append(f"{what}{size}, reads {len(s.inputs)}, gives {len(s.outputs)}")
        return "\n".join(lines)
