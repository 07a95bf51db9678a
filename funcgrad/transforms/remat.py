"""checkpoint: compute again in the backward half instead of keeping; and the policies that say what to keep."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

from funcgrad import tree
from funcgrad.array import as_value
from funcgrad.control.call import Checkpoint, Name
from funcgrad.ir import Equation
from funcgrad.passes.simplify import dead_code
from funcgrad.trace import bind, bind_all, current_builder, trace
from funcgrad.transforms.flat import (
    FlatFunction,
    argument_path,
    avals_of,
    label,
    materialize,
    name_of,
    values_of,
    without_static,
)

__all__ = ["checkpoint", "checkpoint_name", "checkpoint_policies", "remat"]

Policy = Callable[[Equation], bool]


def checkpoint(
    fun: Callable[..., Any] | None = None,
    *,
    policy: Policy | None = None,
    static_argnums: int | Sequence[int] = (),
    prevent_cse: bool = True,
) -> Callable[..., Any]:
    """Return ``fun`` such that its gradient computes the inner values again instead of keeping them.

    ``policy`` (see ``checkpoint_policies``) names values to keep all the same.  Arguments, results and closed-over
    arrays are kept; closed-over arrays get gradients.  Random keys are arguments, so what is drawn is drawn
    again.  ``prevent_cse`` is there for JAX programs: nothing is ever merged with the recomputation.

    >>> grad(checkpoint(lambda x: (x * x).sum()))(asarray([1.0, 2.0]))
    Array([2., 4.], dtype=float32)
    """
    if fun is None:
        return functools.partial(checkpoint, policy=policy, static_argnums=static_argnums)
    what = label("checkpoint", fun)
    function = fun

    @functools.wraps(fun)
    def checkpointed(*args: Any, **kwargs: Any) -> Any:
        met = getattr(_off, "met", None)
        if met is not None:
            met.append(what)
        if current_builder() is None or met is not None:
            return function(*args, **kwargs)
        dynamic, put = without_static(args, static_argnums, what)
        values, treedef = values_of((dynamic, kwargs), what, argument_path)
        flat = FlatFunction(lambda xs, kw: function(*put(xs), **kw), treedef, what, argument_path)
        traced = trace(flat, avals_of(values), values, name=what)
        prim = Checkpoint(dead_code(traced.graph), name_of(function), policy)
        outs = bind_all(prim, *traced.captured, *values)
        return tree.unflatten(flat.out_tree, [materialize(o) for o in outs])

    return checkpointed


remat = checkpoint
_off = threading.local()


@contextmanager
def without_checkpoint() -> Iterator[list[str]]:
    """Inside, checkpointed functions are called as if they were not; what was met is in the list."""
    saved, _off.met = getattr(_off, "met", None), []
    try:
        yield _off.met
    finally:
        _off.met = saved


def checkpoint_name(x: Any, name: str) -> Any:
    """Return ``x`` (any tree) under a name for ``save_only_these_names``.

    >>> checkpoint_name(asarray(1.0), "hidden")
    Array(1., dtype=float32)
    """
    if current_builder() is None:
        return x
    return tree.map(lambda leaf: bind(Name(name), as_value(leaf)), x)


# -- policies ----------------------------------------------------------------------------------------------------
def everything_saveable(eqn: Equation) -> bool:
    """Keep every value: as if there were no checkpoint."""
    return True


def nothing_saveable(eqn: Equation) -> bool:
    """Keep no value: the default."""
    return False


def dots_saveable(eqn: Equation) -> bool:
    """Keep the results of products and convolutions."""
    return eqn.prim.name in ("dot_general", "conv")


def dots_with_no_batch_dims_saveable(eqn: Equation) -> bool:
    """Keep the results of products without batch axes: those with weights, not attention's."""
    return eqn.prim.name == "dot_general" and not eqn.prim.params()["lhs_batch"]


def save_only_these_names(*names: str) -> Policy:
    """Keep what ``checkpoint_name`` named so, and nothing else."""
    return _Named(frozenset(names), True)


def save_any_names_but_these(*names: str) -> Policy:
    """Keep every named value but those."""
    return _Named(frozenset(names), False)


def save_from_both_policies(first: Policy, second: Policy) -> Policy:
    """Keep what either policy keeps."""
    return lambda eqn: first(eqn) or second(eqn)


class _Named:
    def __init__(self, names: frozenset[str], listed: bool):
        self.names, self.listed = names, listed

    def __call__(self, eqn: Equation) -> bool:
        return eqn.prim.name == "name" and (eqn.prim.params()["label"] in self.names) == self.listed


checkpoint_policies = SimpleNamespace(
    everything_saveable=everything_saveable,
    nothing_saveable=nothing_saveable,
    dots_saveable=dots_saveable,
    checkpoint_dots=dots_saveable,
    dots_with_no_batch_dims_saveable=dots_with_no_batch_dims_saveable,
    checkpoint_dots_with_no_batch_dims=dots_with_no_batch_dims_saveable,
    save_only_these_names=save_only_these_names,
    save_any_names_but_these=save_any_names_but_these,
    save_from_both_policies=save_from_both_policies,
)
