"""The compiled extension: loaded when it is first needed, with its BLAS, its threads and its calls back into Python.

This is the only module that touches ``funcgrad.runtime._ggml``.
"""

from __future__ import annotations

import importlib
import importlib.util
import itertools
import os
import sys
import threading
import warnings
from array import array
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from funcgrad.errors import DeviceError, message
from funcgrad.runtime import built
from funcgrad.runtime.program import set_instructions

__all__ = ["MESSAGE", "Library", "add_host_function", "load", "remove_host_function", "take_host_error"]

MESSAGE = 512  # bytes for the extension's error messages
BUILD = "run `python build_ffi.py` in the source tree, or `pip install .`; the numpy device works without it"


class Library:
    """The extension: ``ffi``, ``lib``, and what was found with it."""

    def __init__(self, ffi: Any, lib: Any):
        self.ffi, self.lib = ffi, lib
        self.blas = ""  # path of the BLAS in use, or why there is none

    def new_message(self) -> Any:
        """Room for an error message."""
        return self.ffi.new("char[]", MESSAGE)

    def text(self, err: Any) -> str:
        """An error message of the extension."""
        return str(self.ffi.string(err).decode("utf-8", "replace"))

    def scratch_bytes(self, kind: int, words: Sequence[int]) -> int:
        """The most that a run of such a kernel takes for itself at a time, with the threads there are now."""
        found = int(self.lib.fg_kernel_scratch(kind, self.ffi.from_buffer("int64_t[]", array("q", words)), len(words)))
        if found < 0:
            raise AssertionError(f"the extension refused the words of a kernel of kind {kind}")
        return found

    @property
    def threads(self) -> int:
        """The number of threads that kernels use."""
        return int(self.lib.fg_get_threads())


_loaded: Library | None = None
_lock = threading.Lock()


def load() -> Library:
    """Return the extension; DeviceError says how to build it when it is missing."""
    global _loaded
    if _loaded is None:
        with _lock:
            if _loaded is None:
                _loaded = _load()
    return _loaded


def _load() -> Library:
    threads = _asked_threads()
    if built.is_outdated(built.RUNTIME):
        requirement = (
            "the compiled extension is older than its sources in funcgrad/runtime/csrc, and may fail or be wrong"
        )
        warnings.warn(message("cpu", requirement, way_out="run `python build_ffi.py`"), RuntimeWarning, stacklevel=3)
    try:
        module = importlib.import_module("funcgrad.runtime._ggml")
    except ImportError as error:
        raise DeviceError(message("cpu", "the compiled extension is required", str(error), BUILD)) from error
    found = Library(module.ffi, module.lib)
    lib = found.lib
    set_instructions([found.ffi.string(lib.fg_op_name(i)).decode() for i in range(lib.fg_n_ops())])
    define: Callable[..., Any] = found.ffi.def_extern(name="fg_host_call")
    define(_host_call)
    lib.fg_set_host(lib.fg_host_call)
    if threads:
        lib.fg_set_threads(threads)
    found.blas = _load_blas(found)
    return found


def _asked_threads() -> int:
    """FUNCGRAD_NUM_THREADS, or 0 for as many as the process has cores (which the extension finds out)."""
    text = os.environ.get("FUNCGRAD_NUM_THREADS", "").strip()
    if not text:
        return 0
    if not text.isdigit() or not 1 <= int(text) <= 256:
        raise DeviceError(message("cpu", "FUNCGRAD_NUM_THREADS must be a number from 1 to 256", repr(text)))
    return int(text)


def _load_blas(found: Library) -> str:
    """Give the kernels an OpenBLAS, if PyPI's scipy-openblas32 is installed; without one they use their own product."""
    spec = importlib.util.find_spec("scipy_openblas32")
    if spec is None or spec.origin is None:
        return "none: scipy-openblas32 is not installed"
    suffix = "dylib" if sys.platform == "darwin" else "so"
    paths = sorted((Path(spec.origin).parent / "lib").glob(f"libscipy_openblas.{suffix}*"))
    if not paths:
        return f"none: scipy-openblas32 has no library in {Path(spec.origin).parent.name}/lib"
    err = found.new_message()
    before = os.environ.get("OPENBLAS_NUM_THREADS")
    os.environ["OPENBLAS_NUM_THREADS"] = "1"  # it starts its threads while it is loaded
    try:
        failed = found.lib.fg_load_blas(os.fsencode(paths[0]), err, MESSAGE)
    finally:
        if before is None:
            del os.environ["OPENBLAS_NUM_THREADS"]
        else:
            os.environ["OPENBLAS_NUM_THREADS"] = before
    return f"none: {found.text(err)}" if failed else str(paths[0])


# -- calls back into Python --------------------------------------------------------------------------------------
_functions: dict[int, Callable[[Any], None]] = {}
_numbers = itertools.count(1)
_local = threading.local()


def add_host_function(function: Callable[[Any], None]) -> int:
    """Register what a HOST node calls with its table of pointers; return its number."""
    number = next(_numbers)
    _functions[number] = function
    return number


def remove_host_function(number: int) -> None:
    """Forget a function."""
    _functions.pop(number, None)


def _host_call(number: int, pointers: Any) -> int:
    try:
        _functions[number](pointers)
    except BaseException as error:  # an interrupt too must end the run before it goes on in Python
        _local.error = error
        return 1
    return 0


def take_host_error() -> BaseException | None:
    """Return, once, the exception that ended the last run on this thread."""
    error, _local.error = getattr(_local, "error", None), None
    return error
