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
from funcgrad.transforms.fitting import Fit, parse_bytes
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
    """Keep every value: as if there were no checkpoint.

    >>> from funcgrad.debug import saved_residuals
    >>> f = checkpoint(lambda x: fnp.exp(fnp.tanh(x)).sum(), policy=everything_saveable)
    >>> len(saved_residuals(f, asarray([1.0, 2.0]))) > 1
    True
    """
    return True


def nothing_saveable(eqn: Equation) -> bool:
    """Keep no value: the default.

    >>> from funcgrad.debug import saved_residuals
    >>> f = checkpoint(lambda x: fnp.exp(fnp.tanh(x)).sum(), policy=nothing_saveable)
    >>> [kept.source for kept in saved_residuals(f, asarray([1.0, 2.0]))]
    ['argument 0']
    """
    return False


def dots_saveable(eqn: Equation) -> bool:
    """Keep the results of products and convolutions.

    >>> from funcgrad.debug import saved_residuals
    >>> f = checkpoint(lambda w, x: fnp.tanh(x @ w).sum(), policy=dots_saveable)
    >>> [str(kept.aval) for kept in saved_residuals(f, fnp.ones((3, 4)), fnp.ones((2, 3)))]
    ['f32[2,4]', 'f32[3,4]', 'f32[2,3]']
    """
    return eqn.prim.name in ("dot_general", "conv")


def dots_with_no_batch_dims_saveable(eqn: Equation) -> bool:
    """Keep the results of products without batch axes: those with weights, not attention's.

    >>> from funcgrad.debug import saved_residuals
    >>> f = checkpoint(lambda a, b: fnp.tanh(a @ b).sum(), policy=dots_with_no_batch_dims_saveable)
    >>> len(saved_residuals(f, fnp.ones((2, 3)), fnp.ones((3, 4))))
    3
    >>> len(saved_residuals(f, fnp.ones((5, 2, 3)), fnp.ones((5, 3, 4))))
    2
    """
    return eqn.prim.name == "dot_general" and not eqn.prim.params()["lhs_batch"]


def save_only_these_names(*names: str) -> Policy:
    """Keep what ``checkpoint_name`` named so, and nothing else.

    >>> from funcgrad.debug import saved_residuals
    >>> f = lambda x: fnp.exp(checkpoint_name(fnp.tanh(x), "hidden")).sum()
    >>> len(saved_residuals(checkpoint(f, policy=save_only_these_names("hidden")), asarray([1.0, 2.0])))
    2
    >>> len(saved_residuals(checkpoint(f, policy=save_only_these_names("other")), asarray([1.0, 2.0])))
    1
    """
    return _Named(frozenset(names), True)


def save_any_names_but_these(*names: str) -> Policy:
    """Keep every named value but those.

    >>> from funcgrad.debug import saved_residuals
    >>> f = lambda x: fnp.exp(checkpoint_name(fnp.tanh(x), "hidden")).sum()
    >>> len(saved_residuals(checkpoint(f, policy=save_any_names_but_these("hidden")), asarray([1.0, 2.0])))
    1
    >>> len(saved_residuals(checkpoint(f, policy=save_any_names_but_these("other")), asarray([1.0, 2.0])))
    2
    """
    return _Named(frozenset(names), False)


def save_from_both_policies(first: Policy, second: Policy) -> Policy:
    """Keep what either policy keeps.

    >>> from funcgrad.debug import saved_residuals
    >>> policy = save_from_both_policies(dots_saveable, save_only_these_names("hidden"))
    >>> f = checkpoint(lambda w, x: fnp.exp(checkpoint_name(fnp.tanh(x @ w), "hidden")).sum(), policy=policy)
    >>> len(saved_residuals(f, fnp.ones((3, 4)), fnp.ones((2, 3))))
    4
    """
    return _Both(first, second)


def fit(budget: int | str) -> Policy:
    """Keep as much as fits a budget of memory: the planner's peak of the whole jitted program, in bytes.

    ``budget`` is a number of bytes, or text: "512MiB", "1.5GiB" (powers of 1024), "800MB" (powers of 1000).  Around a
    whole loss (scans in it are checkpointed as well), around each layer, or around the body of a scan: what is kept is
    chosen together for all checkpoints with this policy in the function given to ``jit``, by the plan of all of it,
    with arguments, results and donations.  If all fits, all is kept.  If not, the function is traced again, at most
    about ten times:

    1. with the least kept: each checkpointed graph is cut into pieces, and what crosses the cuts, where least does, is
       kept, as in Chen et al., *Training deep nets with sublinear memory cost* (arXiv:1604.06174).  How many pieces:
       the number m with the smallest ``sum(bytes across the m - 1 cuts) + max(bytes of residuals in a piece)``.
    2. then more of the residuals, by bisection over 32 levels, in the order of operations per byte, ``flops(v) /
       nbytes(v)``, which is the score of Kirisame et al., *Dynamic tensor rematerialization* (arXiv:2006.09616)
       without its staleness, with flops(v) of what computes v from inputs and other residuals.

    Every choice is planned in full, so the peak of what runs is within the budget exactly.  (Jain et al., *Checkmate*,
    arXiv:1910.02653, solve the choice as an integer program; that takes longer than to train.)  The recomputation is
    done piece by piece as the backward half needs it.  Values and gradients are those of the function without
    checkpoints.

    As a part of ``save_from_both_policies`` it keeps everything.

    Raises ValueError for a budget that is no positive number of bytes, MemoryBudgetError (when compiled) if none of
    the choices fits, with the least peak found.  Of several budgets in one program the smallest counts.  Outside of
    ``jit`` there is no program to plan: there each checkpoint by itself, its value and its gradients, fits the budget.
    A Vulkan device is planned as the CPU would; the numpy device does not plan, and everything is kept.

    >>> policy = checkpoint_policies.fit("512MiB")
    >>> jit(grad(checkpoint(lambda x: (x * x).sum(), policy=policy)))(asarray([1.0, 2.0]))
    Array([2., 4.], dtype=float32)
    """
    return Fit(parse_bytes(budget))


class _Named:
    def __init__(self, names: frozenset[str], listed: bool):
        self.names, self.listed = names, listed

    def __call__(self, eqn: Equation) -> bool:
        return eqn.prim.name == "name" and (eqn.prim.params()["label"] in self.names) == self.listed

    def __repr__(self) -> str:
        made_by = save_only_these_names if self.listed else save_any_names_but_these
        return f"{made_by.__name__}({', '.join(map(repr, sorted(self.names)))})"


class _Both:
    def __init__(self, first: Policy, second: Policy):
        self.first, self.second = first, second

    def __call__(self, eqn: Equation) -> bool:
        return self.first(eqn) or self.second(eqn)

    def __repr__(self) -> str:
        shown = [getattr(p, "__name__", repr(p)) for p in (self.first, self.second)]
        return f"{save_from_both_policies.__name__}({', '.join(shown)})"


class _Policies(SimpleNamespace):
    def __repr__(self) -> str:
        return f"checkpoint_policies({', '.join(vars(self))})"


checkpoint_policies = _Policies(
    everything_saveable=everything_saveable,
    nothing_saveable=nothing_saveable,
    dots_saveable=dots_saveable,
    checkpoint_dots=dots_saveable,
    dots_with_no_batch_dims_saveable=dots_with_no_batch_dims_saveable,
    checkpoint_dots_with_no_batch_dims=dots_with_no_batch_dims_saveable,
    save_only_these_names=save_only_these_names,
    save_any_names_but_these=save_any_names_but_these,
    save_from_both_policies=save_from_both_policies,
    fit=fit,
)
