"""make_train_step: forward, backward, clipping, update and checks as one captured step that loses nothing.

The step's state is an explicit tree on the device, updated in place.  Whether the loss and every gradient are finite is
found on the device before the update is committed: a refused step leaves the state bit for bit as it was.
"""

from __future__ import annotations

import math
import signal
import threading
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple

from funcgrad import dtypes, random, tree
from funcgrad import numpy as fnp
from funcgrad.array import Array, as_value, asarray
from funcgrad.errors import NonFiniteError, message
from funcgrad.mixed_precision import DynamicLossScale, LossScale, Policy, StaticLossScale, get_policy
from funcgrad.optim.base import Optimizer, apply_updates, scaled
from funcgrad.optim.clipping import ScaledNorm, scaled_norm
from funcgrad.transforms import jit, value_and_grad

__all__ = ["TrainState", "TrainStep", "make_train_step"]


@dataclass(frozen=True)
class TrainState:
    """All that a train step carries from one call to the next.

    ``step`` counts updates that were made, ``skipped`` those that were refused, ``micro`` the batches since the last
    update.  ``loss_scale`` is None, or the scale of a float16 loss and its count.
    ``max_grad_norm`` is a float32 scalar leaf (None without clipping): change it with :meth:`with_max_grad_norm`,
    without a retrace.
    """

    params: Any
    opt_state: Any
    model_state: Any
    key: Any
    max_grad_norm: Any
    step: Any
    skipped: Any
    micro: Any
    grad_sum: Any
    loss_scale: Any = None

    def with_max_grad_norm(self, limit: float) -> TrainState:
        """Return the state with another clipping limit, honoured by the next step."""
        if self.max_grad_norm is None:
            raise ValueError(message("with_max_grad_norm", "the step was made without max_grad_norm"))
        return replace(self, max_grad_norm=asarray(_checked_limit(limit), dtypes.float32))


class TrainStep(NamedTuple):
    """``init(params, key=None, model_state=None) -> state`` and ``step(state, batch) -> (state, metrics)``."""

    init: Callable[..., TrainState]
    step: Callable[..., tuple[TrainState, dict[str, Any]]]

    def __repr__(self) -> str:
        captured = getattr(self.step, "captured", None)
        return f"TrainStep({captured!r})"


def _checked_limit(limit: Any) -> float:
    value = float(limit)
    if not (math.isfinite(value) and value > 0):
        raise ValueError(message("make_train_step", "max_grad_norm must be positive and finite", repr(limit)))
    return value


def _checked_scale(policy: Policy | None, loss_scale: Any) -> LossScale | None:
    """The loss scale that is asked for, or that float16 needs."""
    if loss_scale is None:
        return DynamicLossScale() if policy is not None and policy.compute == dtypes.float16 else None
    if isinstance(loss_scale, (DynamicLossScale, StaticLossScale)):
        return loss_scale
    way_out = "fg.training.DynamicLossScale() or fg.training.StaticLossScale(1024.0)"
    raise TypeError(message("make_train_step", "loss_scale must be a loss scale", repr(loss_scale), way_out))


def make_train_step(
    loss_fn: Callable[..., Any],
    optimizer: Optimizer,
    *,
    has_aux: bool = False,
    max_grad_norm: float | None = None,
    on_nonfinite: Literal["raise", "skip"] = "raise",
    accumulate: int = 1,
    precision: Policy | str | None = None,
    loss_scale: LossScale | None = None,
    max_traces: int | None = None,
    device: Any = None,
) -> TrainStep:
    """Return ``init`` and ``step`` for a loss and an optimizer; the whole step is captured once by ``jit``.

    ``loss_fn(params, batch)`` returns the mean loss of a batch, any tree; with a key given to ``init`` it is called
    ``loss_fn(params, batch, key)`` with a new key each step; with a model state (batch statistics, say) given to
    ``init`` it is called ``loss_fn(params, model_state, batch[, key])`` and returns ``(loss, new_model_state)``.  With
    ``has_aux`` it returns a further tree, last, which appears as ``metrics["aux"]``.

    ``metrics`` has ``loss`` and ``grad_norm`` (before clipping) of the parameters before the update.  Gradients are
    multiplied by ``min(1, max_grad_norm / (norm + 1e-6))``.  ``accumulate=k`` averages the gradients of k batches for
    each update; the optimizer's count advances on updates only, and ``metrics["updated"]`` says whether there was one.

    A loss or gradient that is not finite is found before the update: ``on_nonfinite="raise"`` raises NonFiniteError
    naming the leaves and leaves the state as it was, usable for the next call; ``"skip"`` leaves it too and counts in
    ``metrics["skipped"]``.  To be able to raise, ``"raise"`` waits for the device at every step; only ``"skip"`` can
    return while a step still runs.

    ``precision`` is a :class:`funcgrad.training.Policy` or its name.  ``"bfloat16"`` and ``"float16"`` compute the loss
    on narrow copies of the float32 parameters and batch; parameters, gradients, the loss and the optimizer stay
    float32.  For float16 the loss is multiplied by a ``loss_scale`` and the gradients are divided by it, both in
    float32: by default a :class:`funcgrad.training.DynamicLossScale`, a part of the state.  A batch whose gradients
    overflow while its loss is finite then updates nothing, halves the scale and counts in ``metrics["skipped"]``; it is
    an error, or skipped, as ``on_nonfinite`` says, only once the scale is at its smallest.  ``metrics["loss_scale"]``
    is the scale that the step used.  See ``docs/mixed_precision.md``.

    A batch of another shape, such as a short last one, is traced again, with a warning that says why; the mathematics
    stay those of the loss.  ``max_traces=1`` makes it RetraceError instead; ``fg.data.batches(pad_last=True)`` gives
    pairs of a full batch and a mask of the rows that count, for a loss that averages with ``weights=mask``.

    >>> from funcgrad import optim
    >>> ts = make_train_step(lambda w, batch: ((w * batch["x"] - batch["y"]) ** 2).mean(), optim.sgd(0.1))
    >>> state = ts.init(asarray(0.0))
    >>> state, metrics = ts.step(state, {"x": asarray([1.0, 2.0]), "y": asarray([2.0, 4.0])})
    >>> float(metrics["loss"]), float(state.params)
    (10.0, 1.0)
    """
    if on_nonfinite not in ("raise", "skip"):
        raise ValueError(message("make_train_step", "on_nonfinite must be 'raise' or 'skip'", repr(on_nonfinite)))
    if accumulate < 1:
        raise ValueError(message("make_train_step", "accumulate must be at least 1", repr(accumulate)))
    policy = get_policy(precision)
    scaling = _checked_scale(policy, loss_scale)
    limit = None if max_grad_norm is None else _checked_limit(max_grad_norm)
    body = _Step(loss_fn, optimizer, has_aux, accumulate, on_nonfinite == "skip", policy, scaling)
    captured = jit(body, donate_argnums=0, device=device, max_traces=max_traces)

    def init(params: Any, key: Any = None, model_state: Any = None) -> TrainState:
        params = tree.map(lambda x: fnp.array(x), params if policy is None else policy.cast_to_param(params))
        zero = tree.map(fnp.zeros_like, params) if accumulate > 1 else None
        step, skipped, micro = [asarray(0, dtypes.int32) for _ in range(3)]
        clip = None if limit is None else asarray(limit, dtypes.float32)
        own_key = None if key is None else fnp.array(key)
        held = tree.map(lambda x: fnp.array(x), model_state)
        scale = None if scaling is None else scaling.init()
        return TrainState(params, optimizer.init(params), held, own_key, clip, step, skipped, micro, zero, scale)

    def step(state: TrainState, batch: Any) -> tuple[TrainState, dict[str, Any]]:
        new = None
        try:
            with _Interrupts() as interrupts:
                new, metrics, peaks, again = captured(state, batch)
                refused = on_nonfinite == "raise" and not bool(metrics["finite"])
                refused = refused and not (again is not None and bool(again))
            interrupts.deliver()
            if refused:
                raise _refusal(_take_back(state, new), metrics, peaks)
        except BaseException:  # the caller will never see the new state: let the old one hold it
            if new is not None:
                _take_back(state, new)
            raise
        return new, metrics

    step.captured = captured  # type: ignore[attr-defined]
    return TrainStep(init, step)


try:  # what signal wraps in enums of handlers, which would take a tenth of a small step
    import _signal  # type: ignore[import-not-found]
except ImportError:
    _signal = signal
_SIGINT = int(signal.SIGINT)


class _Interrupts:
    """Holds back Ctrl-C in the main thread while a state is being replaced, so that no half of it is ever seen."""

    def __init__(self) -> None:
        self.pending: list[Any] = []
        self.main = threading.current_thread() is threading.main_thread()

    def __enter__(self) -> _Interrupts:
        self.main = self.main and _signal.getsignal(_SIGINT) is not None  # one that is not Python's stays
        if self.main:
            self.before = _signal.signal(_SIGINT, self.note)
        return self

    def __exit__(self, *exc: object) -> None:
        if self.main:
            _signal.signal(_SIGINT, self.before)
            if exc[0] is not None:
                self.deliver()

    def note(self, *args: Any) -> None:
        """Handle the signal: remember it."""
        self.pending.append(args)

    def deliver(self) -> None:
        """Do what Ctrl-C would have done."""
        if self.pending and callable(self.before):
            self.before(*self.pending[-1])


def _take_back(old: TrainState, new: TrainState) -> TrainState:
    """Give the old state the memory of the new one where its own was donated; return it."""
    for a, b in zip(tree.leaves(old), tree.leaves(new), strict=True):
        if isinstance(a, Array) and a.is_deleted():
            a.adopt(b)
    return old


def _refusal(state: TrainState, metrics: dict[str, Any], peaks: Any) -> NonFiniteError:
    """Name the loss and the gradient leaves that are not finite."""
    bad = [] if math.isfinite(float(metrics["loss"])) else [f"loss = {float(metrics['loss'])}"]
    for (path, _), peak in zip(tree.leaves_with_path(state.params), peaks.tolist(), strict=True):
        if not math.isfinite(peak):
            bad.append(f"gradient of params{tree.keystr(path)}")
    got = "; ".join(bad[:8]) + (f"; and {len(bad) - 8} more" if len(bad) > 8 else "")
    way_out = (
        "the state is as it was before this batch; skip the batch, lower the learning rate, or use "
        "on_nonfinite='skip'; the same call inside fg.debug.debug_nans() names the operation and its line"
    )
    return NonFiniteError(message(f"train step {int(state.step)}", "loss and gradients must be finite", got, way_out))


class _Step:
    """The function that is captured."""

    def __init__(
        self,
        loss_fn: Callable[..., Any],
        optimizer: Optimizer,
        has_aux: bool,
        accumulate: int,
        count_refused: bool,
        policy: Policy | None,
        scaling: LossScale | None,
    ):
        self.loss_fn, self.optimizer, self.has_aux, self.accumulate = loss_fn, optimizer, has_aux, accumulate
        self.policy, self.scaling = policy, scaling
        self.count_refused = count_refused  # not when refusing raises: then nothing at all may change
        self.__name__ = f"train_step({getattr(loss_fn, '__name__', 'loss')})"

    def loss(self, params: Any, model_state: Any, batch: Any, key: Any, scale: Any) -> tuple[Any, tuple[Any, Any, Any]]:
        """Call the user's loss in its own convention; return the scaled loss, (loss, model state, aux)."""
        if self.policy is not None:
            params, batch = self.policy.cast_to_compute(params), self.policy.cast_to_compute(batch)
        args = [params] + ([] if model_state is None else [model_state]) + [batch] + ([] if key is None else [key])
        out = self.loss_fn(*args)
        loss, *more = out if isinstance(out, tuple) else (out,)
        if len(more) != (model_state is not None) + self.has_aux:
            expected = "loss" + (", model state" if model_state is not None else "") + (", aux" if self.has_aux else "")
            raise TypeError(
                message("make_train_step", f"the loss function must return ({expected})", f"{1 + len(more)} values")
            )
        new_state = more.pop(0) if model_state is not None else None
        aux = more[0] if self.has_aux else None
        if self.policy is not None:
            loss, aux = fnp.astype(as_value(loss), dtypes.float32), self.policy.cast_to_output(aux)
        return loss if scale is None else loss * scale, (loss, new_state, aux)

    def __call__(self, state: TrainState, batch: Any) -> Any:
        """One step: the new state, the metrics, the largest magnitude of each gradient leaf."""
        key, sub = (None, None) if state.key is None else tuple(random.split(state.key))
        scale = None if state.loss_scale is None else state.loss_scale.scale
        (_, (loss, model_state, aux)), grads = value_and_grad(self.loss, has_aux=True)(
            state.params, state.model_state, batch, sub, scale
        )
        if scale is not None:
            grads = tree.map(lambda g: scaled(1.0 / scale, g), grads)
        norm = scaled_norm(grads)
        finite = fnp.isfinite(as_value(loss)) & fnp.isfinite(fnp.max(norm.peaks, initial=0.0))
        new, updated = self.update(replace(state, key=key, model_state=model_state), grads, norm)
        kept = tree.map(lambda a, b: fnp.where(finite, a, b), new, state)
        kept, again = self.count(state, kept, loss, finite)
        metrics = {"loss": loss, "grad_norm": norm.value, "finite": finite, "skipped": kept.skipped}
        if scale is not None:
            metrics["loss_scale"] = scale
        if self.accumulate > 1:
            metrics["updated"] = updated & finite
        if self.has_aux:
            metrics["aux"] = aux
        return kept, metrics, norm.peaks, again

    def count(self, old: TrainState, kept: TrainState, loss: Any, finite: Any) -> tuple[TrainState, Any]:
        """Count a step that updates nothing and change the scale of the loss, unless the step raises.

        Also says whether a smaller scale may help: the next step is worth a try; None without a scale.
        """
        again = None
        counted = fnp.logical_not(finite)
        if self.scaling is not None:
            again = counted & fnp.isfinite(loss) & self.scaling.can_back_off(old.loss_scale)
            changes = finite | (counted if self.count_refused else again)
            after = self.scaling.update(old.loss_scale, finite)
            kept = replace(kept, loss_scale=tree.map(lambda a, b: fnp.where(changes, a, b), after, old.loss_scale))
        if not self.count_refused:
            if again is None:
                return kept, None
            counted = again
        return replace(kept, skipped=old.skipped + fnp.astype(counted, dtypes.int32)), again

    def update(self, state: TrainState, grads: Any, norm: ScaledNorm) -> tuple[TrainState, Any]:
        """Clip, then update, or only add up the gradients until there are enough."""
        if self.accumulate == 1:
            return self._apply(state, self._clip(state, grads, norm)), None
        total = tree.map(lambda s, g: s + g / float(self.accumulate), state.grad_sum, grads)
        full = fnp.equal(state.micro + 1, self.accumulate)
        after = self._apply(state, self._clip(state, total, scaled_norm(total)))
        params, opt_state = tree.map(
            lambda a, b: fnp.where(full, a, b), (after.params, after.opt_state), (state.params, state.opt_state)
        )
        zeroed = tree.map(lambda t: fnp.where(full, 0.0, t), total)
        micro = fnp.where(full, 0, state.micro + 1)
        done = fnp.where(full, state.step + 1, state.step)
        return replace(state, params=params, opt_state=opt_state, grad_sum=zeroed, micro=micro, step=done), full

    def _clip(self, state: TrainState, grads: Any, norm: ScaledNorm) -> Any:
        if state.max_grad_norm is None:
            return grads
        factor = norm.factor(state.max_grad_norm)
        return tree.map(lambda g: scaled(factor, g), grads)

    def _apply(self, state: TrainState, grads: Any) -> TrainState:
        updates, opt_state = self.optimizer.update(grads, state.opt_state, state.params)
        return replace(state, params=apply_updates(state.params, updates), opt_state=opt_state, step=state.step + 1)
