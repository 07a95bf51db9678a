"""Pointwise programs: what MAP kernels run for every index, built instruction by instruction from ``Pointwise.lower``.

Registers are 32 bits wide and typed by the dtype of the value: float32 for every float dtype, int32 or uint32, and 0
or 1 for bool.  A value is named by a negative number ``~k`` when it is the k-th input, else by its place in the code.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from funcgrad import dtypes
from funcgrad.errors import MissingRule, message
from funcgrad.ir import Literal
from funcgrad.runtime.views import IOTA, View

__all__ = ["CODES", "Const", "Program", "Reg", "set_instructions"]

CODES = {
    d: i
    for i, d in enumerate((dtypes.float32, dtypes.float16, dtypes.bfloat16, dtypes.int32, dtypes.uint32, dtypes.bool_))
}
LETTERS = dict.fromkeys(dtypes.FLOATS, "f") | {dtypes.int32: "i", dtypes.uint32: "u", dtypes.bool_: "b"}
_BOOL_RESULTS = frozenset({"eq", "ne", "lt", "le", "gt", "ge", "isfinite", "isnan"})
# Where the instruction for a type is not called name_type: which types may use which.
_FALLBACK = {"f": ("f",), "i": ("i",), "u": ("u", "i"), "b": ("b", "i")}
_CONVERSIONS = {
    "fi": "f2i", "fu": "f2u", "fb": "f2b", "if": "i2f", "uf": "u2f", "bf": "i2f", "ib": "i2b", "ub": "i2b",
    "iu": "mov", "ui": "mov", "bi": "mov", "bu": "mov", "ff": "mov",
}  # fmt: skip

_numbers: dict[str, int] = {}
_resolved: dict[tuple[str, str], int] = {}
_composed: dict[tuple[str, str], Any] = {}  # what is made of other instructions


def set_instructions(names: Sequence[str]) -> None:
    """Tell the numbers of MAP's instructions: the positions of their names."""
    _numbers.clear()
    _resolved.clear()
    _composed.clear()
    _paired.clear()
    _numbers.update({name: i for i, name in enumerate(names)})
    _composed.update({key: make for key, make in _COMPOSED.items() if "_".join(key) not in _numbers})


def _resolve(name: str, letter: str) -> int:
    number = _resolved.get((name, letter))
    if number is None:
        names = [f"{name}_{t}" for t in _FALLBACK[letter]] + [name]
        number = next((_numbers[n] for n in names if n in _numbers), -1)
        if number < 0:
            kind = {"f": "floats", "i": "int32", "u": "uint32", "b": "bool"}[letter]
            way_out = "make the primitive's 'lower' of those in funcgrad.runtime.program.Program.names()"
            raise MissingRule(message("lower", f"the device must have the instruction for {kind}", repr(name), way_out))
        _resolved[name, letter] = number
    return number


class Const(Literal):
    """A literal as the emitter passes it around: with its dtype, and with its bits as a MAP instruction takes them."""

    __slots__ = ("bits", "dtype")

    def __init__(self, value: Any, dtype: np.dtype[Any]):
        super().__init__(value, dtype)
        self.dtype = dtype
        wide = dtypes.widen(self.value)
        self.bits = int(wide) if wide.dtype == np.bool_ else int(wide.view(np.int32))


class Reg:
    """A value inside a program."""

    __slots__ = ("dtype", "id")

    def __init__(self, id: int, dtype: np.dtype[Any]):
        self.id, self.dtype = id, dtype


class Program:
    """Builds one program; it is the emitter ``g`` that pointwise primitives see."""

    __slots__ = ("_const_ids", "_loads", "code", "consts", "views")

    def __init__(self) -> None:
        self.views: list[View] = []
        self.code: list[tuple[int, int, int, int, int]] = []  # op and four sources
        self.consts: list[int] = []  # their bits; a constant is named by its number plus CONST
        self._const_ids: dict[int, int] = {}
        self._loads: dict[int, Reg] = {}

    # -- what primitives call ------------------------------------------------------------------------------------
    def op(self, name: str, *xs: Any) -> Any:
        """Append the instruction ``name`` for the operands' dtype and return its result."""
        first = xs[0]
        if name == "mov":
            return first
        dtype = xs[1].dtype if name == "select" else first.dtype
        letter = LETTERS[dtype]
        composed = _composed.get((name, letter))
        if composed is not None:
            return composed(self, *xs)
        number = _resolved.get((name, letter)) or _resolve(name, letter)
        return self._append(number, dtypes.bool_ if name in _BOOL_RESULTS else dtype, *xs)

    @staticmethod
    def names() -> list[str]:
        """Return the instructions that :meth:`op` knows, for one type or another, once a device has been used."""
        typed = {n[:-2] if n[-2:] in ("_f", "_i", "_u", "_b") else n for n in _numbers}
        return sorted(typed | {name for name, _ in _COMPOSED})

    def const(self, value: Any, dtype: np.dtype[Any]) -> Const:
        """Return a constant of a dtype."""
        return Const(value, dtype)

    def convert(self, x: Any, dtype: np.dtype[Any]) -> Any:
        """Return x in another dtype, rounded to it."""
        if x.dtype == dtype:
            return x
        name = _CONVERSIONS[LETTERS[x.dtype] + LETTERS[dtype]]
        y = Reg(self._id(x), dtype) if name == "mov" else self._append(_resolve(name, "f"), dtype, x)
        return self.round(y)

    def bitcast(self, x: Any, dtype: np.dtype[Any]) -> Any:
        """Return the 32 bits of x as another dtype."""
        return Reg(self._id(x), dtype)

    def number(self, name: str) -> int:
        """Return the number of an instruction."""
        return _numbers[name]

    # -- what the emitter calls ----------------------------------------------------------------------------------
    def round(self, x: Any) -> Any:
        """Round a float32 register to the 16-bit dtype that it stands for."""
        if x.dtype not in dtypes.HALVES:
            return x
        return self._append(_resolve("round_f16" if x.dtype == dtypes.float16 else "round_bf16", "f"), x.dtype, x)

    def load(self, view: View) -> Any:
        """Return a view's elements as a register, or the constant that they all are."""
        if view.value is not None:
            return view.value
        reg = self._loads.get(id(view))
        if reg is None:
            k = len(self.views)
            self.views.append(view)
            reg = Reg(~k, view.aval.dtype)
            if view.buf is IOTA and reg.dtype != dtypes.int32:
                reg = self.convert(Reg(~k, dtypes.int32), view.aval.dtype)
            self._loads[id(view)] = reg
        return reg

    def _id(self, x: Any) -> int:
        if type(x) is Reg:
            return x.id
        bits = x.bits if type(x) is Const else Const(x.value, x.aval.dtype).bits
        found = self._const_ids.get(bits)
        if found is None:
            found = self._const_ids[bits] = CONST + len(self.consts)
            self.consts.append(bits)
        return found

    def _append(self, number: int, dtype: np.dtype[Any], *xs: Any) -> Reg:
        ids = [x.id if type(x) is Reg else self._id(x) for x in xs]
        ids += _ZEROS[len(ids)]
        self.code.append((number, ids[0], ids[1], ids[2], ids[3]))
        return Reg(len(self.code) - 1, dtype)

    def assemble(self, outs: Sequence[Any]) -> tuple[int, list[int], list[int]]:
        """Return the number of registers, the register of each output, and the instructions as words.

        Inputs and constants keep their registers; the others are used again once their value is dead.
        """
        widths, regs, words = self.place(outs, [1] * len(self.views), [True] * len(self.code))
        return max(len(widths), 1), regs, words

    def place(
        self, outs: Sequence[Any], input_widths: Sequence[int], widths: list[bool]
    ) -> tuple[list[int], list[int], list[int]]:
        """Return the width of each register, the register of each output, and the instructions as words.

        ``input_widths`` and ``widths`` are those of the inputs and of the values; a register keeps its width.
        """
        ids = [self._id(x) for x in outs]
        ids, code, wide = combine(ids, self.code, widths)
        n_in = len(self.views)
        registers = [*input_widths, *[1] * len(self.consts)]
        words: list[int] = []
        for k, bits in enumerate(self.consts):
            words += (_numbers["const"], n_in + k, bits, 0, 0, 0)
        last = list(range(len(code)))
        for n, instruction in enumerate(code):
            for x in instruction[1:]:
                if 0 <= x < CONST:
                    last[x] = n
        for x in ids:
            if 0 <= x < CONST:
                last[x] = len(code)
        place: list[int] = []
        free: tuple[list[int], list[int]] = ([], [])  # by width
        for n, (number, *sources) in enumerate(code):
            room = free[wide[n]]
            if room:
                dst = room.pop()
            else:
                dst = len(registers)
                registers.append(int(wide[n]))
            place.append(dst)
            words += (number, dst)
            for x in sources:
                words.append(~x if x < 0 else place[x] if x < CONST else x - CONST + n_in)
            for x in {*sources, n}:
                if 0 <= x < CONST and last[x] == n:
                    free[wide[x]].append(place[x])
        regs = [~x if x < 0 else place[x] if x < CONST else x - CONST + n_in for x in ids]
        return registers, regs, words


def combine(ids: list[int], code: list[Code], widths: list[bool]) -> tuple[list[int], list[Code], list[bool]]:
    """Make one instruction of a product or sum and the only instruction that reads it; bits stay the same.

    Takes and gives the results' names, the instructions, and a property of each that must agree.
    """
    uses: dict[int, int] = {}
    for x in ids:
        uses[x] = uses.get(x, 0) + 1
    for instruction in code:
        for x in instruction[1:]:
            uses[x] = uses.get(x, 0) + 1
    pairs = _pairs()
    new: list[Code | None] = list(code)
    for n, (number, a, b, _, _) in enumerate(code):
        for x, other, left in ((a, b, True), (b, a, False)):
            if not 0 <= x < n or uses[x] != 1 or widths[x] != widths[n]:
                continue
            first = new[x]
            made = pairs.get((first[0], number, left)) if first is not None else None
            if made is not None and first is not None:
                new[n], new[x] = (made, first[1], first[2], other, -1), None
                break
    at: dict[int, int] = {}
    for n, kept in enumerate(new):
        if kept is not None:
            at[n] = len(at)
    out: list[Code] = []
    for kept in new:
        if kept is not None:
            number, a, b, c, d = kept
            out.append((number, at.get(a, a), at.get(b, b), at.get(c, c), at.get(d, d)))
    return [at.get(x, x) for x in ids], out, [w for w, kept in zip(widths, new, strict=True) if kept is not None]


def _pairs() -> dict[tuple[int, int, bool], int]:
    """Instruction, the one that reads it, whether as its first source: what does both."""
    if not _paired:
        for first, second, left, both in _PAIRS:
            if both in _numbers:
                _paired[_numbers[first], _numbers[second], left] = _numbers[both]
    return _paired


Code = tuple[int, int, int, int, int]
_paired: dict[tuple[int, int, bool], int] = {}
_PAIRS = (
    ("mul_f", "add_f", True, "muladd_f"),
    ("mul_f", "add_f", False, "muladd_f"),
    ("mul_f", "sub_f", True, "mulsub_f"),
    ("mul_f", "sub_f", False, "submul_f"),
    ("mul_f", "mul_f", True, "mulmul_f"),
    ("mul_f", "mul_f", False, "mulmul_f"),
    ("add_f", "add_f", True, "addadd_f"),
    ("add_f", "add_f", False, "addadd_f"),
)
CONST = 1 << 40  # ids from here on are constants
_ZEROS = {n: (-1,) * (4 - n) for n in range(5)}  # ~0: register 0, which an unused source may name


def _mul_nz(g: Program, x: Any, y: Any) -> Any:
    """x * y, 0 where either is 0."""
    zero = Const(0, x.dtype)
    either = g.op("or", g.op("eq", x, zero), g.op("eq", y, zero))
    return g.op("select", either, zero, g.op("mul", x, y))


def _div_nz(g: Program, x: Any, y: Any) -> Any:
    """x / y, 0 where x is 0."""
    zero = Const(0, x.dtype)
    return g.op("select", g.op("eq", x, zero), zero, g.op("div", x, y))


_COMPOSED = {
    ("mul_nz", "f"): _mul_nz,
    ("div_nz", "f"): _div_nz,
    ("square", "i"): lambda g, x: g.op("mul", x, x),
    ("square", "u"): lambda g, x: g.op("mul", x, x),
    ("sign", "u"): lambda g, x: g.op("min", x, Const(1, dtypes.uint32)),
    ("abs", "u"): lambda g, x: x,
}
