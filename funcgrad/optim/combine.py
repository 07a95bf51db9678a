"""Optimizers made from optimizers: one after another, on a part of the parameters, a different one for each part."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from typing import Any, NamedTuple

import funcgrad.numpy as fnp
from funcgrad import tree
from funcgrad.optim.base import (
    Optimizer,
    OptimizerExtraArgs,
    State,
    Tree,
    set_to_zero,
    split_like,
    with_extra_args_support,
)

__all__ = [
    "MaskedNode",
    "MaskedState",
    "PartitionState",
    "chain",
    "flatten",
    "freeze",
    "masked",
    "multi_transform",
    "named_chain",
    "partition",
    "selective_transform",
]


def chain(*transforms: Optimizer) -> Optimizer:
    """Apply transformations from left to right; the state is the tuple of their states.

    Keyword arguments of ``update`` reach every transformation that takes them.

    >>> from funcgrad.optim.scaling import scale
    >>> opt = chain(scale(2.0), scale(-0.5))
    >>> updates, state = opt.update(fnp.ones(()), opt.init(fnp.ones(())))
    >>> float(updates)
    -1.0
    """
    opts = [with_extra_args_support(opt) for opt in transforms]

    def init(params: Tree) -> State:
        return tuple(opt.init(params) for opt in opts)

    def update(grads: Tree, state: State, params: Tree = None, **extra: Any) -> tuple[Tree, State]:
        if len(state) != len(opts):
            raise ValueError(f"chain: a state of {len(opts)} parts is required, got {len(state)}; call init first")
        new_state = []
        for opt, part in zip(opts, state, strict=True):
            grads, part = opt.update(grads, part, params, **extra)
            new_state.append(part)
        return grads, tuple(new_state)

    return OptimizerExtraArgs(init, update)


def named_chain(*transforms: tuple[str, Optimizer]) -> Optimizer:
    """Like ``chain``, with a name for each transformation; the state is a dict by name.

    >>> opt = named_chain(("double", Optimizer(lambda p: (), lambda g, s, p=None: (2.0 * g, s))))
    >>> opt.init(fnp.ones(()))
    {'double': ()}
    """
    names = [name for name, _ in transforms]
    if len(names) != len(set(names)):
        raise ValueError(f"named_chain: names must differ, got {names}")
    opts = {name: with_extra_args_support(opt) for name, opt in transforms}

    def init(params: Tree) -> State:
        return {name: opt.init(params) for name, opt in opts.items()}

    def update(grads: Tree, state: State, params: Tree = None, **extra: Any) -> tuple[Tree, State]:
        new_state = {}
        for name, opt in opts.items():
            grads, new_state[name] = opt.update(grads, state[name], params, **extra)
        return grads, new_state

    return OptimizerExtraArgs(init, update)


class MaskedNode(NamedTuple):
    """What stands in a tree where a leaf is masked out; it has no leaves."""


class MaskedState(NamedTuple):
    """The state of the inner optimizer, for the leaves that it sees."""

    inner_state: State


def is_function(value: Any) -> bool:
    """Whether a mask is a function of the parameters; a module of booleans is callable too, but its leaves are not."""
    leaves = tree.leaves(value)
    return bool(leaves) and all(callable(leaf) for leaf in leaves)


def mask_tree(mask: Tree, values: Tree) -> Tree:
    """The tree with ``MaskedNode()`` for each part where the mask is False.

    >>> mask_tree({"a": True, "b": False}, {"a": 1, "b": 2})
    {'a': 1, 'b': MaskedNode()}
    """
    return tree.map(lambda keep, value: value if keep else MaskedNode(), mask, values)


def masked(inner: Optimizer, mask: Tree | Callable[[Tree], Tree]) -> Optimizer:
    """Apply an optimizer to the leaves where the mask is True and pass the others through unchanged.

    ``mask`` is a tree of booleans with the structure of the parameters (or of an upper part of it), or a function of
    the parameters that gives one. The state holds nothing for the others.

    >>> from funcgrad.optim.scaling import scale
    >>> opt = masked(scale(0.0), {"a": True, "b": False})
    >>> grads = {"a": fnp.ones(()), "b": fnp.ones(())}
    >>> updates, _ = opt.update(grads, opt.init(grads))
    >>> float(updates["a"]), float(updates["b"])
    (0.0, 1.0)
    """
    inner = with_extra_args_support(inner)

    def resolve(values: Tree) -> Tree:
        return mask(values) if is_function(mask) else mask

    def init(params: Tree) -> State:
        return MaskedState(inner.init(mask_tree(resolve(params), params)))

    def update(grads: Tree, state: State, params: Tree = None, **extra: Any) -> tuple[Tree, State]:
        keep = resolve(grads)
        seen = None if params is None else mask_tree(keep, params)
        updates, inner_state = inner.update(mask_tree(keep, grads), state.inner_state, seen, **extra)
        merged = tree.map(lambda m, new, old: new if m else old, keep, updates, grads)
        return merged, MaskedState(inner_state)

    return OptimizerExtraArgs(init, update)


class PartitionState(NamedTuple):
    """The states of the optimizers, by label."""

    inner_states: Mapping[Hashable, State]


def partition(transforms: Mapping[Hashable, Optimizer], param_labels: Tree | Callable[[Tree], Tree]) -> Optimizer:
    """Apply to each leaf the optimizer that its label names.

    ``param_labels`` is a tree of labels with the structure of the parameters (or of an upper part of it), or a
    function of the parameters that gives one. Raises ValueError for a label without an optimizer.

    >>> from funcgrad.optim.aliases import sgd
    >>> opt = partition({"fast": sgd(1.0), "slow": sgd(0.5)}, {"a": "fast", "b": "slow"})
    >>> grads = {"a": fnp.ones(()), "b": fnp.ones(())}
    >>> updates, _ = opt.update(grads, opt.init(grads))
    >>> float(updates["a"]), float(updates["b"])
    (-1.0, -0.5)
    """
    opts = {label: with_extra_args_support(opt) for label, opt in transforms.items()}

    def resolve(values: Tree) -> dict[Hashable, Optimizer]:
        labels = param_labels(values) if is_function(param_labels) else param_labels
        unknown = {label for label in tree.leaves(labels) if label not in opts}
        if unknown:
            raise ValueError(
                f"partition: every label needs an optimizer, got labels {sorted(map(repr, unknown))} "
                f"and optimizers for {sorted(map(repr, opts))}"
            )
        return {label: masked(opt, _equal_to(labels, label)) for label, opt in opts.items()}

    def init(params: Tree) -> State:
        return PartitionState({label: opt.init(params) for label, opt in resolve(params).items()})

    def update(grads: Tree, state: State, params: Tree = None, **extra: Any) -> tuple[Tree, State]:
        new_states = {}
        for label, opt in resolve(grads).items():
            grads, new_states[label] = opt.update(grads, state.inner_states[label], params, **extra)
        return grads, PartitionState(new_states)

    return OptimizerExtraArgs(init, update)


multi_transform = partition


def _equal_to(labels: Tree, label: Hashable) -> Tree:
    return tree.map(lambda other: other == label, labels)


def freeze(mask: Tree | Callable[[Tree], Tree]) -> Optimizer:
    """Zero the updates of the leaves where the mask is True, so that these parameters stay.

    >>> opt = freeze({"a": True, "b": False})
    >>> grads = {"a": fnp.ones(()), "b": fnp.ones(())}
    >>> updates, _ = opt.update(grads, opt.init(grads))
    >>> float(updates["a"]), float(updates["b"])
    (0.0, 1.0)
    """
    return masked(set_to_zero(), mask)


def selective_transform(optimizer: Optimizer, *, freeze_mask: Tree) -> Optimizer:
    """Apply an optimizer to the leaves where ``freeze_mask`` is False and zero the updates of the others.

    >>> from funcgrad.optim.aliases import sgd
    >>> opt = selective_transform(sgd(1.0), freeze_mask={"a": True, "b": False})
    >>> grads = {"a": fnp.ones(()), "b": fnp.ones(())}
    >>> updates, _ = opt.update(grads, opt.init(grads))
    >>> float(updates["a"]), float(updates["b"])
    (0.0, -1.0)
    """
    labels = tree.map(lambda frozen: "freeze" if frozen else "train", freeze_mask)
    return partition({"train": optimizer, "freeze": set_to_zero()}, labels)


def flatten(inner: Optimizer) -> Optimizer:
    """Join all leaves into one vector for an optimizer that works element by element.

    A model of many small leaves then pays for a few operations on one long vector instead of a few on each leaf.
    The leaves must have one dtype. An optimizer that looks at a whole leaf (Adafactor, LAMB, Muon, trust ratios)
    gives other results on the joined vector.

    >>> from funcgrad.optim.aliases import sgd
    >>> opt = flatten(sgd(1.0))
    >>> grads = {"a": fnp.ones((2, 3)), "b": fnp.ones(4)}
    >>> updates, _ = opt.update(grads, opt.init(grads))
    >>> updates["a"].shape, float(updates["b"][0])
    ((2, 3), -1.0)
    """
    inner = with_extra_args_support(inner)

    def update(grads: Tree, state: State, params: Tree = None, **extra: Any) -> tuple[Tree, State]:
        seen = None if params is None else _join(params)
        updates, state = inner.update(_join(grads), state, seen, **extra)
        return split_like(updates, grads), state

    return OptimizerExtraArgs(lambda params: inner.init(_join(params)), update)


def _join(values: Tree) -> Any:
    leaves = tree.leaves(values)
    if not leaves:
        return fnp.zeros((0,))
    dtypes = {str(x.dtype) for x in leaves}
    if len(dtypes) > 1:
        raise ValueError(f"flatten: leaves of one dtype are required, got {sorted(dtypes)}; use partition by dtype")
    return fnp.concatenate([fnp.reshape(x, (-1,)) for x in leaves])
