"""The choice of ``device="auto"``: a call is timed on the CPU and on each GPU, and the fastest runs the function."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable
from time import perf_counter
from typing import Any

from funcgrad import tree
from funcgrad.array import Array, block_until_ready, new_arrays, to_host
from funcgrad.errors import DeviceError, message
from funcgrad.ir import Aval
from funcgrad.passes.simplify import has_effects
from funcgrad.runtime import device as _device
from funcgrad.transforms.arguments import Chosen

__all__ = ["choose"]

CALLS, SECONDS = 5, 1.0  # timed calls of each device, and the time after which no further one is begun
GAIN = 0.95  # of the time so far that a later device may take to be chosen, so that noise decides nothing


def choose(
    make: Callable[[Any], Any], static: Chosen, args: tuple[Any, ...], kwargs: dict[str, Any], name: str
) -> _device.Device:
    """Return the device on which ``make(device)`` is fastest with these arguments, of which it gets copies.

    Devices are tried in the order of ``fg.devices()``, numpy's left out; a later one must be 5% faster than all before
    it.  One that fails is out.  A function with effects is not tried: it belongs to the default device.  What was
    chosen and why is printed to the standard error.
    """
    default = _device.default()
    candidates = [d for d in _device.devices() if d.name != "numpy"]
    if len(candidates) < 2:
        return _say(name, candidates[0] if candidates else default, "the only device")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the chosen one says it again
        if has_effects(make(default).trace(*args, **kwargs).graph):
            return _say(name, default, "the default one: a function with effects is not run on trial")
        times: dict[_device.Device, float] = {}
        notes, failed = [], None
        for dev in candidates:
            try:
                times[dev] = _time(make(dev), dev, static, args, kwargs)
                notes.append(f"{dev.name} {times[dev] * 1e3:.3g} ms")
            except DeviceError as error:
                failed = error
                notes.append(f"{dev.name} failed: {str(error).splitlines()[0]}")
    best: _device.Device | None = None
    for dev, seconds in times.items():
        if best is None or seconds <= GAIN * times[best]:
            best = dev
    if best is None:
        raise DeviceError(message(f"jit of {name}", "a device must run it", "; ".join(notes))) from failed
    return _say(name, best, f"a call takes: {', '.join(notes)}")


def _say(name: str, device: _device.Device, why: str) -> _device.Device:
    print(f'funcgrad: device="auto" of {name} is {device.name}; {why}', file=sys.stderr)
    return device


def _time(fun: Any, dev: Any, static: Chosen, args: tuple[Any, ...], kwargs: dict[str, Any]) -> float:
    """The least time in seconds of a few calls, after one that compiles; each has copies of its own to donate."""
    fixed = static.positions(len(args))

    def call() -> float:
        own = [a if i in fixed else _copies(a, dev) for i, a in enumerate(args)]
        named = {k: v if k in static.names else _copies(v, dev) for k, v in kwargs.items()}
        dev.synchronize()
        started = perf_counter()
        block_until_ready(fun(*own, **named))
        dev.synchronize()
        return perf_counter() - started

    call()
    begun, least = perf_counter(), call()
    for _ in range(CALLS - 1):
        if perf_counter() - begun > SECONDS:
            break
        least = min(least, call())
    return least


def _copies(x: Any, dev: Any) -> Any:
    """A tree with its arrays copied to a device; host data stays where it is, and is sent at every call."""

    def copy(leaf: Any) -> Any:
        if not isinstance(leaf, Array):
            return leaf
        host = to_host(leaf._host(), None, dev.float64)
        return new_arrays([dev.put(host)], [Aval(host.shape, host.dtype)], dev)[0]

    return tree.map(copy, x)
