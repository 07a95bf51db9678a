"""Trees of one structure, fast: flattening and building as straight Python code."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from funcgrad.tree.core import TreeDef
from funcgrad.tree.kinds import LEAF, REGISTRY

__all__ = ["builder", "matcher"]


def matcher(treedef: TreeDef) -> Callable[[Any], list[Any] | None]:
    """Return a function that flattens trees of exactly this structure fast, and gives None for any other tree.

    The structure is unrolled into straight Python code once.

    >>> match = matcher(fg.tree.structure({"a": 0, "b": (0, 0)}))
    >>> match({"a": 1, "b": (2, 3)}), match({"a": 1})
    ([1, 2, 3], None)
    """
    code = _MatcherCode()
    code.visit(treedef, "t")
    source = "\n".join(
        ["def match(t):", *[f"    {line}" for line in code.lines], f"    return [{', '.join(code.leaves)}]"]
    )
    scope = code.scope
    exec(source, scope)
    match: Callable[[Any], list[Any] | None] = scope["match"]
    return match


class _MatcherCode:
    """The lines of a matcher: tests of type and size, then names for the children."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.leaves: list[str] = []
        self.scope: dict[str, Any] = {}
        self.count = 0

    def constant(self, value: Any) -> str:
        """A name for a value in the generated code."""
        name = f"c{len(self.scope)}"
        self.scope[name] = value
        return name

    def visit(self, treedef: TreeDef, at: str) -> None:
        """Emit what takes the tree named ``at`` apart."""
        kind = treedef.kind
        if kind is LEAF:
            self.leaves.append(at)
            return
        if kind is type(None):
            self.lines.append(f"if {at} is not None: return None")
            return
        n = len(treedef.children)
        names = [f"t{self.count + i}" for i in range(n)]
        self.count += n
        self.lines.append(f"if type({at}) is not {self.constant(kind)}: return None")
        if kind in (tuple, list) or issubclass(kind, tuple):
            self.lines.append(f"if len({at}) != {n}: return None")
            self.lines += [f"{', '.join(names)}, = {at}"] if n else []
        elif kind is dict:
            self.lines.append(f"if len({at}) != {n}: return None")
            keys = [self.constant(k) for k in treedef.meta]  # type: ignore[attr-defined]
            body = "; ".join(f"{t} = {at}[{k}]" for t, k in zip(names, keys, strict=True)) or "pass"
            self.lines += [f"try: {body}", "except KeyError: return None"]
        else:
            flat, meta = self.constant(REGISTRY[kind].flatten), self.constant(treedef.meta)
            self.lines += [f"children, meta = {flat}({at})", f"if meta != {meta} or len(children) != {n}: return None"]
            self.lines += [f"{', '.join(names)}, = children"] if n else []
        for child, name in zip(treedef.children, names, strict=True):
            self.visit(child, name)


def builder(treedef: TreeDef) -> Callable[[Sequence[Any]], Any]:
    """Return a function that builds trees of this structure from their leaves fast: :func:`unflatten` as straight code.

    >>> builder(fg.tree.structure({"a": 0, "b": (0, None)}))([1, 2])
    {'a': 1, 'b': (2, None)}
    """
    code = _BuilderCode()
    root = code.visit(treedef)
    leaves = "".join([f"x{i}, " for i in range(code.leaves)])
    unpack = [f"{leaves}= xs"] if leaves else []
    source = "\n".join(["def build(xs):", *[f"    {line}" for line in (*unpack, *code.lines, f"return {root}")]])
    exec(source, code.scope)
    build: Callable[[Sequence[Any]], Any] = code.scope["build"]
    return build


class _BuilderCode:
    """The lines of a builder: one assignment per container, children first."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.leaves = 0
        self.scope: dict[str, Any] = {}

    def constant(self, value: Any) -> str:
        """A name for a value in the generated code."""
        name = f"c{len(self.scope)}"
        self.scope[name] = value
        return name

    def visit(self, treedef: TreeDef) -> str:
        """Emit what builds a tree; return its name."""
        kind = treedef.kind
        if kind is LEAF:
            self.leaves += 1
            return f"x{self.leaves - 1}"
        if kind is type(None):
            return "None"
        children = [self.visit(c) for c in treedef.children]
        listed = "".join([f"{c}, " for c in children])
        if kind is tuple:
            expression = f"({listed})"
        elif kind is list:
            expression = f"[{listed}]"
        elif kind is dict:
            keys = [self.constant(k) for k in treedef.meta]  # type: ignore[attr-defined]
            expression = "{" + "".join([f"{k}: {c}, " for k, c in zip(keys, children, strict=True)]) + "}"
        else:
            unflatten_kind, meta = self.constant(REGISTRY[kind].unflatten), self.constant(treedef.meta)
            expression = f"{unflatten_kind}({meta}, [{listed}])"
        name = f"t{len(self.lines)}"
        self.lines.append(f"{name} = {expression}")
        return name
