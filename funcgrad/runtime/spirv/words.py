"""Reading the words of kernels, and where their operands' elements are: what the makers of kernels share."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from funcgrad.runtime.spirv.instructions import SIZES, Unsupported
from funcgrad.runtime.spirv.kernel import Dispatch, Kernel, Value

__all__ = [
    "Lowered",
    "Operand",
    "Place",
    "Program",
    "Table",
    "coordinates",
    "count",
    "group_number",
    "read_operand",
    "read_program",
]

Ints = tuple[int, ...]


class Peak(NamedTuple):
    """A dispatch that finds something about a region of an operand, which others may use as long as it stays true.

    ``find`` numbers the dispatch, ``scratch`` is where its result goes; what is found is told by ``layout``, and it
    depends on the operand's ``nbytes`` from ``offset`` on.
    """

    find: int
    scratch: int
    slot: int
    offset: int
    layout: tuple[tuple[int, int], ...]
    nbytes: int


class Lowered(NamedTuple):
    """What runs for a node: its dispatches, one after another, and the bytes of each scratch that they use.

    ``peaks`` are dispatches whose result other nodes may use too, as long as the operand is not written.
    """

    dispatches: list[Dispatch]
    scratch: list[int]
    peaks: tuple[Peak, ...] = ()


class Operand(NamedTuple):
    """A strided view; offset and strides in bytes."""

    slot: int
    dtype: int
    offset: int
    strides: Ints


class Program(NamedTuple):
    """The words of a MAP or ROWS node."""

    dims: Ints
    inputs: list[Operand]
    outputs: list[tuple[int, Operand]]
    widths: Ints
    code: list[Ints]


def read_operand(words: Sequence[int], at: int, ndim: int) -> Operand:
    """The operand at a position of the words."""
    slot, dtype, offset = words[at : at + 3]
    return Operand(slot, dtype, offset, tuple(words[at + 3 : at + 3 + ndim]))


def read_program(words: Sequence[int], rows: bool) -> Program:
    """The parts of a MAP node, or of a ROWS node."""
    ndim = words[0]
    dims, at = tuple(words[1 : 1 + ndim]), 1 + ndim
    n_in, n_out, n_regs, n_code = words[at : at + 4]
    at += 4
    widths = tuple(words[at : at + n_regs]) if rows else (1,) * n_regs
    at += n_regs if rows else 0
    size = 3 + ndim
    inputs = [read_operand(words, at + n * size, ndim) for n in range(n_in)]
    at += n_in * size
    outputs = [(words[at + n * (size + 1)], read_operand(words, at + n * (size + 1) + 1, ndim)) for n in range(n_out)]
    at += n_out * (size + 1)
    code = [tuple(words[at + 6 * n : at + 6 * n + 6]) for n in range(n_code)]
    return Program(dims, inputs, outputs, widths, code)


class Place(NamedTuple):
    """Where an operand's elements are: a number of the table, and their index there as a sum over dimensions.

    Indices are modulo 2^32; a dimension that runs backwards has a negative step and is made up for in ``first``.
    """

    number: int
    first: int
    steps: Ints

    def element(self, at: Sequence[Value], zero: Value) -> Value:
        """The element's index for coordinates of the dimensions."""
        out = zero + self.first
        for x, step in zip(at, self.steps, strict=True):
            if step:
                out = out + x * step
        return out


class Table:
    """The addresses that a kernel reads."""

    def __init__(self) -> None:
        self.rows: list[tuple[int, int]] = []
        self._known: dict[tuple[int, int], int] = {}

    def number(self, slot: int, offset: int) -> int:
        """The number of an address."""
        found = self._known.get((slot, offset))
        if found is None:
            found = self._known[slot, offset] = len(self.rows)
            self.rows.append((slot, offset))
        return found

    def place(self, x: Operand, dims: Sequence[int], strides: Sequence[int]) -> Place:
        """An operand's place, with these dimensions and strides for its own."""
        size = SIZES[x.dtype]
        if any(s % size for s in (x.offset, *strides)):
            raise Unsupported(f"operand of slot {x.slot}: offset and strides must be multiples of {size} bytes")
        low = sum((n - 1) * s for n, s in zip(dims, strides, strict=True) if s < 0)
        span = sum((n - 1) * abs(s) for n, s in zip(dims, strides, strict=True)) // size
        if span >= 1 << 31:
            raise Unsupported(f"operand of slot {x.slot}: at most 2^31 elements between its ends, got {span}")
        return Place(self.number(x.slot, x.offset + low), -low // size, tuple(s // size for s in strides))


def coordinates(flat: Value, dims: Sequence[int]) -> list[Value]:
    """The coordinates of an element from its row-major number."""
    out: list[Value] = []
    for n in reversed(dims[1:]):
        q = flat // n
        out.append(flat - q * n)
        flat = q
    return [*([flat] if dims else []), *reversed(out)]


def group_number(k: Kernel, groups: Sequence[int]) -> Value:
    """The number of this group among those that ``spread_groups`` has spread over x and y."""
    number = k.group(0)
    return number + k.group(1) * groups[0] if groups[1] > 1 else number


def count(dims: Sequence[int]) -> int:
    """The number of elements, fewer than 2^31."""
    n = math.prod(dims)
    if n >= 1 << 31:
        raise Unsupported(f"at most 2^31 - 1 elements in one kernel, got {n}")
    return n
