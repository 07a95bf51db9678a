"""Building and running MAP kernels on numpy arrays, for the tests of the C kernels."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

_ggml = pytest.importorskip("funcgrad.runtime._ggml")
lib, ffi = _ggml.lib, _ggml.ffi

Array = np.ndarray[Any, np.dtype[Any]]
DTYPES = {np.dtype("f4"): 0, np.dtype("f2"): 1, np.dtype("i4"): 3, np.dtype("u4"): 4, np.dtype("?"): 5}
BF16 = 2
NO_SLOT = -1


def op_numbers() -> dict[str, int]:
    """The instruction set: name to number."""
    return {ffi.string(lib.fg_op_name(i)).decode(): i for i in range(lib.fg_n_ops())}


OPS = op_numbers()


@dataclass(frozen=True)
class Iota:
    """An input without memory: start + sum of index times step."""

    start: int
    steps: tuple[int, ...]


@dataclass(frozen=True)
class Bf16:
    """Bit patterns of bfloat16 numbers in a uint16 array."""

    bits: Array


def program_words(
    shape: Sequence[int],
    inputs: Sequence[Array | Iota | Bf16],
    outputs: Sequence[tuple[int, Array | Bf16]],
    program: Sequence[tuple[Any, ...]],
    n_regs: int,
    widths: Sequence[int] | None = None,
) -> tuple[list[int], list[Array]]:
    """The words of a MAP kernel, or with widths of a ROWS kernel, and the array of each slot."""
    arrays: list[Array] = []

    def operand(x: Array | Iota | Bf16) -> list[int]:
        if isinstance(x, Iota):
            return [NO_SLOT, DTYPES[np.dtype("i4")], x.start, *x.steps]
        array = x.bits if isinstance(x, Bf16) else x
        arrays.append(array)
        return [len(arrays) - 1, BF16 if isinstance(x, Bf16) else DTYPES[array.dtype], 0, *array.strides]

    words = [len(shape), *shape, len(inputs), len(outputs), n_regs, len(program), *(widths or ())]
    for x in inputs:
        words += operand(x)
    for reg, output in outputs:
        words += [reg, *operand(output)]
    for name, *fields in program:
        words += [name if isinstance(name, int) else OPS[name], *fields, *[0] * (5 - len(fields))]
    return words, arrays


class Kernel:
    """A MAP kernel bound to arrays; they must stay alive and where they are."""

    def __init__(
        self,
        shape: Sequence[int],
        inputs: Sequence[Array | Iota | Bf16],
        outputs: Sequence[tuple[int, Array | Bf16]],
        program: Sequence[tuple[Any, ...]],
        n_regs: int,
    ) -> None:
        words, self.arrays = program_words(shape, inputs, outputs, program, n_regs)
        self.kernel = new_kernel(words)
        self.base = ffi.new("void *[]", [ffi.cast("void *", address(a)) for a in self.arrays] or 1)

    def run(self) -> None:
        lib.fg_kernel_run(self.kernel, self.base)


def run_kernel(
    shape: Sequence[int],
    inputs: Sequence[Array | Iota | Bf16],
    outputs: Sequence[tuple[int, Array | Bf16]],
    program: Sequence[tuple[Any, ...]],
    n_regs: int,
) -> None:
    """Run a MAP kernel on arrays, once."""
    Kernel(shape, inputs, outputs, program, n_regs).run()


def address(array: Array) -> int:
    """Where index 0 of an array lies."""
    return int(array.__array_interface__["data"][0])


def new_kernel(words: Sequence[int], kind: int = 0) -> Any:
    """Make a kernel; ValueError with its message when the words are refused."""
    err = ffi.new("char[]", 300)
    kernel = lib.fg_kernel_new(kind, ffi.new("int64_t[]", list(words)), len(words), err, 300)
    if kernel == ffi.NULL:
        raise ValueError(ffi.string(err).decode())
    return ffi.gc(kernel, lib.fg_kernel_free)


def apply_with(run: Callable[..., None], name: str, *inputs: Array, dtype: Any = np.float32) -> Array:
    """One instruction on whole arrays, by what runs a program."""
    n = len(inputs)
    out = np.empty(inputs[0].shape, dtype)
    run(out.shape, list(inputs), [(n, out)], [(name, n, *range(n))], n + 1)
    return out


def apply(name: str, *inputs: Array, dtype: Any = np.float32) -> Array:
    """One instruction on whole arrays, by a kernel of the CPU."""
    return apply_with(run_kernel, name, *inputs, dtype=dtype)
