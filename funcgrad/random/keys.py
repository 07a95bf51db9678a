"""Keys and bits: Threefry-2x32 counters (Salmon et al., SC 2011)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from funcgrad import dtypes
from funcgrad import numpy as fnp
from funcgrad.array import as_value, asarray
from funcgrad.errors import ConcretizationTypeError, DTypeError, ShapeError, message
from funcgrad.ir import Literal
from funcgrad.prims import layout, logic

__all__ = ["PRNGKey", "bits", "clone", "fold_in", "key", "key_data", "key_impl", "shape_of", "split", "wrap_key_data"]

Shape = Sequence[int]


def key(seed: Any) -> Any:
    """Return the key for an integer seed: its lower 32 bits, as JAX does unless told to use 64.

    >>> key(7)
    Array([0, 7], dtype=uint32)
    """
    if isinstance(seed, (int, np.integer)) and not isinstance(seed, bool):
        return asarray(np.array([0, int(seed) & 0xFFFFFFFF], np.uint32))
    value = as_value(seed)
    if value.aval.shape or not dtypes.is_int(value.aval.dtype):
        raise DTypeError(message("random.key", "an integer seed is required", f"{seed!r}"))
    low = layout.reshape(fnp.astype(value, dtypes.uint32), (1,))
    return layout.concatenate([layout.broadcast(Literal(0, dtypes.uint32), (1,), ()), low], 0)


PRNGKey = key


def key_data(keys: Any) -> Any:
    """Return the words of a key: it is its own data.

    >>> key_data(fg.random.key(0))
    Array([0, 0], dtype=uint32)
    """
    return as_value(keys)


def wrap_key_data(data: Any) -> Any:
    """Return a key for two uint32 words.

    >>> wrap_key_data(np.array([0, 7], np.uint32))
    Array([0, 7], dtype=uint32)
    """
    return as_value(data)


def clone(key: Any) -> Any:
    """Return the key itself, for programs that mark a second use of a key on purpose.

    >>> clone(PRNGKey(7))
    Array([0, 7], dtype=uint32)
    """
    return as_value(key)


def key_impl(keys: Any) -> str:
    """Return the name of the generator, which is one: threefry2x32.

    >>> key_impl(PRNGKey(0))
    'threefry2x32'
    """
    as_value(keys)
    return "threefry2x32"


def _words(keys: Any, what: str) -> tuple[Any, Any]:
    k = as_value(keys)
    if k.aval.shape != (2,) or k.aval.dtype != dtypes.uint32:
        way_out = "make one with random.key(seed); map over many with vmap"
        raise DTypeError(message(f"random.{what}", "a key is a uint32 array of shape (2,)", str(k.aval), way_out))
    return tuple([layout.reshape(layout.slice_along(k, 0, i, i + 1), ()) for i in range(2)])


def shape_of(shape: Any, what: str) -> tuple[int, ...]:
    try:
        return (int(shape),) if isinstance(shape, (int, np.integer)) else tuple([int(n) for n in shape])
    except ConcretizationTypeError:
        raise
    except TypeError:
        raise ShapeError(
            message(f"random.{what}", "a shape must be integers known when tracing", repr(shape))
        ) from None


def _random_words(keys: Any, shape: tuple[int, ...], word: int, what: str) -> Any:
    k0, k1 = _words(keys, what)
    size = math.prod(shape)
    low = layout.iota((size,), 0, dtypes.uint32)
    drawn = logic.threefry(k0, k1, Literal(0, dtypes.uint32), low, word)
    return layout.reshape(drawn, shape)


def bits(key: Any, shape: Shape = (), dtype: Any = dtypes.uint32) -> Any:
    """Return uniform random uint32 values.

    >>> bits(fg.random.key(0), (2,)).dtype
    dtype('uint32')
    """
    if dtypes.as_dtype(dtype) != dtypes.uint32:
        raise DTypeError(message("random.bits", "bits are uint32", str(dtype)))
    return _random_words(key, shape_of(shape, "bits"), 2, "bits")


def split(key: Any, num: int | Shape = 2) -> Any:
    """Return ``num`` new keys, stacked: shape (num, 2).

    >>> split(fg.random.key(0)).shape
    (2, 2)
    """
    shape = shape_of(num, "split")
    words = [layout.expand(_random_words(key, shape, w, "split"), len(shape)) for w in (0, 1)]
    return layout.concatenate(words, len(shape))


def fold_in(key: Any, data: Any) -> Any:
    """Return a new key that depends on ``data``, an integer of 32 bits, which may be traced.

    >>> fold_in(fg.random.key(0), 3).shape
    (2,)
    """
    k0, k1 = _words(key, "fold_in")
    plain = isinstance(data, (int, np.integer)) and not isinstance(data, bool)
    value = Literal(int(data) & 0xFFFFFFFF, dtypes.uint32) if plain else as_value(data)
    if value.aval.shape or not dtypes.is_int(value.aval.dtype):
        raise DTypeError(message("random.fold_in", "an integer scalar is required", str(value.aval)))
    low = fnp.astype(value, dtypes.uint32)
    words = [layout.reshape(logic.threefry(k0, k1, Literal(0, dtypes.uint32), low, w), (1,)) for w in (0, 1)]
    return layout.concatenate(words, 0)
