"""Einstein summation: products of arrays with named axes, summed over the names that the result lacks."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from funcgrad import dtypes
from funcgrad.errors import ShapeError, message
from funcgrad.numpy.precision import resolve_precision
from funcgrad.numpy.promotion import array_of, cast, dense, promote_args, result_dtype
from funcgrad.prims import contract, layout, pointwise

__all__ = ["einsum", "einsum_path"]

Label = Any  # a letter, an integer, or ("...", position from the last) for an axis under an ellipsis
Labels = tuple[Label, ...]


class Term(NamedTuple):
    """A value and the names of its axes, all different."""

    value: Any
    labels: Labels


# -- two operands ------------------------------------------------------------------------------------------------
def contract_pair(x: Term, y: Term, keep: Sequence[Label], precision: str | None = None) -> Term:
    """The product of two terms, summed over the names that both have and ``keep`` lacks."""
    summed = [a for a in x.labels if a in y.labels and a not in keep]
    shared = [a for a in x.labels if a in y.labels and a in keep]
    left = [a for a in x.labels if a not in y.labels]
    right = [a for a in y.labels if a not in x.labels]
    if not summed:
        return _multiply(x, y, keep)
    if _order([*shared, *right, *left], keep) and not _order([*shared, *left, *right], keep):
        x, y, left, right = y, x, right, left
    lhs, rhs = [[tuple([t.labels.index(a) for a in names]) for names in (summed, shared)] for t in (x, y)]
    out = contract.dot_general(x.value, y.value, lhs[0], rhs[0], lhs[1], rhs[1], precision)
    return Term(out, (*shared, *left, *right))


def _order(labels: Sequence[Label], keep: Sequence[Label]) -> bool:
    """Whether names come in the order of ``keep``."""
    places = [list(keep).index(a) for a in labels if a in keep]
    return places == sorted(places)


def _multiply(x: Term, y: Term, keep: Sequence[Label]) -> Term:
    """The product without a sum: both broadcast to all names, in the order of ``keep``."""
    sizes = dict(zip(x.labels, x.value.aval.shape, strict=True)) | dict(zip(y.labels, y.value.aval.shape, strict=True))
    labels = tuple([a for a in keep if a in sizes] + [a for a in sizes if a not in keep])
    shape = [sizes[a] for a in labels]
    operands = [_spread(t, labels, shape) for t in (x, y)]
    return Term(pointwise.mul(*operands), labels)


def _spread(t: Term, labels: Labels, shape: Sequence[int]) -> Any:
    if not t.labels:
        return t.value
    inner = arrange(t, [a for a in labels if a in t.labels])
    return layout.broadcast(inner, shape, [i for i, a in enumerate(labels) if a in t.labels])


def arrange(t: Term, labels: Sequence[Label]) -> Any:
    """The value with its axes in the order of ``labels``."""
    return layout.transpose(t.value, [t.labels.index(a) for a in labels])


def sum_out(t: Term, keep: Sequence[Label]) -> Term:
    """The term summed over the names that ``keep`` lacks."""
    axes = tuple([i for i, a in enumerate(t.labels) if a not in keep])
    return Term(layout.reduce_sum(t.value, axes), tuple([a for a in t.labels if a in keep]))


def take_diagonals(t: Term) -> Term:
    """The term with each repeated name once: the elements where its axes have equal indices."""
    labels, x = list(t.labels), t.value
    for a in dict.fromkeys(labels):
        while labels.count(a) > 1:
            i = labels.index(a)
            j = labels.index(a, i + 1)
            rest = [d for d in range(len(labels)) if d not in (i, j)]
            n = x.aval.shape[i]
            if n != x.aval.shape[j]:
                got = f"{n} and {x.aval.shape[j]} for {a!r}"
                raise ShapeError(
                    message("einsum", "axes with one name must have one size", got, "give the axes different names")
                )
            shape = [x.aval.shape[d] for d in rest]
            flat = layout.reshape(layout.transpose(x, (*rest, i, j)), (*shape, n * n))
            low, step = [0] * (len(rest) + 1), [1] * len(rest) + [n + 1]
            x = layout.slice_(flat, low, flat.aval.shape, step)
            labels = [labels[d] for d in rest] + [a]
    return Term(x, tuple(labels))


# -- any number --------------------------------------------------------------------------------------------------
def contract_terms(terms: Sequence[Term], out: Labels, precision: str | None = None) -> Any:
    """The product of all terms summed over the names that ``out`` lacks, its axes in the order of ``out``."""
    terms = _without_broadcast_axes([take_diagonals(t) for t in terms])
    for i, j in _path([t.labels for t in terms], _sizes(terms), out):
        terms = _sum_alone(terms, out)
        rest = [t for k, t in enumerate(terms) if k not in (i, j)]
        needed = [*out, *[a for t in rest for a in t.labels if a not in out]]
        terms = [*rest, contract_pair(terms[i], terms[j], list(dict.fromkeys(needed)), precision)]
    (last,) = _sum_alone(terms, out)
    return arrange(last, out)


def _sum_alone(terms: Sequence[Term], out: Labels) -> list[Term]:
    """The terms, each summed over the names that neither another term nor ``out`` has."""
    made = list(terms)
    for k, t in enumerate(made):
        others = [u.labels for m, u in enumerate(made) if m != k]
        made[k] = sum_out(t, [*out, *itertools.chain.from_iterable(others)])
    return made


def _sizes(terms: Sequence[Term]) -> dict[Label, int]:
    sizes: dict[Label, int] = {}
    for t in terms:
        for a, n in zip(t.labels, t.value.aval.shape, strict=True):
            if sizes.setdefault(a, n) != n:
                got = f"{sizes[a]} and {n} for {a!r}"
                raise ShapeError(
                    message("einsum", "axes with one name must have one size", got, "give the axes different names")
                )
    return sizes


def _without_broadcast_axes(terms: Sequence[Term]) -> list[Term]:
    """Drop axes of size 1 whose name has another size elsewhere: they broadcast."""
    wide = {a for t in terms for a, n in zip(t.labels, t.value.aval.shape, strict=True) if n != 1}
    out = []
    for t in terms:
        keep = [i for i, (a, n) in enumerate(zip(t.labels, t.value.aval.shape, strict=True)) if n != 1 or a not in wide]
        shape = [t.value.aval.shape[i] for i in keep]
        out.append(Term(layout.reshape(t.value, shape), tuple([t.labels[i] for i in keep])))
    return out


def _path(labels: Sequence[Labels], sizes: dict[Label, int], out: Labels) -> list[tuple[int, int]]:
    """Which two terms to multiply, step by step, the product going to the end: the cheapest of all orders for up to
    five terms, else always the cheapest next step."""
    search = _all_paths if len(labels) <= 5 else _greedy_path
    return search([frozenset(t) for t in labels], sizes, frozenset(out))[1]


def _merged(terms: Sequence[frozenset[Label]], i: int, j: int, out: frozenset[Label]) -> list[frozenset[Label]]:
    rest = [t for k, t in enumerate(terms) if k not in (i, j)]
    return [*rest, (terms[i] | terms[j]) & out.union(*rest)]


def _all_paths(
    terms: list[frozenset[Label]], sizes: dict[Label, int], out: frozenset[Label]
) -> tuple[int, list[tuple[int, int]]]:
    if len(terms) <= 1:
        return 0, []
    best: tuple[int, list[tuple[int, int]]] | None = None
    for i, j in itertools.combinations(range(len(terms)), 2):
        cost, path = _all_paths(_merged(terms, i, j, out), sizes, out)
        cost += math.prod(sizes[a] for a in terms[i] | terms[j])
        if best is None or cost < best[0]:
            best = cost, [(i, j), *path]
    assert best is not None
    return best


def _greedy_path(
    terms: list[frozenset[Label]], sizes: dict[Label, int], out: frozenset[Label]
) -> tuple[int, list[tuple[int, int]]]:
    path, total = [], 0
    while len(terms) > 1:
        costs = [
            (math.prod(sizes[a] for a in terms[i] | terms[j]), not terms[i] & terms[j], i, j)
            for i, j in itertools.combinations(range(len(terms)), 2)
        ]
        cost, _, i, j = min(costs)
        path.append((i, j))
        total += cost
        terms = _merged(terms, i, j, out)
    return total, path


# -- the notation ------------------------------------------------------------------------------------------------
def einsum(
    subscripts: Any,
    /,
    *operands: Any,
    out: None = None,
    optimize: Any = "optimal",
    precision: Any = None,
    preferred_element_type: Any = None,
) -> Any:
    """Return the product of arrays with named axes, summed over the names that are not in the result.

    Every form of numpy's: explicit and implicit results, an ellipsis for broadcast axes, a repeated name for a
    diagonal, and ``einsum(x, [0, 1], y, [1, 2], [0, 2])``.  The order of multiplication is chosen by cost.

    >>> fnp.einsum("ij,jk->ik", fnp.ones((2, 3)), fnp.ones((3, 1)))
    Array([[3.],
           [3.]], dtype=float32)
    """
    if out is not None:
        raise NotImplementedError(message("einsum", "out must be None: arrays are immutable"))
    inputs, result, arrays = _parse(subscripts, operands)
    xs = [dense(x) for x in promote_args("einsum", *arrays)]
    terms = [Term(x, _expand(labels, x.aval.ndim)) for labels, x in zip(inputs, xs, strict=True)]
    names = _result(terms, result)
    boolean = xs[0].aval.dtype == dtypes.bool_
    if boolean:
        terms = [Term(cast(t.value, dtypes.int32), t.labels) for t in terms]
    value = contract_terms(terms, names, resolve_precision("einsum", precision))
    value = cast(value, dtypes.bool_) if boolean else value
    return value if preferred_element_type is None else cast(value, result_dtype(preferred_element_type, None))


def einsum_path(subscripts: Any, /, *operands: Any, optimize: Any = "optimal") -> tuple[list[Any], str]:
    """Return the order in which ``einsum`` multiplies its operands, as numpy's list of positions, and a description.

    >>> fnp.einsum_path("ij,jk,kl->il", fnp.ones((2, 9)), fnp.ones((9, 9)), fnp.ones((9, 1)))[0]
    ['einsum_path', (1, 2), (0, 1)]
    """
    inputs, result, arrays = _parse(subscripts, operands)
    xs = [array_of("einsum_path", x) for x in arrays]
    terms = [Term(x, _expand(labels, x.aval.ndim)) for labels, x in zip(inputs, xs, strict=True)]
    names = _result(terms, result)
    kept = _without_broadcast_axes([take_diagonals(t) for t in terms])
    search = _all_paths if len(kept) <= 5 else _greedy_path
    cost, path = search([frozenset(t.labels) for t in kept], _sizes(kept), frozenset(names))
    return ["einsum_path", *path], f"multiplications: {cost}"


_ELLIPSIS = "..."


def _parse(subscripts: Any, operands: Sequence[Any]) -> tuple[list[list[Label]], list[Label] | None, list[Any]]:
    """The names of each operand's axes, those of the result (None: implicit), and the operands."""
    if isinstance(subscripts, str):
        left, arrow, right = subscripts.replace(" ", "").partition("->")
        inputs = [list(_letters(part)) for part in left.split(",")]
        if len(inputs) != len(operands):
            got = f"{len(inputs)} in {subscripts!r} and {len(operands)} operands"
            raise ValueError(message("einsum", "as many terms as operands are required", got))
        return inputs, list(_letters(right)) if arrow else None, list(operands)
    rest = [subscripts, *operands]
    result = [_integer_label(a) for a in rest.pop()] if len(rest) % 2 else None
    names = [[_integer_label(a) for a in labels] for labels in rest[1::2]]
    return names, result, rest[::2]


def _integer_label(a: Any) -> Label:
    return _ELLIPSIS if a is Ellipsis else int(a)


def _letters(text: str) -> Iterator[Label]:
    before, dots, behind = text.partition(_ELLIPSIS)
    for part in (before, behind):
        if not part.isalpha() and part:
            raise ValueError(message("einsum", "axis names must be letters", repr(text)))
    yield from before
    if dots:
        yield _ELLIPSIS
    yield from behind


def _expand(labels: Sequence[Label], ndim: int) -> Labels:
    """The names with an ellipsis replaced by one name for each axis that it covers."""
    named = [a for a in labels if a != _ELLIPSIS]
    covered = ndim - len(named)
    if covered < 0 or (covered and _ELLIPSIS not in labels):
        got = f"{len(named)} names for {ndim} axes"
        raise ShapeError(message("einsum", "an operand must have as many axes as names", got, "add an ellipsis"))
    out: list[Label] = []
    for a in labels:
        out += [(_ELLIPSIS, i) for i in range(covered, 0, -1)] if a == _ELLIPSIS else [a]
    return tuple(out)


def _result(terms: Sequence[Term], result: list[Label] | None) -> Labels:
    given = [a for t in terms for a in t.labels]
    hidden = sorted({a for a in given if isinstance(a, tuple)}, key=lambda a: -a[1])
    if result is None:
        named = [a for a in given if not isinstance(a, tuple)]
        return (*hidden, *sorted({a for a in named if named.count(a) == 1}))
    out: list[Label] = []
    for a in result:
        out += hidden if a == _ELLIPSIS else [a]
    if len(set(out)) != len(out) or any(a not in given for a in out):
        got = "".join(map(str, result))
        raise ValueError(message("einsum", "the result's names must be distinct and among the operands'", got))
    return tuple(out)
