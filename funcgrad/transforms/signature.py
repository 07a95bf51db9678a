"""What decides which trace of a jitted function a call uses, and how a call is read for it."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any, NamedTuple

from funcgrad import dtypes, tree
from funcgrad.array import Array, is_data, to_host
from funcgrad.errors import message
from funcgrad.ir import Aval
from funcgrad.numpy.precision import default_precision
from funcgrad.trace import Value, named_axes
from funcgrad.transforms.arguments import Chosen
from funcgrad.transforms.flat import argument_path, values_of, without_static

__all__ = ["CallReader", "Signature", "context", "differences", "leaf_paths"]

BRIEF = 160  # characters of an argument's types in a message


class Signature(NamedTuple):
    """What decides which trace a call uses."""

    treedef: tree.TreeDef
    avals: tuple[Aval, ...]
    static: tuple[tuple[Any, Any, type], ...]
    device: Any
    donated: frozenset[int]
    context: tuple[Any, ...]

    def __str__(self) -> str:
        args, kwargs = tree.unflatten(self.treedef, list(self.avals))
        shown = [_brief(a) for a in args] + [f"{k}={_brief(v)}" for k, v in kwargs.items()]
        shown += [f"static {k}={v!r}" for k, v, _ in self.static]
        return f"({', '.join(shown)}) on {self.device.name}"


def _brief(arg: Any) -> str:
    """An argument's types, or how many there are when they would fill lines."""
    text, leaves = str(arg), tree.leaves(arg)
    return text if len(text) <= BRIEF or len(leaves) < 2 else f"{type(arg).__name__} of {len(leaves)} arrays"


def differences(old: Signature, new: Signature) -> list[str]:
    """Return one line per difference between two signatures, by tree path."""
    lines = []
    if old.device is not new.device:
        lines.append(f"the device changed from {old.device.name} to {new.device.name}")
    before, after = [{k: (v, t) for k, v, t in s.static} for s in (old, new)]
    for key in sorted(before.keys() | after.keys(), key=str):
        pair = before.get(key), after.get(key)
        if pair[0] != pair[1]:
            shown = ["absent" if x is None else repr(x[0]) for x in pair]
            lines.append(f"static argument {key!r} changed from {shown[0]} to {shown[1]}")
    if old.context != new.context:
        names = ("the named axes", "the precision of matrix products")
        pairs = zip(names, old.context, new.context, strict=True)
        lines += [f"{name} changed from {a} to {b}" for name, a, b in pairs if a != b]
    if old.donated != new.donated:
        lines.append("other leaves are donated")
    if old.treedef != new.treedef:
        lines.append(f"the structure changed from {old.treedef} to {new.treedef}")
        return lines
    for path, a, b in zip(leaf_paths(new), old.avals, new.avals, strict=True):
        if a != b:
            what = "dtype" if a.shape == b.shape else "shape"
            lines.append(f"the {what} of {path} changed from {a} to {b}")
    return lines


def leaf_paths(signature: Signature) -> list[str]:
    """Name each leaf of a call as a user would."""
    args = tree.unflatten(signature.treedef, list(signature.avals))
    return [argument_path(p) for p, _ in tree.leaves_with_path(args)]


def context() -> tuple[Any, ...]:
    """What a trace depends on beside its arguments: named axes and the precision of products."""
    return named_axes(), default_precision()


class CallReader:
    """Reads the calls of a function: what is static, the leaves of the rest, which of these are donated.

    ``options`` are those of jit.  Raises ValueError for an argument that is both static and donated.
    """

    def __init__(self, fun: Callable[..., Any], name: str, options: dict[str, Any]):
        self.fun, self.what = fun, f"jit of {name}"
        self.static, self.donate = self._chosen("static", options), self._chosen("donate", options)
        both: list[Any] = sorted(self.static.names & self.donate.names)
        both = both or sorted(set(self.static.nums) & set(self.donate.nums))
        if both:
            raise ValueError(message(self.what, "an argument may be static or donated, not both", str(both)))

    def _chosen(self, option: str, options: dict[str, Any]) -> Chosen:
        nums, names = options[f"{option}_argnums"], options[f"{option}_argnames"]
        return Chosen(self.fun, nums, names, option, self.what)

    def read(
        self, args: tuple[Any, ...], kwargs: dict[str, Any], dev: Any
    ) -> tuple[Signature, list[Any], Callable[..., Any]]:
        """The signature of a call, its leaves, and the function of what is not static."""
        static, names = self.static.positions(len(args)), self.static.names
        fixed = [(i, args[i]) for i in sorted(static)] + [(k, kwargs[k]) for k in sorted(names & set(kwargs))]
        for key, value in fixed:
            _check_hashable(key, value, self.what)
        dynamic, put = without_static(args, sorted(static), self.what)
        named = {k: v for k, v in kwargs.items() if k not in names}
        leaves, treedef = tree.flatten((dynamic, named))
        avals = tuple([_aval_of(x, (dynamic, named), self.what, dev) for x in leaves])
        donated = self._donated(len(args), static, dynamic, named)
        fun, fixed_kwargs = self.fun, {k: kwargs[k] for k in names & set(kwargs)}
        # 1, 1.0 and True are equal but trace differently, so the types of static values count too.
        marked = tuple([(k, v, type(v)) for k, v in fixed])
        signature = Signature(treedef, avals, marked, dev, donated, context())
        return signature, leaves, lambda xs, kw: fun(*put(xs), **kw, **fixed_kwargs)

    def _donated(self, count: int, static: set[int], dynamic: Any, named: Any) -> frozenset[int]:
        """The positions of the donated leaves."""
        if not self.donate:
            return frozenset()
        wanted = self.donate.positions(count)
        args = [(i in wanted, a) for i, a in zip([i for i in range(count) if i not in static], dynamic, strict=True)]
        args += [(k in self.donate.names, named[k]) for k in sorted(named)]
        marks = [mark for mark, arg in args for _ in tree.leaves(arg)]
        return frozenset([i for i, mark in enumerate(marks) if mark])


def _check_hashable(key: Any, value: Hashable, what: str) -> None:
    try:
        hash(value)
    except TypeError:
        got = f"{type(value).__name__} for {key!r}"
        raise ValueError(
            message(what, "a static argument must be hashable", got, "pass a tuple, or make it dynamic")
        ) from None


def _aval_of(x: Any, args: Any, what: str, dev: Any) -> Aval:
    """The type that a leaf will have on the device."""
    if isinstance(x, Array) and x.device is not dev:
        return Aval(x.aval.shape, dtypes.host_dtype(x.aval.dtype, dev.float64))
    if isinstance(x, Value):
        return x.aval
    if isinstance(x, Aval):
        return x
    if not is_data(x):
        values_of(args, what, argument_path)  # raises with the path
    host = to_host(x, None, dev.float64)
    return Aval(host.shape, host.dtype)
