"""The intermediate representation: abstract values, variables, equations, graphs; their check and their printed form.

A graph is a list of equations in the order in which they run, each variable written once::

    { a: f32[2,3], b: f32[3] .
      c: f32[2,3] = broadcast(shape=(2, 3), dims=(1,)) b
      d: f32[2,3] = add a c
      return d }
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from funcgrad import dtypes
from funcgrad.errors import ShapeError, Site, message

if TYPE_CHECKING:
    from funcgrad.primitive import Primitive

__all__ = ["Atom", "Aval", "Equation", "Graph", "Literal", "Var", "check_graph", "count_uses", "format_graph"]

MAX_ELEMENTS = 2**31 - 1
MAX_RANK = 16
LEFT, RIGHT = 40, 100  # printed results and equations longer than these are not aligned with
_interned: dict[tuple[tuple[int, ...], Any], Aval] = {}


class Aval:
    """A shape and a dtype: all that a graph knows of a value.  Equal ones are usually the same object.

    >>> Aval((2, 3), dtypes.float32)
    f32[2,3]
    """

    __slots__ = ("_hash", "dtype", "nbytes", "ndim", "shape", "size")
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    ndim: int
    size: int
    nbytes: int
    _hash: int

    def __new__(cls, shape: Sequence[int], dtype: Any) -> Aval:
        """Intern by shape and dtype, so that equality is mostly identity."""
        key = (tuple(shape), dtype)
        found = _interned.get(key)
        if found is not None:
            return found
        self = object.__new__(cls)
        self.shape = _checked_shape(key[0])
        self.dtype = dtype if isinstance(dtype, np.dtype) else dtypes.as_dtype(dtype)
        self.ndim, self.size = len(self.shape), math.prod(self.shape)
        self.nbytes = self.size * self.dtype.itemsize
        self._hash = hash((self.shape, self.dtype))
        if len(_interned) > 100_000:
            _interned.clear()
        _interned[key] = self
        return self

    def __init__(self, shape: Sequence[int], dtype: Any):
        """See ``__new__``."""

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        return isinstance(other, Aval) and self.shape == other.shape and self.dtype == other.dtype

    def __hash__(self) -> int:
        return self._hash

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError(message("len", "an array of rank 0 has no length", str(self), "x.size is 1"))
        return self.shape[0]

    def __repr__(self) -> str:
        return f"{dtypes.SHORT[self.dtype]}[{','.join(map(str, self.shape))}]"

    def __reduce__(self) -> Any:
        return Aval, (self.shape, self.dtype)


def _checked_shape(shape: tuple[Any, ...]) -> tuple[int, ...]:
    out = tuple(int(d) for d in shape)
    if any(d < 0 for d in out):
        raise ShapeError(message("shape", "dimensions must not be negative", str(out), "-1 is for reshape only"))
    if len(out) > MAX_RANK:
        raise ShapeError(
            message("shape", f"rank must be at most {MAX_RANK}", f"{len(out)} in {out}", "merge axes by reshape")
        )
    if math.prod(out) > MAX_ELEMENTS:
        way_out = "split the array along its first axis, or loop over it with lax.scan"
        raise ShapeError(message("shape", "an array must have fewer than 2^31 elements", str(out), way_out))
    return out


class Var:
    """A variable of a graph, written once.  Two variables are the same only if they are one object."""

    __slots__ = ("aval",)

    def __init__(self, aval: Aval):
        self.aval = aval

    def __repr__(self) -> str:
        return f"Var({self.aval})"


class Literal:
    """A scalar constant inside an equation."""

    __slots__ = ("aval", "value")

    def __init__(self, value: Any, dtype: np.dtype[Any]):
        self.value: np.ndarray[Any, Any] = dtypes.narrow(value, dtype).reshape(())
        self.aval = Aval((), dtype)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Literal) and self.key() == other.key()

    def __hash__(self) -> int:
        return hash(self.key())

    def key(self) -> tuple[Any, bytes]:
        """What makes two literals the same: dtype and bits."""
        return self.aval.dtype, self.value.tobytes()

    def item(self) -> float | int | bool:
        """Return the value as a Python scalar."""
        value: float | int | bool = dtypes.widen(self.value).item()
        return value

    def __repr__(self) -> str:
        return f"{self.item()}"


Atom: TypeAlias = "Var | Literal"


class Equation:
    """One primitive applied to atoms: ``outputs = prim inputs``, and where the user wrote it."""

    __slots__ = ("inputs", "outputs", "prim", "site")

    def __init__(self, prim: Primitive, inputs: Sequence[Atom], outputs: Sequence[Var], site: Site | None = None):
        self.prim, self.site = prim, site
        self.inputs: tuple[Atom, ...] = tuple(inputs)
        self.outputs: tuple[Var, ...] = tuple(outputs)

    def __repr__(self) -> str:
        names = Names()
        return _format_equation(self, names)


class Graph:
    """A pure function of arrays as data: input variables, equations in order, output atoms.

    ``memo`` holds what passes derived from this graph, so that it is derived once.
    """

    __slots__ = ("__weakref__", "eqns", "inputs", "memo", "name", "outputs")

    def __init__(self, inputs: Sequence[Var], eqns: Sequence[Equation], outputs: Sequence[Atom], name: str = ""):
        self.inputs: tuple[Var, ...] = tuple(inputs)
        self.eqns: tuple[Equation, ...] = tuple(eqns)
        self.outputs: tuple[Atom, ...] = tuple(outputs)
        self.name = name
        self.memo: dict[Any, Any] = {}

    @property
    def in_avals(self) -> tuple[Aval, ...]:
        """The types of the inputs."""
        return tuple([v.aval for v in self.inputs])

    @property
    def out_avals(self) -> tuple[Aval, ...]:
        """The types of the outputs."""
        return tuple([a.aval for a in self.outputs])

    def __repr__(self) -> str:
        return format_graph(self)

    def as_text(self, sites: bool = False) -> str:
        """Return the graph as text; ``sites`` adds the user's source lines.  A notebook shows it as a table."""
        return format_graph(self, sites=sites)


def subgraphs(eqn_or_prim: Any) -> Iterator[Graph]:
    """Yield the graphs that a primitive holds as parameters."""
    prim = getattr(eqn_or_prim, "prim", eqn_or_prim)
    for value in vars(prim).values():
        for v in value if isinstance(value, tuple) else (value,):
            if isinstance(v, Graph):
                yield v


def count_uses(eqns: Iterable[Equation], results: Iterable[Any]) -> dict[Any, int]:
    """Count how often equations, and whoever takes the results, read each value."""
    uses: dict[Any, int] = {}
    for eqn in eqns:
        for a in eqn.inputs:
            uses[a] = uses.get(a, 0) + 1
    for a in results:
        uses[a] = uses.get(a, 0) + 1
    return uses


def check_graph(graph: Graph) -> None:
    """Raise AssertionError unless the graph is well formed: written before read, written once, types as inferred."""
    seen: set[Var] = set()
    for v in graph.inputs:
        assert v not in seen, "an input is listed twice"
        seen.add(v)
    for eqn in graph.eqns:
        for a in eqn.inputs:
            assert isinstance(a, Literal) or a in seen, f"{eqn.prim} reads a variable before it is written"
        inferred = eqn.prim.infer_all(*[a.aval for a in eqn.inputs])
        assert tuple(inferred) == tuple(v.aval for v in eqn.outputs), f"{eqn.prim}: {inferred} is not the type written"
        for v in eqn.outputs:
            assert v not in seen, f"{eqn.prim} writes a variable twice"
            seen.add(v)
        for g in subgraphs(eqn):
            check_graph(g)
    for a in graph.outputs:
        assert isinstance(a, Literal) or a in seen, "an output is never written"


class Names:
    """Short names for variables in the order in which they are met: a, b, ..., z, aa, ab, ..."""

    def __init__(self) -> None:
        self._names: dict[Var, str] = {}

    def __getitem__(self, atom: Atom) -> str:
        if isinstance(atom, Literal):
            return f"{atom}:{atom.aval}"
        if atom not in self._names:
            self._names[atom] = _letters(len(self._names))
        return self._names[atom]


def _letters(n: int) -> str:
    out = ""
    n += 1
    while n:
        n, r = divmod(n - 1, 26)
        out = chr(97 + r) + out
    return out


def _typed(names: Names, vs: Iterable[Var]) -> str:
    return ", ".join(f"{names[v]}: {v.aval}" for v in vs)


def _format_equation(eqn: Equation, names: Names, width: int = 0) -> str:
    left = _typed(names, eqn.outputs)
    return f"{left:<{width}} = {eqn.prim} {' '.join(names[a] for a in eqn.inputs)}".rstrip()


def format_graph(graph: Graph, indent: str = "", sites: bool = False) -> str:
    """Print a graph as aligned text; ``sites`` adds the user's source lines."""
    names = Names()
    head = f"{indent}{{ {_typed(names, graph.inputs)} ."
    lines = [head]
    width = max((n for e in graph.eqns if (n := len(_typed(names, e.outputs))) <= LEFT), default=0)
    texts = [f"{indent}  {_format_equation(eqn, names, width)}" for eqn in graph.eqns]
    column = max((len(t) for t in texts if len(t) <= RIGHT), default=0)
    for eqn, text in zip(graph.eqns, texts, strict=True):
        lines.append(f"{text:<{column}}  # {eqn.site}" if sites and eqn.site else text)
        lines += [format_graph(g, indent + "    ", sites) for g in subgraphs(eqn)]
    lines.append(f"{indent}  return {', '.join(names[a] for a in graph.outputs)} }}")
    return "\n".join(lines)
