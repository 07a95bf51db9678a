"""What a device's arithmetic really does, found out by asking it: the specification leaves it open."""

from __future__ import annotations

import struct

import numpy as np

from funcgrad import dtypes
from funcgrad.ir import Aval
from funcgrad.runtime import ggml
from funcgrad.runtime.spirv.instructions import narrow_half, widen_half
from funcgrad.runtime.spirv.kernel import Kernel, Target, Value
from funcgrad.runtime.vulkan.memory import Memory

__all__ = ["probe"]


def probe(memory: Memory) -> Target:
    """The device's target with ``fused``, ``exact`` and ``halves`` as they are."""
    target = memory.target
    k = Kernel(target, (1, 1, 1))
    x, out = k.operand(0, "f"), k.operand(1, "f")
    a, b = x.load(0), x.load(1)
    out.store(0, k.fma(a, a, -b))  # 2^-24, or 0 where the product is rounded
    divisions = [(float(n), float(d)) for n in (1, 5, 10, 127) for d in (3, 7, 11, 41, 49)]
    for i, _ in enumerate(divisions):
        out.store(1 + i, x.load(2 + 2 * i) / x.load(3 + 2 * i))
    numbers = [1 + 2.0**-12, 1 + 2.0**-11, *[v for pair in divisions for v in pair]]
    found = _run(memory, k.code(), np.array(numbers, np.float32), 1 + len(divisions))
    quotients = np.array([n for n, _ in divisions], np.float32) / np.array([d for _, d in divisions], np.float32)
    exact = target.software and bool((found[1:] == quotients).all())
    return target._replace(fused=bool(found[0] != 0), exact=exact, halves=_halves(memory))


def _halves(memory: Memory) -> bool:
    """Whether the conversions of every float16, and of what lies around and halfway between them, are those of IEEE."""
    k = Kernel(memory.target)
    out = k.operand(1, "u")
    h = k.group() * 256 + k.thread()
    x = widen_half(h)
    wrong = _differ(k.unpack_half(h).bits(), x.bits(), 0x7F800000)
    numbers = [(x.bits() + d).bits("f") for d in (0, 0xFFF, 0x1000, 0x1001)]
    numbers += [x + d for d in (2.0**-25, 2.0**-26, -(2.0**-25))]
    for y in numbers:
        wrong = wrong | _differ(k.pack_half(y) & 0xFFFF, narrow_half(y), 0x7C00)
    out.store(h, k.select(wrong, k.const(1, "u"), 0))
    return not _run(memory, k.code(), np.zeros(1, np.float32), 65536, 256).view(np.uint32).any()


def _differ(a: Value, b: Value, infinity: int) -> Value:
    """Whether two floats by their bits are not the same number, nor both NaN."""
    magnitude = infinity | (infinity & -infinity) - 1
    nan = [(v & magnitude) > infinity for v in (a, b)]
    return a.ne(b) & ~(nan[0] & nan[1])


def _run(memory: Memory, code: bytes, numbers: np.ndarray, count: int, groups: int = 1) -> np.ndarray:
    library, err = memory.library, memory.library.new_message()
    lib, ffi = library.lib, library.ffi
    words = struct.unpack(f"<{len(code) // 4}I", code)
    pipeline = lib.fgv_pipeline_new(memory.handle, words, len(words), 0, err, ggml.MESSAGE)
    memory.check(-1 if pipeline == ffi.NULL else 0, err)
    given, out = memory.upload(numbers), memory.take(4 * count)
    table = memory.upload(np.array([given.address, out.address], np.uint64))
    commands = lib.fgv_commands_new(
        memory.handle, 1, [pipeline], [table.address], [groups, 1, 1], [1], err, ggml.MESSAGE
    )
    memory.check(-1 if commands == ffi.NULL else 0, err)
    memory.check(lib.fgv_submit(memory.handle, commands, err, ggml.MESSAGE), err)
    found = memory.read([out.address], [Aval((count,), dtypes.float32)])[0]
    lib.fgv_commands_free(commands)
    lib.fgv_pipeline_free(pipeline)
    return found
