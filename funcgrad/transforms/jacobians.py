"""Jacobians and Hessians: all directions at once, by vmap of jvp or vjp."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from funcgrad import dtypes, tree
from funcgrad.array import asarray
from funcgrad.prims import layout
from funcgrad.transforms.autodiff import check_floats, check_real, linearize, vjp
from funcgrad.transforms.batching import vmap
from funcgrad.transforms.flat import (
    in_result,
    label,
    split_args,
    values_of,
)

__all__ = ["hessian", "jacfwd", "jacobian", "jacrev"]


def _basis(values: Sequence[Any]) -> list[Any]:
    """For leaves of n elements in all, n directions stacked on a leading axis: the unit vectors, leaf by leaf."""
    total = sum(v.aval.size for v in values)
    out, at = [], 0
    for v in values:
        eye = np.zeros((total, v.aval.size), np.float32)
        eye[at + np.arange(v.aval.size), np.arange(v.aval.size)] = 1
        out.append(asarray(dtypes.narrow(eye.reshape(total, *v.aval.shape), v.aval.dtype)))
        at += v.aval.size
    return out


def _rows(stacked: Any, values: Sequence[Any]) -> list[Any]:
    """Cut a leading axis of all directions into one array per leaf, its axes in place of the leading one."""
    out, at = [], 0
    for v in values:
        n = v.aval.size
        rows = layout.slice_along(stacked, 0, at, at + n)
        out.append(layout.reshape(rows, (*v.aval.shape, *stacked.aval.shape[1:])))
        at += n
    return out


def jacfwd(
    fun: Callable[..., Any], argnums: int | Sequence[int] = 0, has_aux: bool = False, holomorphic: bool = False
) -> Callable[..., Any]:
    """Return a function that gives the Jacobian by forward mode: one jvp per input element, all at once by vmap.

    The result has the structure of ``fun``'s, with the structure of the arguments inside; each leaf has the
    output's axes, then the input's.

    >>> jacfwd(lambda x: x * x)(asarray([1.0, 2.0]))
    Array([[2., 0.],
           [0., 4.]], dtype=float32)
    """
    what = label("jacfwd", fun)
    check_real(holomorphic, what)

    @functools.wraps(fun)
    def jacobian_of(*args: Any, **kwargs: Any) -> Any:
        args_in, put, naming = split_args(args, argnums, what)
        values, treedef = values_of(args_in, what, naming)
        check_floats(values, args_in, what, naming)

        def call(*xs: Any) -> Any:
            return fun(*put(xs), **kwargs)

        primals = tree.unflatten(treedef, values)
        result = linearize(call, *primals, has_aux=has_aux)
        push = result[1]
        basis = tree.unflatten(treedef, _basis(values))
        columns = vmap(lambda *ts: push(*ts))(*basis)

        def leaf(stacked: Any) -> Any:
            parts = []
            for rows, v in zip(_rows(stacked, values), values, strict=True):
                k = v.aval.ndim
                parts.append(layout.transpose(rows, (*range(k, rows.aval.ndim), *range(k))))
            inner = tree.unflatten(treedef, parts)
            return inner[0] if isinstance(argnums, int) else inner

        jac = tree.map(leaf, columns)
        return (jac, result[2]) if has_aux else jac

    return jacobian_of


def jacrev(
    fun: Callable[..., Any], argnums: int | Sequence[int] = 0, has_aux: bool = False, holomorphic: bool = False
) -> Callable[..., Any]:
    """Return a function that gives the Jacobian by reverse mode: one vjp per output element, all at once by vmap.

    See :func:`jacfwd` for the result's structure.

    >>> jacrev(lambda x: x * x)(asarray([1.0, 2.0]))
    Array([[2., 0.],
           [0., 4.]], dtype=float32)
    """
    what = label("jacrev", fun)
    check_real(holomorphic, what)

    @functools.wraps(fun)
    def jacobian_of(*args: Any, **kwargs: Any) -> Any:
        args_in, put, naming = split_args(args, argnums, what)
        values, treedef = values_of(args_in, what, naming)
        check_floats(values, args_in, what, naming)
        primals = tree.unflatten(treedef, values)
        result = vjp(lambda *xs: fun(*put(xs), **kwargs), *primals, has_aux=has_aux)
        outs, out_def = values_of(result[0], what, in_result)
        check_floats(outs, result[0], what, in_result)
        pulled = vmap(lambda ct: result[1](ct))(tree.unflatten(out_def, _basis(outs)))
        pulled = pulled[0] if isinstance(argnums, int) else pulled
        leaves, inner_def = tree.flatten(pulled)
        per_leaf = [_rows(stacked, outs) for stacked in leaves]
        jac = tree.unflatten(out_def, [tree.unflatten(inner_def, list(row)) for row in zip(*per_leaf, strict=True)])
        return (jac, result[2]) if has_aux else jac

    return jacobian_of


jacobian = jacrev


def hessian(
    fun: Callable[..., Any], argnums: int | Sequence[int] = 0, has_aux: bool = False, holomorphic: bool = False
) -> Callable[..., Any]:
    """Return a function that gives the matrix of second derivatives: forward over reverse.

    >>> hessian(lambda x: (x**3).sum())(asarray([1.0, 2.0]))
    Array([[ 6.,  0.],
           [ 0., 12.]], dtype=float32)
    """
    return jacfwd(jacrev(fun, argnums, has_aux, holomorphic), argnums, has_aux, holomorphic)
