"""save and load: trees of arrays in safetensors and GGUF files, whole or not at all."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any, NamedTuple

import numpy as np

from funcgrad import dtypes, tree
from funcgrad.array import asarray
from funcgrad.errors import TreeError, message
from funcgrad.io.atomic import write_atomically
from funcgrad.io.entries import bad, shown
from funcgrad.io.gguf import GGUFReader
from funcgrad.io.gguf_write import write_gguf
from funcgrad.io.names import dotted, host_leaves, leaf_like, named_leaves
from funcgrad.io.safetensors import SafetensorsReader, write_safetensors

__all__ = ["TensorInfo", "inspect", "load", "metadata", "save"]

Path = str | os.PathLike[str]
Reader = SafetensorsReader | GGUFReader
INDEX = "model.safetensors.index.json"
MAX_INDEX = 100_000_000


class TensorInfo(NamedTuple):
    """The dtype (as the file names it) and the shape of a tensor in a file."""

    dtype: str
    shape: tuple[int, ...]


def save(path: Path, pytree: Any, metadata: Mapping[str, Any] | None = None) -> None:
    """Write the arrays and numbers of a tree to a file, in GGUF when the name ends with ``.gguf``, else in safetensors.

    A leaf's name in the file is its path with dots ("layers.0.kernel"; a lone array is "value").  dtypes stay as they
    are; Python's floats and ints become float64 and int64.  safetensors metadata maps str to str; GGUF metadata may be
    str, bool, int, float and lists of these.

    The file is written beside ``path``, brought to the disk, and put in its place: at any moment ``path`` is the old
    file or the new one.

    Raises TreeError for leaves that are no data or share a name, before anything is written; OSError from the disk.

    >>> import tempfile, os
    >>> file = os.path.join(tempfile.mkdtemp(), "model.safetensors")
    >>> save(file, {"layers": [{"kernel": asarray([1.0, 2.0])}]})
    >>> load(file)
    {'layers.0.kernel': Array([1., 2.], dtype=float32)}
    """
    arrays = host_leaves(pytree, "save")
    found = dict(metadata or {})
    if os.fspath(path).endswith(".gguf"):
        write_atomically(path, lambda file: write_gguf(file, arrays, found))
        return
    wrong = {k: v for k, v in found.items() if not isinstance(k, str) or not isinstance(v, str)}
    if wrong:
        way_out = "convert the values, with json.dumps for structures"
        raise TypeError(message("save", "metadata must map str to str", shown(repr(wrong)), way_out))
    if "__metadata__" in arrays:
        raise TreeError(message("save", "a leaf may not be named '__metadata__'", "one that is", "rename its key"))
    write_atomically(path, lambda file: write_safetensors(file, arrays, found))


def load(path: Path, like: Any = None, paths: Sequence[str] | None = None, *, strict: bool = True) -> Any:
    """Read a safetensors or GGUF file, a Hugging Face index of shards (``*.index.json``), or a folder that holds one.

    Without ``like`` returns a dict of Arrays by name.  With ``like``, a tree, returns a tree of its structure with the
    data of the file; every leaf must be there in the shape and dtype of ``like``, and (``strict``) nothing else: all
    that does not fit is reported at once, before anything is returned.  Leaves may be arrays, numbers, or
    ShapeDtypeStructs.

    ``paths`` reads only the tensors of these names, or under these prefixes ("encoder" for "encoder.0.kernel"); with
    ``like`` the other leaves stay those of ``like``.

    64-bit and narrow data becomes what a device holds, as in :func:`funcgrad.numpy.asarray`; quantised GGUF types
    (Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, Q4_K, Q5_K, Q6_K) become float32.

    Raises FileFormatError for a file that is damaged, TreeError for one that does not fit ``like``, OverflowError for
    integers that do not fit 32 bits.

    >>> import tempfile, os
    >>> file = os.path.join(tempfile.mkdtemp(), "model.safetensors")
    >>> save(file, {"w": asarray([1.0, 2.0]), "b": asarray(0.5)})
    >>> load(file, like={"w": fnp.zeros(2), "b": fnp.zeros(())})
    {'b': Array(0.5, dtype=float32), 'w': Array([1., 2.], dtype=float32)}
    >>> load(file, paths=["b"])
    {'b': Array(0.5, dtype=float32)}
    """
    with _open(path) as readers:
        where = {name: reader for reader in readers for name in reader.entries}
        wanted = _wanted(path, where, paths)
        if like is None:
            return {name: asarray(where[name].read(name)) for name in wanted}
        chosen = named_leaves(like, "load")
        if paths is not None:
            chosen = {name: x for name, x in chosen.items() if name in wanted}
        _check_fit(path, {n: where[n] for n in wanted}, chosen, strict)
        data = {name: leaf_like(where[name].read(name), x) for name, x in chosen.items()}
    return tree.map_with_path(lambda p, x: data.get(dotted(p), x), like)


def metadata(path: Path) -> dict[str, Any]:
    """Return the metadata of a file.

    >>> import tempfile, os
    >>> file = os.path.join(tempfile.mkdtemp(), "model.safetensors")
    >>> save(file, {"w": asarray(1.0)}, {"epoch": "3"})
    >>> metadata(file)
    {'epoch': '3'}
    """
    with _open(path) as readers:
        return {k: v for reader in readers for k, v in reader.metadata.items()}


def inspect(path: Path) -> dict[str, TensorInfo]:
    """Return dtype and shape of each tensor in a file, by name, without reading the data.

    >>> import tempfile, os
    >>> file = os.path.join(tempfile.mkdtemp(), "model.safetensors")
    >>> save(file, {"w": fnp.zeros((2, 3))})
    >>> inspect(file)
    {'w': TensorInfo(dtype='F32', shape=(2, 3))}
    """
    with _open(path) as readers:
        return {n: TensorInfo(e.dtype, e.shape) for reader in readers for n, e in reader.entries.items()}


# -- files and shards --------------------------------------------------------------------------------------------
@contextmanager
def _open(path: Path) -> Iterator[list[Reader]]:
    """The readers of a file, or of the shards that an index names, all checked."""
    with ExitStack() as stack:

        def reader(file: str) -> Reader:
            opened = stack.enter_context(open(file, "rb"))
            magic = opened.read(4)
            opened.seek(0)
            return GGUFReader(file, opened) if magic == b"GGUF" else SafetensorsReader(file, opened)

        place = os.fspath(path)
        if os.path.isdir(place):
            index = os.path.join(place, INDEX)
            place = index if os.path.exists(index) else os.path.join(place, "model.safetensors")
        if not place.endswith(".json"):
            yield [reader(place)]
            return
        shards = _shards(place)
        readers = {name: reader(os.path.join(os.path.dirname(place), name)) for name in sorted(set(shards.values()))}
        _check_index(place, shards, readers)
        yield list(readers.values())


def _shards(index: str) -> dict[str, str]:
    """The file of each tensor, from an index."""
    if os.path.getsize(index) > MAX_INDEX:
        raise bad(index, f"an index must be of at most {MAX_INDEX} bytes", os.path.getsize(index))
    with open(index, "rb") as file:
        try:
            found = json.loads(file.read(MAX_INDEX).decode("utf-8"))
        except (ValueError, RecursionError) as e:
            raise bad(index, "an index must be JSON", str(e)) from None
    shards = found.get("weight_map") if isinstance(found, dict) else None
    if not isinstance(shards, dict) or not all(isinstance(v, str) for v in shards.values()):
        raise bad(index, "an index must have a weight_map from names to files", type(found).__name__)
    for name in shards.values():  # an index must not reach out of its folder
        if os.path.basename(name) != name or name in ("", ".", "..") or "\\" in name or "\0" in name:
            raise bad(index, "the files of an index must be beside it", name)
    return shards


def _check_index(index: str, shards: dict[str, str], readers: dict[str, Reader]) -> None:
    missing = [f"{n} in {f}" for n, f in shards.items() if n not in readers[f].entries]
    if missing:
        raise bad(index, "every tensor of the index must be in its file", "none of " + ", ".join(missing[:8]))
    names = [n for r in readers.values() for n in r.entries]
    if len(set(names)) != len(names):
        raise bad(index, "a tensor must be in one file only", [n for n in set(names) if names.count(n) > 1][:8])


# -- what fits ---------------------------------------------------------------------------------------------------
def _wanted(path: Path, known: Mapping[str, Any], paths: Sequence[str] | None) -> list[str]:
    """The names in the file that are asked for; each of ``paths`` must match."""
    if paths is None:
        return list(known)
    if isinstance(paths, str):
        raise TypeError(message("load", "paths must be a sequence of names", repr(paths), f"use [{paths!r}]"))
    found, lost = [], []
    for p in paths:
        hits = [n for n in known if n == p or n.startswith(p + ".")]
        found += hits
        lost += [] if hits else [p]
    if lost:
        way_out = "fg.io.inspect(path) lists the names; the first are " + ", ".join(list(known)[:8])
        raise TreeError(
            message(f"load {os.path.basename(path)}", "paths must be in the file", ", ".join(lost), way_out)
        )
    return list(dict.fromkeys(found))


def _check_fit(path: Path, where: Mapping[str, Reader], like: Mapping[str, Any], strict: bool) -> None:
    """Raise TreeError listing every leaf that is missing, extra, or of another shape or dtype."""
    wrong = [f"{n}: missing from the file" for n in like if n not in where]
    wrong += [f"{n}: in the file, not in like" for n in where if n not in like] if strict else []
    for name, leaf in like.items():
        if name not in where:
            continue
        entry = where[name].entries[name]
        shape, dtype = tuple(np.shape(leaf)) if not hasattr(leaf, "shape") else tuple(leaf.shape), _dtype_of(leaf)
        if entry.shape != shape:
            wrong.append(f"{name}: shape {entry.shape} in the file, {shape} in like")
        elif not _holds(entry.dtype, dtype):
            wrong.append(f"{name}: dtype {entry.dtype} in the file, {dtypes.NAMES.get(dtype, dtype)} in like")
    if wrong:
        text = "".join(f"\n    {w}" for w in wrong[:50]) + (
            f"\n    and {len(wrong) - 50} more" if len(wrong) > 50 else ""
        )
        way_out = "paths= reads a part; strict=False allows more in the file; without like= load returns all by name"
        what = f"load {os.path.basename(path)}"
        raise TreeError(message(what, f"the file must fit like, and {len(wrong)} leaves do not", text, way_out))


def _dtype_of(leaf: Any) -> Any:
    if type(leaf) in (bool, int, float):
        return type(leaf)
    return getattr(leaf, "dtype", None)


_FILE_KINDS = {"BOOL": bool, "F64": float, "F32": float, "F16": float, "BF16": float}
_DEVICE = {"F64": dtypes.float32, "F32": dtypes.float32, "F16": dtypes.float16, "BF16": dtypes.bfloat16}
_DEVICE |= {"BOOL": dtypes.bool_, "U32": dtypes.uint32, "U64": dtypes.uint32}
_DEVICE |= dict.fromkeys(("I8", "I16", "I32", "I64", "U8", "U16"), dtypes.int32)
_EXACT = {
    "F64": "float64",
    "I64": "int64",
    "I16": "int16",
    "I8": "int8",
    "U64": "uint64",
    "U16": "uint16",
    "U8": "uint8",
}


def _holds(in_file: str, wanted: Any) -> bool:
    """Whether data of a dtype in a file may become a leaf of a dtype: what asarray would make of it, or itself.

    float32 may become float64, which is what the numpy device computes in.
    """
    if isinstance(wanted, type) and wanted in (bool, int, float):
        return _FILE_KINDS.get(in_file, int) is wanted
    if in_file in _EXACT and wanted == np.dtype(_EXACT[in_file]):
        return True
    becomes = _DEVICE.get(in_file, dtypes.float32)  # quantised data is float32
    return bool(wanted == becomes) or (becomes == dtypes.float32 and wanted == dtypes.float64)
