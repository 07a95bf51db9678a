"""Trees and files: a leaf's name is its path with dots, and its data goes to the host and back."""

from __future__ import annotations

from typing import Any

import numpy as np

from funcgrad import dtypes, tree
from funcgrad.array import asarray, is_array
from funcgrad.errors import TreeError, message
from funcgrad.host import SCALARS, check_range

__all__ = ["dotted", "host_leaves", "leaf_like", "named_leaves"]

ROOT = "value"


def dotted(path: tree.Path) -> str:
    """Return a path as names are written in files: keys, indices and field names, joined by dots.

    >>> dotted((tree.DictKey("layers"), tree.SequenceKey(0), tree.GetAttrKey("kernel")))
    'layers.0.kernel'
    """
    return ".".join([str(k[0]) for k in path]) or ROOT


def named_leaves(pytree: Any, what: str) -> dict[str, Any]:
    """Return the leaves by name; raise TreeError for two of one name."""
    found: dict[str, Any] = {}
    paths: dict[str, str] = {}
    for path, leaf in tree.leaves_with_path(pytree):
        name = dotted(path)
        if name in found:
            got = f"{paths[name]} and {tree.keystr(path)} are both {name!r}"
            raise TreeError(message(what, "the names of the leaves must differ", got, "rename a key that holds a dot"))
        found[name], paths[name] = leaf, tree.keystr(path)
    return found


def host_leaves(pytree: Any, what: str) -> dict[str, np.ndarray[Any, Any]]:
    """Return the leaves by name as host arrays; raise TreeError, with all their names, for leaves that are no data."""
    leaves = named_leaves(pytree, what)
    wrong = [f"{type(x).__name__} at {name}" for name, x in leaves.items() if not _is_storable(x)]
    if wrong:
        got = "; ".join(wrong[:8]) + (f"; and {len(wrong) - 8} more" if len(wrong) > 8 else "")
        way_out = "save the arrays only: fg.nn.partition(tree, fg.nn.is_array)[0]"
        raise TreeError(message(what, "every leaf must be an array or a number", got, way_out))
    return {name: _to_host(x) for name, x in leaves.items()}


def _is_storable(x: Any) -> bool:
    if isinstance(x, SCALARS):
        return True
    dtype = getattr(x, "dtype", None)
    if not isinstance(dtype, np.dtype) or not is_array(x):
        return False
    return bool(dtype == dtypes.bfloat16) or (dtype.kind in "biuf" and dtype.itemsize <= 8)


def _to_host(x: Any) -> np.ndarray[Any, Any]:
    host = np.asarray(x)
    # What widened a bfloat16 array for numpy lost nothing.
    return dtypes.narrow(host, dtypes.bfloat16) if getattr(x, "dtype", None) == dtypes.bfloat16 else host


def leaf_like(host: np.ndarray[Any, Any], like: Any) -> Any:
    """Return data from a file as the kind of leaf that ``like`` is: number, numpy array, or Array on its device."""
    if type(like) in (bool, int, float):
        return type(like)(host.item())
    if isinstance(like, np.generic):
        return like.dtype.type(host.item())
    if isinstance(like, np.ndarray):
        return host.astype(like.dtype, copy=False)
    dtype = dtypes.as_dtype(like.dtype)
    check_range(host, dtype)
    return asarray(host, dtype, device=getattr(like, "device", None))
