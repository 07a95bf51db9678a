"""The layout: modules import only from lower layers, no imports inside functions, small files, no global mutable state
by accident."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parent.parent / "funcgrad"

# From the bottom up; a module may import from its own layer's package and from the rows above it.
LAYERS = [
    ["errors", "optional", "tree"],
    ["dtypes"],
    ["ir"],
    ["trace"],
    ["primitive"],
    ["prims"],
    ["passes"],
    ["control"],
    ["runtime"],
    ["host", "graph_html"],
    ["array", "numpy", "operators"],
    ["transforms"],
    ["lax"],
    [
        "random",
        "nn",
        "losses",
        "optim",
        "data",
        "train_step",
        "mixed_precision",
        "training",
        "io",
        "debug",
        "placement",
        "environment",
        "profiling",
        "flatten_util",
        "ad_checkpoint",
        "custom_batching",
        "typing",
        "tree_util",
        "ops",
        "image",
        "scipy",
        "experimental",
    ],
    ["testing", "test_util", "demo"],
]
RANK = {name: i for i, row in enumerate(LAYERS) for name in row}
FILES = sorted(
    p for p in PACKAGE.rglob("*.py") if p.relative_to(PACKAGE).as_posix() not in ("__init__.py", "__main__.py")
)


MODULES = {p.relative_to(PACKAGE).parts[0].removesuffix(".py") for p in FILES}


def layer(path: Path) -> str:
    """The top-level module of a file."""
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def imported(tree: ast.AST) -> list[str]:
    """The funcgrad modules that a file imports, as top-level names."""
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] == "funcgrad":
            parts = node.module.split(".")
            # A name taken from the package itself is public: it stands for the transformations.
            names = [parts[1]] if len(parts) > 1 else [a.name for a in node.names]
            found += [n if n in RANK or n in MODULES else "transforms" for n in names]
        elif isinstance(node, ast.Import):
            found += [a.name.split(".")[1] for a in node.names if a.name.startswith("funcgrad.")]
    return found


def type_checking_imports(tree: ast.AST) -> set[str]:
    """Imports under ``if TYPE_CHECKING`` do not run."""
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING":
            for inner in node.body:
                found.update(imported(inner))
    return found


@pytest.mark.parametrize("path", FILES, ids=lambda p: p.relative_to(PACKAGE).as_posix())
def test_imports_point_down(path: Path) -> None:
    tree = ast.parse(path.read_text())
    own = layer(path)
    assert own in RANK, f"{own} has no layer; add it to LAYERS"
    for name in imported(tree):
        if name in type_checking_imports(tree) or own == "demo":
            continue
        assert name in RANK, f"{path.name} imports {name}, which has no layer"
        assert RANK[name] <= RANK[own], f"{path.name} (layer {own}) imports {name} from above"


@pytest.mark.parametrize("path", FILES, ids=lambda p: p.relative_to(PACKAGE).as_posix())
def test_no_imports_inside_functions(path: Path) -> None:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            inner = [n for n in ast.walk(node) if isinstance(n, (ast.Import, ast.ImportFrom))]
            assert not inner, f"{path.name}:{inner[0].lineno} imports inside {node.name}"


@pytest.mark.parametrize("path", FILES, ids=lambda p: p.relative_to(PACKAGE).as_posix())
def test_files_stay_small(path: Path) -> None:
    assert len(path.read_text().splitlines()) <= 560, "split the file: one room, one purpose"


def test_the_test_sees_an_upward_import() -> None:
    tree = ast.parse("from funcgrad.transforms import jit\nimport funcgrad.numpy as fnp")
    assert imported(tree) == ["transforms", "numpy"]
    assert RANK["transforms"] > RANK["prims"]


def test_only_one_module_imports_the_extension() -> None:
    users = [p for p in FILES if "funcgrad.runtime._ggml" in p.read_text()]
    assert [p.relative_to(PACKAGE).as_posix() for p in users] == ["runtime/ggml.py"]
