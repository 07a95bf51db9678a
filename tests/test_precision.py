"""The precision of products and convolutions: from the call, through every transformation, to the Vulkan kernels."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import funcgrad as fg
import funcgrad.numpy as fnp
from funcgrad import lax, nn
from funcgrad.ir import Equation, Graph, subgraphs
from funcgrad.passes.pipeline import prepare
from funcgrad.prims.contract import Conv, DotGeneral
from funcgrad.runtime.kinds import DOT, DOT_MAP
from funcgrad.runtime.vulkan.emitter import VulkanEmitter

X = np.zeros((2, 8, 8, 4), np.float32)
KERNEL = np.zeros((3, 3, 4, 6), np.float32)
NHWC = ("NHWC", "HWIO", "NHWC")
Function = Callable[..., Any]


def conv2d(x: Any, kernel: Any, precision: Any = None, **options: Any) -> Any:
    return lax.conv_general_dilated(x, kernel, (1, 1), "SAME", dimension_numbers=NHWC, precision=precision, **options)


def equations(graph: Graph) -> Iterator[Equation]:
    for eqn in graph.eqns:
        yield eqn
        for inner in subgraphs(eqn):
            yield from equations(inner)


def precisions(fun: Function, *args: Any) -> list[str | None]:
    """The precision of every product and convolution of the function's graph."""
    graph = fg.make_graph(fun)(*args)
    return [e.prim.precision for e in equations(graph) if isinstance(e.prim, (Conv, DotGeneral))]


# Each takes the precision as an argument; x and the kernel are NHWC and HWIO.
CALLS: dict[str, tuple[Function, tuple[Any, ...]]] = {
    "conv_general_dilated": (conv2d, (X, KERNEL)),
    "groups": (lambda x, k, p=None: conv2d(x, k, p, feature_group_count=2), (X, KERNEL[:, :, :2])),
    "batch groups": (lambda x, k, p=None: conv2d(x, k, p, batch_group_count=2), (X, KERNEL)),
    "conv": (lambda x, k, p=None: lax.conv(x, k, (1,), "SAME", p), (np.zeros((2, 4, 8)), np.zeros((6, 4, 3)))),
    "conv_with_general_padding": (
        lambda x, k, p=None: lax.conv_with_general_padding(x, k, (1,), [(1, 1)], None, (2,), p),
        (np.zeros((2, 4, 8)), np.zeros((6, 4, 3))),
    ),
    "conv_transpose": (
        lambda x, k, p=None: lax.conv_transpose(x, k, (2, 2), "SAME", precision=p),
        (X, KERNEL),
    ),
    "convolve": (lambda x, k, p=None: fnp.convolve(x, k, precision=p), (np.zeros(8), np.zeros(3))),
    "correlate": (lambda x, k, p=None: fnp.correlate(x, k, precision=p), (np.zeros(8), np.zeros(3))),
    "matmul": (lambda x, k, p=None: fnp.matmul(x, k, precision=p), (np.zeros((2, 3)), np.zeros((3, 4)))),
}
calls = pytest.mark.parametrize("name", CALLS)


@calls
@pytest.mark.parametrize("precision", ["tensorfloat32", "float16"])
def test_the_argument_and_the_context_reach_the_graph(name: str, precision: str) -> None:
    fun, args = CALLS[name]
    assert precisions(fun, *args) == [None]
    assert precisions(lambda *xs: fun(*xs, precision), *args) == [precision]
    with fg.default_matmul_precision(precision):
        assert precisions(fun, *args) == [precision]
        assert precisions(lambda *xs: fun(*xs, "float32"), *args) == [None]
        assert precisions(lambda *xs: fun(*xs, lax.Precision.HIGHEST), *args) == [None]


@calls
def test_transformations_keep_the_precision(name: str) -> None:
    fun, args = CALLS[name]
    cheap = lambda *xs: fun(*xs, "tensorfloat32")
    loss = lambda *xs: (cheap(*xs) ** 2).sum()
    both = lambda *xs: fg.vmap(cheap)(*xs)
    first, second = [lambda *xs, axes=axes: fg.vmap(cheap, in_axes=axes)(*xs) for axes in ((0, None), (None, 0))]
    x, k = args
    xs, ks = np.stack([x, x, x]), np.stack([k, k, k])
    cases: list[tuple[Function, tuple[Any, ...], int]] = [
        (fg.grad(loss, argnums=(0, 1)), (x, k), 3),
        (lambda *a: fg.jvp(cheap, a, a), (x, k), 3),
        (fg.grad(lambda *a: (fg.grad(loss)(*a) ** 2).sum()), (x, k), 4),
        (first, (xs, k), 1),
        (second, (x, ks), 1),
        (both, (xs, ks), 1),
        (fg.grad(fg.checkpoint(loss), argnums=(0, 1)), (x, k), 3),
    ]
    for transformed, operands, least in cases:
        found = precisions(transformed, *operands)
        assert len(found) >= least and set(found) == {"tensorfloat32"}


def test_layers_follow_the_context() -> None:
    for layer in (nn.Conv2d(4, 6, 3, key=fg.random.key(0)), nn.ConvTranspose2d(4, 6, 3, key=fg.random.key(0))):
        assert precisions(layer, X) == [None]
        with fg.default_matmul_precision("tensorfloat32"):
            assert precisions(layer, X) == ["tensorfloat32"]
            assert set(precisions(fg.grad(lambda m, x: m(x).sum()), layer, X)) == {"tensorfloat32"}


def test_patches_are_copies_whatever_the_context() -> None:
    patches = lambda x, p=None: lax.conv_general_dilated_patches(x, (3, 3), (1, 1), "SAME", precision=p)
    with fg.default_matmul_precision("float16"):
        assert precisions(patches, X) == [None]
    assert precisions(lambda x: patches(x, "float16"), X) == ["float16"]


@pytest.mark.parametrize(
    ("pair", "chosen"),
    [
        (("float32", "float16"), None),
        (("float16", "tensorfloat32"), "tensorfloat32"),
        (["float16", "float16"], "float16"),
        ((None, "tensorfloat32"), "tensorfloat32"),
    ],
)
def test_a_pair_means_the_more_exact_one(pair: Any, chosen: str | None) -> None:
    with fg.default_matmul_precision("float16"):
        assert precisions(lambda x, k: conv2d(x, k, pair), X, KERNEL) == [chosen]
        assert precisions(lambda x: fnp.matmul(x, x, precision=pair), np.zeros((2, 2))) == [chosen]


@calls
@pytest.mark.parametrize("wrong", ["bfloat8", ("float32",), ("float32", "float32", "float32"), 3])
def test_an_unknown_precision_is_refused(name: str, wrong: Any) -> None:
    fun, args = CALLS[name]
    with pytest.raises(ValueError, match="precision must be"):
        fun(*args, wrong)


@pytest.mark.ggml
@pytest.mark.parametrize("precision", [None, "tensorfloat32", "float16"])
@pytest.mark.parametrize("name", ["conv_general_dilated", "groups", "batch groups", "matmul"])
def test_vulkan_kernels_are_told_the_precision(name: str, precision: str | None) -> None:
    fun, args = CALLS[name]
    loss = lambda *xs: (fun(*xs, precision) ** 2).sum()
    graph = prepare(fg.make_graph(fg.grad(loss, argnums=(0, 1)))(*args))
    nodes = VulkanEmitter(prepare).lower(graph).nodes
    words = [node.words for node in nodes if node.kind == DOT]
    words += [node.words[2 : 2 + node.words[0]] for node in nodes if node.kind == DOT_MAP]
    number = {None: 0, "tensorfloat32": 1, "float16": 2}[precision]
    assert len(words) >= 3 and {w[-1] for w in words} == {number}


@pytest.mark.ggml
def test_results_on_the_cpu_do_not_depend_on_it() -> None:
    rng = np.random.default_rng(0)
    x, k = rng.normal(size=X.shape).astype(np.float32), rng.normal(size=KERNEL.shape).astype(np.float32)
    exact = np.asarray(fg.jit(conv2d)(x, k))
    with fg.default_matmul_precision("float16"):
        assert np.array_equal(np.asarray(fg.jit(lambda a, b: conv2d(a, b))(x, k)), exact)
