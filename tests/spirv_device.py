"""Running kernels made for Vulkan on numpy arrays; tests that ask for one are skipped where there is no device."""

from __future__ import annotations

import os
import shutil
import struct
import subprocess
from collections.abc import Sequence
from functools import cache, partial
from typing import Any

import numpy as np
import pytest
from map_kernels import Array, Bf16, Iota, address, apply_with, program_words

from funcgrad import dtypes
from funcgrad.errors import FuncgradError
from funcgrad.ir import Aval
from funcgrad.runtime import ggml
from funcgrad.runtime.spirv.kernel import Dispatch, Target
from funcgrad.runtime.spirv.lower import Lowered, lower
from funcgrad.runtime.vulkan.memory import Memory, Slice
from funcgrad.runtime.vulkan.probe import probe


class Device:
    """A device on which lowered nodes run one at a time."""

    def __init__(self) -> None:
        self.memory = Memory(0)
        self.target = probe(self.memory)
        self.validated: set[bytes] = set()

    def pipeline(self, d: Dispatch) -> Any:
        memory, lib, err = self.memory, self.memory.library.lib, self.memory.library.new_message()
        words = struct.unpack(f"<{len(d.code) // 4}I", d.code)
        made = lib.fgv_pipeline_new(memory.handle, words, len(words), d.subgroup, err, ggml.MESSAGE)
        memory.check(-1 if made == memory.library.ffi.NULL else 0, err)
        return made

    def record(self, lowered: Lowered, slots: Sequence[int]) -> tuple[Any, list[Any]]:
        """A list of dispatches on memory at these addresses, and what must live as long."""
        memory, lib, err = self.memory, self.memory.library.lib, self.memory.library.new_message()
        scratch = [memory.take(n) for n in lowered.scratch]
        for piece in scratch:  # what was left there must not matter
            memory.write(piece.address, np.full(piece.nbytes, 0xA7, np.uint8))
        pipelines, tables, groups = [], [], []
        for d in lowered.dispatches:
            where = [(slots[s] if s >= 0 else scratch[~s].address) + offset for s, offset in d.table]
            tables.append(memory.upload(np.array(where, np.uint64)))
            pipelines.append(self.pipeline(d))
            groups += d.groups
        n = len(pipelines)
        commands = lib.fgv_commands_new(
            memory.handle, n, pipelines, [t.address for t in tables], groups, [1] * n, err, ggml.MESSAGE
        )
        memory.check(-1 if commands == memory.library.ffi.NULL else 0, err)
        return commands, [scratch, tables, pipelines]

    def run(self, lowered: Lowered, arrays: Sequence[Array], written: Sequence[Array]) -> None:
        """Run on copies of the arrays' memory, and copy the memory of ``written`` back."""
        memory, lib, err = self.memory, self.memory.library.lib, self.memory.library.new_message()
        if not lowered.dispatches:
            return
        pieces: dict[int, Slice] = {}
        for x in arrays:
            if address(root(x)) not in pieces:
                pieces[address(root(x))] = memory.upload(root(x).reshape(-1).view(np.uint8))
        slots = [pieces[address(root(x))].address + address(x) - address(root(x)) for x in arrays]
        commands, alive = self.record(lowered, slots)
        memory.check(lib.fgv_submit(memory.handle, commands, err, ggml.MESSAGE), err)
        for x in written:
            where = root(x).reshape(-1).view(np.uint8)
            where[...] = memory.read([pieces[address(root(x))].address], [Aval((where.size,), dtypes.bool_)])[0].view(
                np.uint8
            )
        lib.fgv_commands_free(commands)
        for p in alive[2]:
            lib.fgv_pipeline_free(p)


def root(x: Array) -> Array:
    """The array whose memory a view is in."""
    while isinstance(x.base, np.ndarray) and x.base.size:
        x = x.base
    return x


@cache
def device() -> Device:
    """The device of these tests; they are skipped where there is none."""
    pytest.importorskip("funcgrad.runtime._ggml")
    if "FUNCGRAD_VULKAN_SOFTWARE" not in os.environ:
        os.environ["FUNCGRAD_VULKAN_SOFTWARE"] = "1"
    try:
        return Device()
    except FuncgradError as error:
        pytest.skip(str(error))


def validate(lowered: Lowered) -> None:
    """Ask the validator of the SPIR-V tools, where it is installed."""
    tool = shutil.which("spirv-val")
    for d in lowered.dispatches if tool else ():
        done = subprocess.run([str(tool), "--target-env", "vulkan1.2", "-"], input=d.code, capture_output=True)
        if b"Invalid capability operand: 6022" in done.stderr:
            pytest.skip("the validator is older than cooperative matrices")
        assert done.returncode == 0, done.stderr.decode() + done.stdout.decode()


def as_gpu() -> Target:
    """The device's target, but with work split as on a GPU: a software driver runs that too."""
    return device().target._replace(software=False)


def run(
    kind: int,
    words: Sequence[int],
    inputs: Sequence[Array],
    outputs: Sequence[Array],
    check: bool = False,
    large: bool = False,
) -> None:
    """Run a node, split as on a GPU when ``large``; slots number the inputs and then the outputs."""
    target = as_gpu() if large else device().target
    lowered = lower(kind, [int(w) for w in words], target)
    if check:
        validate(lowered)
    device().run(lowered, [*inputs, *outputs], outputs)


def run_program(
    shape: Sequence[int],
    inputs: Sequence[Array | Iota | Bf16],
    outputs: Sequence[tuple[int, Array | Bf16]],
    program: Sequence[tuple[Any, ...]],
    n_regs: int,
    widths: Sequence[int] | None = None,
    target: Target | None = None,
) -> None:
    """Run a MAP node, or with widths a ROWS node, on arrays."""
    words, arrays = program_words(shape, inputs, outputs, program, n_regs, widths)
    lowered = lower(0 if widths is None else 9, words, target or device().target)
    device().run(lowered, arrays, [x.bits if isinstance(x, Bf16) else x for _, x in outputs])


def apply(name: str, *inputs: Array, dtype: Any = np.float32, target: Target | None = None) -> Array:
    """One instruction on whole arrays, by the device."""
    return apply_with(partial(run_program, target=target), name, *inputs, dtype=dtype)
