"""The protocol that every optimizer follows, and the arithmetic that the transformations share."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import reduce
from numbers import Real
from typing import Any, NamedTuple

import funcgrad.numpy as fnp
from funcgrad import tree

__all__ = [
    "EmptyState",
    "Optimizer",
    "OptimizerExtraArgs",
    "ScalarOrSchedule",
    "Schedule",
    "apply_updates",
    "identity",
    "incremental_update",
    "periodic_update",
    "safe_increment",
    "set_to_zero",
    "stateless",
    "wide_dtype",
    "with_extra_args_support",
]

Tree = Any  # a pytree of arrays
Scalar = Any  # a Python number or an array of shape ()
Schedule = Callable[[Any], Any]
ScalarOrSchedule = Any  # a Scalar or a Schedule
State = Any

INT32_MAX = 2**31 - 1


class Optimizer(NamedTuple):
    """A pair of pure functions: ``init(params) -> state`` and ``update(grads, state, params) -> (updates, state)``.

    The protocol is that of ``optax.GradientTransformation``; a user's own pair works wherever a built-in one does.
    The state is a pytree whose structure, shapes and dtypes are the same before and after an update. ``updates`` has
    the structure of ``grads`` and is added to the parameters by ``apply_updates``.

    >>> import funcgrad.numpy as fnp
    >>> def update(grads, state, params=None):
    ...     return -0.5 * grads, state
    >>> opt = Optimizer(lambda params: (), update)
    >>> updates, state = opt.update(fnp.ones(2), opt.init(fnp.zeros(2)))
    >>> [float(u) for u in updates]
    [-0.5, -0.5]
    """

    init: Callable[..., State]
    update: Callable[..., tuple[Tree, State]]

    def __repr__(self) -> str:
        made_by = getattr(self.update, "__qualname__", type(self.update).__name__).partition(".")[0]
        return f"{type(self).__name__}({made_by})"


class OptimizerExtraArgs(Optimizer):
    """An ``Optimizer`` whose ``update`` also takes keyword arguments, such as ``value`` for ``reduce_on_plateau``.

    ``chain`` and the other wrappers hand the keyword arguments of their own ``update`` to every transformation of
    this type and to no other.

    >>> def update(grads, state, params=None, *, value, **extra):
    ...     return grads * value, state
    >>> opt = OptimizerExtraArgs(lambda params: (), update)
    >>> float(opt.update(fnp.ones(()), (), None, value=3.0)[0])
    3.0
    """

    __slots__ = ()


class EmptyState(NamedTuple):
    """The state of a transformation that remembers nothing.

    >>> EmptyState()
    EmptyState()
    """


def with_extra_args_support(opt: Optimizer) -> OptimizerExtraArgs:
    """An optimizer that drops the keyword arguments of ``update`` unless ``opt`` takes them.

    >>> opt = with_extra_args_support(Optimizer(lambda p: (), lambda g, s, p=None: (g, s)))
    >>> float(opt.update(fnp.ones(()), (), None, value=3.0)[0])
    1.0
    """
    if isinstance(opt, OptimizerExtraArgs):
        return opt
    if not (callable(getattr(opt, "init", None)) and callable(getattr(opt, "update", None))):
        raise TypeError(
            f"optimizer: an object with functions init and update is required, got {type(opt).__name__}; "
            "call the factory first, as in adam(1e-3)"
        )

    def update(grads: Tree, state: State, params: Tree = None, **extra: Any) -> tuple[Tree, State]:
        del extra
        return opt.update(grads, state, params)

    return OptimizerExtraArgs(opt.init, update)


def identity() -> Optimizer:
    """The transformation that returns its gradients unchanged.

    >>> float(identity().update(fnp.ones(()), EmptyState())[0])
    1.0
    """
    return stateless(lambda grads, params: grads)


def set_to_zero() -> Optimizer:
    """The transformation that replaces every update by zeros, for parameters that must not move.

    >>> float(set_to_zero().update(fnp.ones(()), EmptyState())[0])
    0.0
    """
    return stateless(lambda grads, params: zeros_like(grads))


def stateless(fun: Callable[[Tree, Tree], Tree]) -> Optimizer:
    """An optimizer from a function of ``(grads, params)`` that needs no state.

    >>> opt = stateless(lambda grads, params: tree.map(fnp.negative, grads))
    >>> float(opt.update(fnp.ones(()), opt.init(None))[0])
    -1.0
    """

    def update(grads: Tree, state: State, params: Tree = None) -> tuple[Tree, State]:
        return fun(grads, params), state

    return Optimizer(lambda params: EmptyState(), update)


def apply_updates(params: Tree, updates: Tree) -> Tree:
    """The parameters plus the updates; each leaf keeps the dtype of the parameter.

    >>> new = apply_updates({"w": fnp.ones(2)}, {"w": fnp.asarray([0.5, -1.0])})
    >>> [float(x) for x in new["w"]]
    [1.5, 0.0]
    """
    return tree.map(lambda p, u: cast(fnp.asarray(p + u), fnp.asarray(p).dtype), params, updates)


def incremental_update(new_tensors: Tree, old_tensors: Tree, step_size: Scalar) -> Tree:
    """``step_size * new + (1 - step_size) * old`` per leaf: Polyak averaging, or the soft update of a target network.

    >>> float(incremental_update(fnp.ones(()), fnp.zeros(()), 0.25))
    0.25
    """
    return tree.map(lambda new, old: scaled(step_size, new) + scaled(1.0 - step_size, old), new_tensors, old_tensors)


def periodic_update(new_tensors: Tree, old_tensors: Tree, steps: Any, update_period: int) -> Tree:
    """The new tensors when ``steps`` is a multiple of ``update_period``, else the old ones.

    >>> float(periodic_update(fnp.ones(()), fnp.zeros(()), fnp.asarray(6), 3))
    1.0
    """
    require("periodic_update", "[1, inf)", update_period=update_period)
    now = fnp.asarray(steps) % update_period == 0
    return tree.map(lambda new, old: fnp.where(now, new, old), new_tensors, old_tensors)


# What the transformations share.


def is_number(value: Any) -> bool:
    """Whether a hyperparameter is a plain number of the host, so that its value can be checked now."""
    return isinstance(value, Real) and not isinstance(value, bool)


def require(op: str, interval: str, **values: Any) -> None:
    """Raise ValueError unless every number lies in ``interval``, such as "[0, 1)"; arrays and schedules pass."""
    low, high = (float(bound) for bound in interval[1:-1].split(","))
    for name, value in values.items():
        if is_number(value):
            above = value >= low if interval[0] == "[" else value > low
            below = value <= high if interval[-1] == "]" else value < high
            if not (above and below):  # a NaN fails both
                raise ValueError(f"{op}: {name} must be in {interval}, got {value!r}")
        elif isinstance(value, bool) or not (callable(value) or hasattr(value, "dtype")):
            raise TypeError(f"{op}: {name} must be a number, an array or a schedule, got {value!r}")


def require_int(op: str, low: int, **values: Any) -> None:
    """Raise unless every value is a Python integer of at least ``low``."""
    for name, value in values.items():
        if isinstance(value, bool) or not hasattr(value, "__index__"):
            raise TypeError(f"{op}: {name} must be an integer, got {value!r}")
        if value.__index__() < low:
            raise ValueError(f"{op}: {name} must be at least {low}, got {value!r}")


def require_params(op: str, params: Tree) -> None:
    """Raise ValueError when ``update`` was called without the parameters that it needs."""
    if params is None:
        raise ValueError(f"{op}: update needs the parameters, got None; call update(grads, state, params)")


def same_structure(op: str, grads: Tree, state: Tree) -> None:
    """Raise ValueError when gradients do not have the structure that the state was made for."""
    want, got = tree.structure(state), tree.structure(grads)
    if want != got:
        raise ValueError(
            f"{op}: gradients must have the tree structure that init saw, got {got} instead of {want}; "
            "call init again after changing the parameters"
        )


def cast(x: Any, dtype: Any) -> Any:
    """The array in ``dtype``; no operation when it has it already or ``dtype`` is None."""
    return x if dtype is None or x.dtype == dtype else x.astype(dtype)


def scaled(factor: Scalar, x: Any) -> Any:
    """``factor * x`` in the dtype of ``x``: a float32 scalar must not widen a float16 leaf."""
    return x * (float(factor) if is_number(factor) else cast(fnp.asarray(factor), x.dtype))


def cast_tree(values: Tree, dtype: Any) -> Tree:
    """Every leaf in ``dtype``; the tree itself when ``dtype`` is None."""
    return values if dtype is None else tree.map(lambda x: cast(x, dtype), values)


def zeros_like(values: Tree, dtype: Any = None) -> Tree:
    """A tree of zeros with the shapes of ``values``."""
    return tree.map(lambda x: fnp.zeros_like(x, dtype=dtype), values)


def full_like(values: Tree, fill: Scalar) -> Tree:
    """A tree of one value with the shapes and dtypes of ``values``."""
    return tree.map(lambda x: fnp.full_like(x, fill), values)


def zero_count() -> Any:
    """The count of updates at the start: an int32 scalar."""
    return fnp.zeros((), dtype=fnp.int32)


def safe_increment(count: Any) -> Any:
    """``count + 1``, which stays at the largest int32 instead of wrapping to a negative number.

    >>> int(safe_increment(fnp.asarray(2147483647, dtype=fnp.int32)))
    2147483647
    """
    return fnp.minimum(count, INT32_MAX - 1) + 1


def moment(decay: Scalar, x: Any, old: Any) -> Any:
    """``decay * old + (1 - decay) * x``, a step of an exponential moving average."""
    return scaled(decay, old) + scaled(1.0 - decay, x)


def wide_dtype(values: Tree) -> Any:
    """float64 when a leaf has it, which only the reference device can hold, else float32: what sums are kept in.

    >>> wide_dtype({"w": fnp.ones(2, dtype="bfloat16")}) is fnp.float32
    True
    """
    return fnp.float64 if any(x.dtype == fnp.float64 for x in tree.leaves(values)) else fnp.float32


def bias_correction(decay: Scalar, count: Any, like: Tree) -> Scalar:
    """``1 / (1 - decay**count)``, computed once per step for all leaves of ``like``.

    In float32 the difference ``1 - 0.999`` keeps only four digits, so it is taken as ``-expm1(count * log(decay))``,
    which keeps seven; the logarithm of a plain number is taken in double precision.
    """
    steps = cast(fnp.asarray(count), wide_dtype(like))
    if is_number(decay):
        if decay == 0:
            return 1.0
        return -1.0 / fnp.expm1(steps * math.log(decay))
    return -1.0 / fnp.expm1(steps * fnp.log(decay))


def unzip_map(
    op: str, fun: Callable[..., tuple[Any, ...]], grads: Tree, *others: Tree, width: int | None = None
) -> tuple[Tree, ...]:
    """Map a function that returns ``width`` values (one per tree by default) over trees; return as many trees."""
    for other in others:
        same_structure(op, grads, other)
    leaves, treedef = tree.flatten(grads)
    rows = [fun(*xs) for xs in zip(leaves, *(tree.leaves(other) for other in others), strict=True)]
    return tuple(tree.unflatten(treedef, [row[i] for row in rows]) for i in range(width or len(others) + 1))


def split_like(vector: Any, like: Tree) -> Tree:
    """A vector cut into leaves of the shapes and dtypes of another tree's."""
    leaves, treedef = tree.flatten(like)
    parts, begin = [], 0
    for x in leaves:
        end = begin + math.prod(x.shape)
        parts.append(cast(fnp.reshape(vector[begin:end], x.shape), x.dtype))
        begin = end
    return tree.unflatten(treedef, parts)


def add_all(values: list[Any]) -> Any:
    """The sum of a list of scalars, 0.0 when it is empty."""
    return reduce(fnp.add, values) if values else fnp.zeros(())


def tree_vdot(x: Tree, y: Tree) -> Any:
    """The inner product of two trees, accumulated in float32 at least."""
    dtype = wide_dtype(x)
    products = tree.map(lambda a, b: fnp.sum(cast(a, dtype) * cast(b, dtype)), x, y)
    return add_all(tree.leaves(products))


def select(pred: Any, on_true: Tree, on_false: Tree) -> Tree:
    """``where`` over two trees of the same structure, with the dtypes of ``on_false``."""
    return tree.map(lambda a, b: cast(fnp.where(pred, a, b), fnp.asarray(b).dtype), on_true, on_false)


def all_finite(values: Tree) -> Any:
    """A bool scalar: whether every element of every leaf is finite."""
    checks = [fnp.all(fnp.isfinite(x)) for x in tree.leaves(values)]
    return reduce(fnp.logical_and, checks) if checks else fnp.asarray(True)
