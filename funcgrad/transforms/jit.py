"""jit: trace a function once per signature, compile the graph, and run it at every later call.

A signature is the tree structure of the arguments, the shape and dtype of each leaf, the static values and the
device.  Python numbers are traced as float32, int32 or bool scalars, so that their values never cause a
retrace.  Arrays that the function closes over are inputs of the graph, not constants in it.
"""

from __future__ import annotations

import functools
import threading
import weakref
from collections.abc import Callable, Sequence
from time import perf_counter
from typing import Any

import numpy as np

from funcgrad import tree
from funcgrad.array import Array, Gone, Read, asarray, copy_on, default_device, new_arrays
from funcgrad.control.call import Call
from funcgrad.errors import message
from funcgrad.numpy.precision import default_matmul_precision
from funcgrad.passes.simplify import dead_code, has_effects
from funcgrad.runtime import device as _device
from funcgrad.runtime.ledger import LEDGER
from funcgrad.trace import Tracer, Value, bind_all, is_staging, trace
from funcgrad.transforms.choose import choose
from funcgrad.transforms.collector import CollectorOff
from funcgrad.transforms.entry import Entry, upload
from funcgrad.transforms.explain import explain, report_constants, report_donation, report_fallbacks, report_retrace
from funcgrad.transforms.fitting import budget_of, deferred, fit_program, planned
from funcgrad.transforms.flat import FlatFunction, argument_path, label, materialize, name_of
from funcgrad.transforms.nonfinite import check_results, checks_results
from funcgrad.transforms.signature import CallReader, Signature, context, differences, leaf_paths
from funcgrad.transforms.stages import JitStats, Traced
from funcgrad.transforms.switches import inline_jit, jit_is_off

__all__ = ["clear_caches", "jit"]

_all: weakref.WeakSet[Jit] = weakref.WeakSet()
MAX_ENTRIES = 256  # signatures that one function keeps
MAX_BYTES = 2**30  # what they may hold in all: arrays closed over, constants, and what describes the graphs


def clear_caches() -> None:
    """Forget the traces and the compiled code of every jitted function, and what devices keep for later.

    Code of single operations outside of ``jit`` is forgotten too, and memory that nothing uses goes back to its device.

    >>> double = jit(lambda x: 2.0 * x)
    >>> _ = double(1.0)
    >>> clear_caches()
    >>> _ = double(1.0)
    >>> double.stats.traces
    2
    """
    for f in list(_all):
        f.clear_cache()
    _device.clear_caches()


class Jit:
    """A jitted function; see :func:`jit`."""

    def __init__(self, fun: Callable[..., Any], options: dict[str, Any]):
        functools.update_wrapper(self, fun, updated=())
        self.fun, self.name = fun, name_of(fun)
        self._reader = CallReader(fun, self.name, options)
        self.device, self.max_traces, self.strict = options["device"], options["max_traces"], options["strict"]
        self.stats = JitStats()
        self._options, self._choice = options, None if self.device == "auto" else self.device
        self._entries: dict[Signature, Entry] = {}  # an OrderedDict is broken by an interrupt while it compares keys
        self._lookups = 0
        self._last: Entry | None = None
        self._lock = threading.RLock()
        _all.add(self)

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        return self if instance is None else functools.partial(self, instance)

    # -- calling -------------------------------------------------------------------------------------------------
    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        started = perf_counter()
        last = self._last
        if last is not None and not is_staging() and last.device is self._device() and last.context == context():
            leaves = last.match((args, kwargs))
            if leaves is not None:
                storages = self._storages(last, leaves)
                if storages is not None:
                    return self._run(last, storages, leaves, started)
        return self._call(args, kwargs, started)

    def _device(self) -> Any:
        return _device.default() if self._choice is None else _device.get(self._choice)

    def _choose(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Find the device for ``device="auto"``, once; a call with values of another trace is none to time."""
        with self._lock:
            if self._choice is None and not any(isinstance(x, Tracer) for x in tree.leaves((args, kwargs))):
                plain = {**self._options, "strict": False, "max_traces": None}
                self._choice = choose(
                    lambda d: Jit(self.fun, {**plain, "device": d}), self._reader.static, args, kwargs, self.name
                )

    def _storages(self, entry: Entry, leaves: list[Any]) -> list[Any] | None:
        """The device memory of the leaves; None when one has another type than the entry's."""
        # What was host data at the last call is sent first; then all leaves are looked at in a few passes.
        dev, given = entry.device, leaves
        if entry.host:
            given = leaves.copy()
            for i in entry.host:
                x, aval = leaves[i], entry.avals[i]
                storage = None if type(x) is Array else upload(x, aval, dev)
                if storage is None:
                    return self._storages_of_any(entry, leaves)
                given[i] = new_arrays([storage], [aval], dev)[0]
        try:
            if [x.aval for x in given] == entry.avals and [x.device for x in given] == entry.devices:
                self._count_upload(sum([entry.avals[i].nbytes for i in entry.host]))
                return [x._storage for x in given]
        except AttributeError:  # host data where there was none
            pass
        return self._storages_of_any(entry, leaves)

    def _storages_of_any(self, entry: Entry, leaves: Sequence[Any]) -> list[Any] | None:
        """``_storages``, leaf by leaf; remembers which of them are host data."""
        dev = entry.device
        out, host, sent = [], [], 0
        for i, (x, aval) in enumerate(zip(leaves, entry.avals, strict=True)):
            if type(x) is Array and x.aval == aval and x.device is dev:
                storage = x.storage
            elif type(x) is Array and x.device is not dev and i not in entry.donated:
                storage, new = copy_on(x, dev)
                sent += new * aval.nbytes
            else:
                storage = upload(x, aval, dev)
                if storage is None:
                    return None
                host.append(i)
            out.append(storage)
        self._count_upload(sent + sum([entry.avals[i].nbytes for i in host]))
        entry.host = tuple(host)
        return out

    def _count_upload(self, nbytes: int) -> None:
        """Note that host data was sent: all of a call as one transfer."""
        if nbytes:
            self.stats.uploads += 1
            self.stats.bytes_uploaded += nbytes
            LEDGER.uploaded(nbytes)

    def _run(self, entry: Entry, storages: list[Any], leaves: Sequence[Any], started: float) -> Any:
        executable = entry.executable
        if executable is None:
            executable = self._compile(entry)
        if checks_results():
            return self._run_checked(entry, storages, leaves, started)
        inputs = [*[c._storage for c in entry.captured], *storages] if entry.captured else storages
        launched = perf_counter()
        try:
            outs = executable.run(inputs)
        except AttributeError:  # Gone has nothing that memory has
            for x in (*entry.captured, *[x for x in leaves if type(x) is Array]):
                if type(x._storage) is Gone:
                    raise x._storage.error() from None
            raise
        results = self._results(entry, outs, started, perf_counter() - launched)
        if entry.donated:  # last: until here an interrupt leaves the caller's arrays usable, with the new values
            self._give_away(entry, leaves)
        return results

    def _results(self, entry: Entry, outs: Sequence[Any], started: float, device_time: float) -> Any:
        """The tree of a call's results; counts the call."""
        stats = self.stats
        stats.calls += 1
        stats.launches += 1
        LEDGER.launches += 1
        results = entry.build(new_arrays(outs, entry.out_avals, entry.device, Read(stats)))
        stats.device_time += device_time
        stats.host_time += perf_counter() - started - device_time
        return results

    def _run_checked(self, entry: Entry, storages: list[Any], leaves: Sequence[Any], started: float) -> Any:
        """``_run`` under ``debug_nans``: on copies, so that a failed call changes nothing and can be run again."""
        dev = entry.device
        inputs = [*[c.storage for c in entry.captured], *storages]
        hosts = [np.array(dev.get(s, v.aval)) for s, v in zip(inputs, entry.graph.inputs, strict=True)]
        launched = perf_counter()
        outs = entry.executable.run([dev.put(h) for h in hosts])
        results = self._results(entry, outs, started, perf_counter() - launched)
        check_results(self.name, results, entry.graph, hosts, leaf_paths(entry.signature))
        self._give_away(entry, leaves)
        return results

    def _give_away(self, entry: Entry, leaves: Sequence[Any]) -> None:
        """Mark what was donated, whether or not the device could use the memory: no program depends on the device."""
        gone = Gone("donated", f"a call of {self.name}")
        for i in entry.donated:
            x = leaves[i]
            if type(x) is Array:
                x._storage = gone

    def _compile(self, entry: Entry) -> Any:
        with self._lock:
            if entry.executable is None:
                with CollectorOff():
                    self._fit(entry)
                    executable = entry.device.compile(entry.graph, self._given(entry))
                k = len(entry.captured)
                report_donation(self, entry.signature, k, getattr(executable, "donation", {}))
                self.stats.fallbacks = report_fallbacks(self, entry.device, getattr(executable, "fallbacks", ()))
                entry.executable = executable
                self._bound(entry)
                self.stats.nodes = getattr(executable, "n_nodes", len(entry.graph.eqns))
        return entry.executable

    def _given(self, entry: Entry) -> frozenset[int]:
        """The graph's inputs whose memory it may take."""
        # A callback may raise in the middle: then what was donated must still be whole.
        given = () if has_effects(entry.graph) else entry.donated
        return frozenset(len(entry.captured) + i for i in given)

    def _fit(self, entry: Entry) -> None:
        """Trace again, if need be, with checkpoints keeping as much as fits the smallest budget among them."""
        budget, again = budget_of(entry.graph), entry.again
        if again is None or budget is None:
            return
        first = planned(entry.device, entry.graph, self._given(entry))
        if first is not None and first > budget:
            with inline_jit():
                found = fit_program(
                    again, lambda e: planned(e.device, e.graph, self._given(e)), budget, f"jit of {self.name}"
                )
            entry.graph, entry.captured = found.graph, found.captured
        entry.again = None

    def _bound(self, newest: Entry) -> None:
        """Forget the entries used longest ago while there are too many, or while they hold too much."""
        held = sum([e.nbytes for e in self._entries.values()])
        while len(self._entries) > 1 and (len(self._entries) > MAX_ENTRIES or held > MAX_BYTES):
            oldest = min([e for e in self._entries.values() if e is not newest], key=lambda e: e.used)
            del self._entries[oldest.signature]
            held -= oldest.nbytes
            if self._last is oldest:
                self._last = None

    # -- the slow path -------------------------------------------------------------------------------------------
    def _call(self, args: tuple[Any, ...], kwargs: dict[str, Any], started: float) -> Any:
        if jit_is_off():
            return self.fun(*args, **kwargs)
        if self._choice is None and self.device is not None and not is_staging():
            self._choose(args, kwargs)
        entry, leaves = self._entry(args, kwargs)
        return self._call_leaves(entry, leaves, started)

    def _call_leaves(self, entry: Entry, leaves: list[Any], started: float) -> Any:
        if is_staging() or any(isinstance(x, Tracer) for x in (*leaves, *entry.captured)):
            values = [x if isinstance(x, Value) else asarray(x) for x in leaves]
            outs = bind_all(Call(entry.graph, self.name), *entry.captured, *values)
            return entry.build([materialize(o) for o in outs])
        storages = self._storages_of_any(entry, leaves)
        assert storages is not None
        if not self._reader.static:
            self._last = entry
        return self._run(entry, storages, leaves, started)

    def _entry(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Entry, list[Any]]:
        signature, leaves, call = self._reader.read(args, kwargs, self._device())
        with self._lock:
            entry = self._entries.get(signature)
            if entry is None:
                with CollectorOff():
                    entry = self._trace(signature, call)
            self._lookups += 1
            entry.used = self._lookups
        return entry, leaves

    def _trace(self, signature: Signature, call: Callable[..., Any]) -> Entry:
        if self._entries or self.stats.traces:
            report_retrace(self, signature, list(self._entries))
        if self.strict:
            report_constants(self)
        with deferred():
            entry = self._traced(signature, call)
        self.stats.traces += 1
        LEDGER.traces += 1
        if budget_of(entry.graph) is not None:
            entry.again = functools.partial(self._traced, signature, call)
        # A trace that closes over another trace's values is good for this one call only.
        if not any(isinstance(c, Tracer) for c in entry.captured):
            self._entries[signature] = entry
            self._bound(entry)
        return entry

    def _traced(self, signature: Signature, call: Callable[..., Any]) -> Entry:
        flat = FlatFunction(call, signature.treedef, f"jit of {self.name}", argument_path)
        with default_device(signature.device), default_matmul_precision(signature.context[1]):
            traced = trace(flat, signature.avals, name=self.name)
        return Entry(signature, dead_code(traced.graph), traced.captured, flat.out_tree)

    # -- looking -------------------------------------------------------------------------------------------------
    def trace(self, *args: Any, **kwargs: Any) -> Traced:
        """Trace for these arguments (arrays or ShapeDtypeStructs) without running; see :class:`Traced`."""
        entry, _ = self._entry(args, kwargs)
        self._fit(entry)
        call = functools.partial(self._call_compiled, entry)
        names = [*[f"closed-over array {i}" for i in range(len(entry.captured))], *leaf_paths(entry.signature)]
        build = functools.partial(self._compile, entry)
        return Traced(entry.graph, entry.out_tree, self.name, entry.device, call, build, names)

    def _call_compiled(self, entry: Entry, *args: Any, **kwargs: Any) -> Any:
        started = perf_counter()
        signature, leaves, _ = self._reader.read(args, kwargs, entry.device)
        if signature != entry.signature:
            got = "\n    ".join(differences(entry.signature, signature))
            raise TypeError(message(f"compiled {self.name}", "arguments must have the signature compiled for", got))
        return self._call_leaves(entry, leaves, started)

    def lower(self, *args: Any, **kwargs: Any) -> Any:
        """``trace(...).lower()``."""
        return self.trace(*args, **kwargs).lower()

    def explain(self) -> str:
        """Return as text its traces, why there are several, and the Python numbers that are part of the graph."""
        return explain(self, list(self._entries))

    def clear_cache(self) -> None:
        """Forget all traces and compiled code; the function stays usable."""
        with self._lock:
            self._entries.clear()
            self._last = None

    def cache_size(self) -> int:
        """The number of signatures held."""
        return len(self._entries)

    def __repr__(self) -> str:
        return f"jit({self.name}, {len(self._entries)} signatures)"


def jit(
    fun: Callable[..., Any] | None = None,
    *,
    static_argnums: int | Sequence[int] = (),
    static_argnames: str | Sequence[str] = (),
    donate_argnums: int | Sequence[int] = (),
    donate_argnames: str | Sequence[str] = (),
    device: Any = None,
    max_traces: int | None = None,
    strict: bool = False,
) -> Any:
    """Return ``fun`` compiled: traced once per signature, then run as one graph.

    Arguments at ``static_argnums`` or named in ``static_argnames`` are hashable Python values, part of the
    signature.  Donated arguments give their memory to the results and may not be used again.  ``max_traces`` bounds the
    number of signatures: one more raises RetraceError, which shows what changed.  ``strict=True`` raises
    CapturedConstantError when the function reads a Python number from an outer scope, which would be frozen into the
    graph (``f.explain()`` lists these), DonationError when the memory of a donated leaf cannot be used again, which is
    otherwise a warning that names the leaf and the reason, and DeviceError when the CPU would have to compute an
    operation for the device (``fg.coverage`` lists these, ``f.stats.fallbacks`` counts them); callbacks may.

    ``device`` is where it runs, by default the default device.  ``device="auto"`` times the first call on copies of its
    arguments on the CPU and on each GPU, keeps the fastest, the earlier in ``fg.devices()`` unless a later one is 5%
    faster, and prints what it chose and why to the standard error.

    Arrays of funcgrad's never change, so they stay where they are: what a call returns, what the function closes over
    and what was moved to its device once is not sent again.  A numpy array may have changed since the last call, so it
    is sent at every call, all of a call's host data as one transfer; the cpu device uses its memory without a copy.

    Usable as a decorator, with or without arguments.

    >>> @jit
    ... def double(x):
    ...     return x * 2.0
    >>> double(4.0)
    Array(8., dtype=float32)
    """
    options = {
        "static_argnums": static_argnums,
        "static_argnames": static_argnames,
        "donate_argnums": donate_argnums,
        "donate_argnames": donate_argnames,
        "device": device,
        "max_traces": max_traces,
        "strict": strict,
    }
    if fun is None:
        return lambda f: Jit(f, options)
    label("jit", fun)
    return Jit(fun, options)
