"""What reductions keep while they run, and how the invocations of a group join theirs, always in the same order."""

from __future__ import annotations

from collections.abc import Sequence

from funcgrad.runtime.kinds import REDUCTIONS
from funcgrad.runtime.spirv.instructions import BF16, F16, F32, I32, Unsupported
from funcgrad.runtime.spirv.kernel import Kernel, Shared, Value
from funcgrad.runtime.spirv.math import exp, log
from funcgrad.runtime.spirv.pairs import absolute, pair_multiply, two_sum

__all__ = ["FLOATS", "Fold", "GroupFold", "join_all", "make_fold"]

SUM, MAX, MIN, PROD, ARGMAX, ARGMIN, ANY, ALL, LOGSUMEXP = REDUCTIONS.values()
FLOATS = (F32, F16, BF16)
State = list[Value]


class Fold:
    """A sum, or what is like one: of nothing, of one more element, of two parts, and the result.

    ``types`` has the type of each value that is kept.  Elements are float32, int32 or uint32 (truth values too).
    """

    types = "f"

    def empty(self, k: Kernel) -> State:
        """Of no elements."""
        raise NotImplementedError

    def take(self, a: State, x: Value, index: Value) -> State:
        """With one element more; indices grow."""
        raise NotImplementedError

    def join(self, a: State, b: State) -> State:
        """Of two parts."""
        raise NotImplementedError

    def finish(self, a: State) -> Value:
        """The result."""
        return a[0]

    def several(self, a: State, xs: Sequence[Value], indices: Sequence[Value]) -> State:
        """With several elements more."""
        for x, i in zip(xs, indices, strict=True):
            a = self.take(a, x, i)
        return a

    def some(self, a: State, xs: Sequence[Value], indices: Sequence[Value], there: Sequence[Value]) -> State:
        """With those elements more that are there."""
        for x, i, mask in zip(xs, indices, there, strict=True):
            a = [x.k.select(mask, new, old) for new, old in zip(self.take(a, x, i), a, strict=True)]
        return a


class FloatSum(Fold):
    """A sum and what its roundings lost."""

    types = "ff"

    def empty(self, k: Kernel) -> State:
        return [k.const(0.0, "f"), k.const(0.0, "f")]

    def take(self, a: State, x: Value, index: Value) -> State:
        s, e = two_sum(a[0], x)
        return [s, a[1] + e]

    def several(self, a: State, xs: Sequence[Value], indices: Sequence[Value]) -> State:
        terms = list(xs)
        while len(terms) > 1:  # a few in float32: their error is far below that of rounding the elements
            terms = [terms[i] + terms[i + 1] for i in range(0, len(terms) - 1, 2)] + terms[len(terms) & ~1 :]
        return self.take(a, terms[0], indices[0])

    def some(self, a: State, xs: Sequence[Value], indices: Sequence[Value], there: Sequence[Value]) -> State:
        zero = xs[0].k.const(0.0, "f")
        return self.several(a, [x.k.select(mask, x, zero) for x, mask in zip(xs, there, strict=True)], indices)

    def join(self, a: State, b: State) -> State:
        s, e = two_sum(a[0], b[0])
        return [s, e + (a[1] + b[1])]

    def finish(self, a: State) -> Value:
        """Where the sum is infinite or NaN, what was lost has no meaning."""
        return a[0].k.select(absolute(a[0]) < float("inf"), a[0] + a[1], a[0])


class PlainSum(Fold):
    """A float32 sum of few terms."""

    def empty(self, k: Kernel) -> State:
        return [k.const(0.0, "f")]

    def take(self, a: State, x: Value, index: Value) -> State:
        return [a[0] + x]

    def join(self, a: State, b: State) -> State:
        return [a[0] + b[0]]


class Integers(Fold):
    """A sum or product of integers modulo 2^32."""

    types = "u"

    def __init__(self, product: bool) -> None:
        self.product = product

    def empty(self, k: Kernel) -> State:
        return [k.const(int(self.product), "u")]

    def take(self, a: State, x: Value, index: Value) -> State:
        return self.join(a, [x.bits()])

    def join(self, a: State, b: State) -> State:
        return [a[0] * b[0] if self.product else a[0] + b[0]]


class Extreme(Fold):
    """The largest or smallest element; NaN wins."""

    def __init__(self, t: str, least: bool) -> None:
        self.types, self.least = t, least

    def empty(self, k: Kernel) -> State:
        if self.types == "f":
            return [k.const(float("inf") if self.least else float("-inf"), "f")]
        low, high = (0, 0xFFFFFFFF) if self.types == "u" else (-(1 << 31), 0x7FFFFFFF)
        return [k.const(high if self.least else low, self.types)]

    def take(self, a: State, x: Value, index: Value) -> State:
        return self.join(a, [x])

    def join(self, a: State, b: State) -> State:
        x = b[0]
        wins = x < a[0] if self.least else x > a[0]
        if self.types == "f":
            wins = wins | x.ne(x)
        return [x.k.select(wins, x, a[0])]


class Position(Fold):
    """The first place of the largest or smallest element, or of the first NaN."""

    def __init__(self, t: str, least: bool) -> None:
        self.types, self.least = t + "u", least

    def empty(self, k: Kernel) -> State:
        return [k.const(0, self.types[0]), k.const(0xFFFFFFFF, "u")]

    def take(self, a: State, x: Value, index: Value) -> State:
        return self.join(a, [x, index])

    def join(self, a: State, b: State) -> State:
        (x, i), (y, j) = a, b
        better, equal = (y < x if self.least else y > x), y.eq(x)
        if self.types[0] == "f":
            x_nan, y_nan = x.ne(x), y.ne(y)
            better, equal = (better | y_nan) & ~x_nan, equal | (x_nan & y_nan)
        none = 0xFFFFFFFF
        wins = j.ne(none) & (i.eq(none) | better | (equal & (j < i)))
        return [x.k.select(wins, y, x), x.k.select(wins, j, i)]

    def finish(self, a: State) -> Value:
        return a[1].bits("i")


class FloatProduct(Fold):
    """A product as a pair times a power of two, so that no part of it overflows."""

    types = "ffi"

    def empty(self, k: Kernel) -> State:
        return [k.const(1.0, "f"), k.const(0.0, "f"), k.const(0, "i")]

    def take(self, a: State, x: Value, index: Value) -> State:
        k = x.k
        u = x.bits() & 0x7FFFFFFF
        whole = k.unary("ConvertUToF", u, "f")
        sign = x.bits() & 0x80000000
        tiny = (u < 0x00800000) & u.ne(0)  # a denormal is an integer times 2^-149
        y = k.select(tiny, (whole.bits() | sign).bits("f"), x)
        return self.join(a, [y, k.const(0.0, "f"), k.select(tiny, k.const(-149, "i"), 0)])

    def join(self, a: State, b: State) -> State:
        (x, x_low, e), (y, y_low, f) = self._apart(a), self._apart(b)
        p, low = pair_multiply((x, x_low), (y, y_low))
        k, plain = x.k, x * y
        finite = absolute(plain) < float("inf")
        return [k.select(finite, p, plain), k.select(finite, low, k.const(0.0, "f")), e + f]

    def _apart(self, a: State) -> State:
        """With the first number in [1, 2), or 0, infinite or NaN."""
        k = a[0].k
        e = ((a[0].bits() >> 23) & 255).bits("i")
        plain = e.eq(0) | e.eq(255)
        n = k.select(plain, k.const(0, "i"), e - 127)
        s = ((k.const(127, "i") - n) << 23).bits("f")
        high = (a[0].bits() - (n << 23).bits("u")).bits("f")
        return [high, a[1] * s, a[2] + n]

    def finish(self, a: State) -> Value:
        k = a[0].k
        x, low, e = self._apart(a)
        e = k.select(e > 300, k.const(300, "i"), k.select(e < -300, k.const(-300, "i"), e))
        third = e >> 2
        x = x + low
        for n in (third, third, third, e - third * 3):
            x = x * ((n + 127) << 23).bits("f")
        return x


class LogSumExp(Fold):
    """The largest element and the sum of e^(x - largest)."""

    types = "ff"

    def empty(self, k: Kernel) -> State:
        return [k.const(float("-inf"), "f"), k.const(0.0, "f")]

    def take(self, a: State, x: Value, index: Value) -> State:
        return self.join(a, [x, x.k.const(1.0, "f")])

    def join(self, a: State, b: State) -> State:
        k = a[0].k
        m = k.select((b[0] > a[0]) | b[0].ne(b[0]), b[0], a[0])
        terms = [k.select(v[0].eq(m), v[1], v[1] * exp(v[0] - m)) for v in (a, b)]
        return [m, terms[0] + terms[1]]

    def finish(self, a: State) -> Value:
        finite = absolute(a[0]) < float("inf")
        return a[0].k.select(finite, a[0] + log(a[1]), a[0])


def make_fold(op: int, dtype: int) -> Fold:
    """What REDUCE's operation keeps for elements of a dtype."""
    t = "f" if dtype in FLOATS else "i" if dtype == I32 else "u"
    if op in (ARGMAX, ARGMIN):
        return Position(t, op == ARGMIN)
    if op in (MAX, MIN, ANY, ALL):
        return Extreme(t, op in (MIN, ALL))
    if op == LOGSUMEXP and t == "f":
        return LogSumExp()
    if op == SUM:
        return FloatSum() if t == "f" else Integers(False)
    if op == PROD:
        return FloatProduct() if t == "f" else Integers(True)
    raise Unsupported(f"reduce: operation {op} of elements of dtype {dtype}")


def join_all(fold: Fold, parts: Sequence[State]) -> State:
    """Of several parts, as a tree."""
    parts = list(parts)
    while len(parts) > 1:
        paired = [fold.join(parts[i], parts[i + 1]) for i in range(0, len(parts) - 1, 2)]
        parts = paired + parts[len(parts) & ~1 :]
    return parts[0]


class GroupFold:
    """Joins the states of ``n`` invocations (a power of two) for each of several results of a group.

    Invocation ``member`` of result ``result`` has number ``member + result * n`` in the group when ``close``, else
    ``member * results + result``.  Two sets of shared arrays take turns: whoever writes one has seen all others pass
    the barrier after their last reading of it.
    """

    def __init__(self, k: Kernel, n: int, results: int, close: bool, member: Value, result: Value) -> None:
        self.k, self.n, self.results, self.close = k, n, results, close
        self.member, self.result = member, result
        lanes = k.target.subgroup if close and k.target.subgroup_arithmetic else 1
        self.lanes = min(n, lanes if lanes & (lanes - 1) == 0 else 1)
        self.subgroup = k.target.subgroup if self.lanes > 1 else 0  # the size that this relies on
        self._shared: dict[tuple[int, int, str], Shared] = {}
        self._turn = 0

    def _array(self, number: int, t: str) -> Shared:
        key = (self._turn, number, t)
        if key not in self._shared:
            self._shared[key] = self.k.shared(t, self.n // self.lanes * self.results)
        return self._shared[key]

    def _arrays(self, fold: Fold) -> list[Shared]:
        self._turn ^= 1
        return [self._array(number, t) for number, t in enumerate(fold.types)]

    def _at(self, member: Value | int, n: int) -> Value:
        member = self.k.value(member, "u")
        if self.close:
            return member + self.result * (self.n // self.lanes)
        return member * self.results + self.result

    def __call__(self, fold: Fold, state: State) -> State:
        """The joined state, in every invocation; all of the group must come here."""
        k, mask = self.k, 1
        while mask < self.lanes:
            state = fold.join(state, [k.shuffle_xor(v, mask) for v in state])
            mask *= 2
        n = self.n // self.lanes
        if n == 1:
            return state
        member, first = self.member // self.lanes, None
        if self.lanes > 1:
            first = (self.member & (self.lanes - 1)).eq(0)
        arrays = self._arrays(fold)
        self._put(arrays, self._at(member, n), state, first)
        while n > 16:
            few = n // 16
            with k.if_(member < few if first is None else (member < few) & first):
                parts = [[a.load(self._at(member + j * few, n)) for a in arrays] for j in range(16)]
                arrays = self._arrays(fold)
                self._put(arrays, self._at(member, n), join_all(fold, parts), None, wait=False)
            k.barrier()
            n = few
        return join_all(fold, [[a.load(self._at(j, n)) for a in arrays] for j in range(n)])

    def _put(self, arrays: Sequence[Shared], at: Value, state: State, mask: Value | None, wait: bool = True) -> None:
        if mask is None:
            for a, v in zip(arrays, state, strict=True):
                a.store(at, v)
        else:
            with self.k.if_(mask):
                for a, v in zip(arrays, state, strict=True):
                    a.store(at, v)
        if wait:
            self.k.barrier()
