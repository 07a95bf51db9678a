"""checkpoint: values bit for bit, gradients under every policy, and what is kept from forward to backward."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from compare import f32

import funcgrad as fg
import funcgrad.numpy as fnp
from funcgrad import lax, tree
from funcgrad.ir import Graph, Literal, Var, subgraphs
from funcgrad.passes.pipeline import prepare
from funcgrad.passes.reverse import split, vjp_graph

pytestmark = pytest.mark.usefixtures("device")

P = fg.checkpoint_policies
POLICIES = {
    "default": None,
    "nothing": P.nothing_saveable,
    "everything": P.everything_saveable,
    "dots": P.dots_saveable,
    "plain dots": P.dots_with_no_batch_dims_saveable,
    "names": P.save_only_these_names("hidden"),
    "other names": P.save_any_names_but_these("hidden"),
    "both": P.save_from_both_policies(P.dots_saveable, P.save_only_these_names("hidden")),
}


PARAMS = {"w": f32(4, 8), "v": f32(8, 8, seed=1), "b": f32(8, seed=2)}
X = f32(5, 4, seed=3)


def block(p: Any, x: Any) -> Any:
    """Two products, one of them named, and one with a batch axis."""
    h = fnp.tanh(x @ p["w"] + p["b"])
    h = fg.checkpoint_name(h, "hidden")
    g = fg.checkpoint_name(fnp.sin(h @ p["v"]), "rest")
    return fnp.matmul(g[:, None, :], h[:, :, None])[:, 0, 0]


def loss(fun: Any) -> Any:
    return lambda p, x: (fun(p, x) ** 2).mean()


def same_bits(a: Any, b: Any) -> None:
    assert tree.structure(a) == tree.structure(b)
    for x, y in zip(tree.leaves(a), tree.leaves(b), strict=True):
        x, y = np.asarray(x), np.asarray(y)
        assert x.dtype == y.dtype
        np.testing.assert_array_equal(x, y)


@pytest.mark.parametrize("policy", POLICIES.values(), ids=POLICIES)
@pytest.mark.parametrize("jitted", [False, True])
def test_values_and_gradients_are_the_same_bits(policy: Any, jitted: bool) -> None:
    maybe = fg.jit if jitted else lambda f: f
    plain = maybe(fg.value_and_grad(loss(block), argnums=(0, 1)))(PARAMS, X)
    kept = maybe(fg.value_and_grad(loss(fg.checkpoint(block, policy=policy)), argnums=(0, 1)))(PARAMS, X)
    if jitted and fg.devices()[-1].name != "numpy":
        # on a device other groups are fused, with the same operations in the same order
        for x, y in zip(tree.leaves(plain), tree.leaves(kept), strict=True):
            np.testing.assert_allclose(np.asarray(x), np.asarray(y), rtol=1e-6, atol=1e-7)
    else:
        same_bits(plain, kept)


def test_gradients_equal_float64_differences() -> None:
    with fg.default_device("numpy"):
        p = tree.map(lambda a: a.astype(np.float64), PARAMS)
        x = X.astype(np.float64)
        f = loss(fg.checkpoint(block))
        g = fg.grad(f)(p, x)
        for k in p:
            d = np.random.default_rng(4).normal(size=p[k].shape)
            h = 1e-6
            up, down = [float(f({**p, k: p[k] + s * h * d}, x)) for s in (1, -1)]
            assert float((np.asarray(g[k]) * d).sum()) == pytest.approx((up - down) / (2 * h), rel=1e-6)


# -- what is kept ------------------------------------------------------------------------------------------------
def kept(fun: Any, *args: Any) -> list[str]:
    """The operations whose results live from the forward to the backward half of ``fun``'s vjp."""
    graph = fg.make_graph(fun)(*args)
    joint = vjp_graph(graph, [True] * len(graph.inputs))
    parts = split(joint, len(joint.inputs) - len(graph.inputs), len(graph.outputs))
    return sorted(_origin(parts.early, v) for v in parts.residuals if v not in graph.outputs)


def _origin(graph: Graph, v: Var) -> str:
    """The operation that computes a variable, inside a call if it is the call's result."""
    eqn = next(e for e in graph.eqns if v in e.outputs)
    inner = next(subgraphs(eqn), None)
    if inner is None:
        return eqn.prim.name
    atom = inner.outputs[eqn.outputs.index(v)]
    assert not isinstance(atom, Literal)
    return _origin(inner, atom) if atom not in inner.inputs else "input"


def test_policies_keep_what_they_say() -> None:
    def f(policy: Any) -> list[str]:
        return kept(fg.checkpoint(block, policy=policy), PARAMS, X)

    assert f(None) == f(P.nothing_saveable) == []
    assert f(P.dots_saveable) == ["dot_general"] * 3
    assert f(P.dots_with_no_batch_dims_saveable) == ["dot_general"] * 2
    assert f(P.save_only_these_names("hidden")) == ["name"]
    assert f(P.save_only_these_names("hidden", "rest")) == ["name", "name"]
    assert f(P.save_any_names_but_these("hidden")) == ["name"]
    assert f(P.save_any_names_but_these("hidden", "rest")) == []
    both = P.save_from_both_policies(P.dots_with_no_batch_dims_saveable, P.save_only_these_names("rest"))
    assert f(both) == ["dot_general", "dot_general", "name"]
    body = fg.make_graph(block)(PARAMS, X)
    assert f(P.everything_saveable) == sorted(e.prim.name for e in body.eqns)


def test_a_chain_of_checkpoints_keeps_one_value_per_link() -> None:
    def link(x: Any) -> Any:
        return fnp.sin(fnp.cos(fnp.sin(x)))

    def chain(f: Any) -> Any:
        return lambda x: f(f(f(x))).sum()

    # nine derivatives, or the inputs of the second and the third link
    assert len(kept(chain(link), X)) == 9
    assert len(kept(chain(fg.checkpoint(link)), X)) == 2


def test_nested_checkpoints() -> None:
    def inner(x: Any) -> Any:
        return fnp.sin(fnp.sin(x))

    outer = fg.checkpoint(lambda x: fg.checkpoint(inner)(fg.checkpoint(inner)(x)))
    plain = fg.grad(lambda x: inner(inner(x)).sum())
    same_bits(fg.grad(lambda x: outer(x).sum())(X), plain(X))
    assert kept(lambda x: outer(x).sum(), X) == []


# -- closures, arguments, control flow ---------------------------------------------------------------------------
def test_closed_over_arrays_get_gradients() -> None:
    def f(w: Any, x: Any) -> Any:
        return fg.checkpoint(lambda x: fnp.tanh(x @ w))(x).sum()

    def plain(w: Any, x: Any) -> Any:
        return fnp.tanh(x @ w).sum()

    same_bits(fg.grad(f)(PARAMS["w"], X), fg.grad(plain)(PARAMS["w"], X))
    same_bits(fg.jit(fg.grad(f))(PARAMS["w"], X), fg.jit(fg.grad(plain))(PARAMS["w"], X))
    w = fnp.asarray(PARAMS["w"])  # concrete, outside of every transformation
    same_bits(fg.grad(lambda x: fg.checkpoint(lambda x: x @ w)(x).sum())(X), fg.grad(lambda x: (x @ w).sum())(X))


def test_loop_variables_are_the_ones_of_their_iteration() -> None:
    def run(wrap: Any) -> Any:
        def f(x: Any) -> Any:
            for k in range(1, 4):
                scale = fnp.asarray(float(k))
                x = wrap(lambda y: fnp.sin(y) * k * scale)(x)  # noqa: B023 (that is the test)
            return x.sum()

        return fg.grad(f)(X)

    same_bits(run(fg.checkpoint), run(lambda f: f))


def test_static_arguments_keywords_and_trees() -> None:
    def f(p: Any, n: int, kind: str, *, x: Any) -> Any:
        assert isinstance(n, int) and kind == "sin"
        for _ in range(n):
            x = fnp.sin(x @ p["v"])
        return {"x": x, "p": (p["b"], None)}

    ck = fg.checkpoint(f, static_argnums=(1, 2))
    x = f32(3, 8)
    got = fg.grad(lambda p: ck(p, 2, "sin", x=x)["x"].sum())(PARAMS)
    same_bits(got, fg.grad(lambda p: f(p, 2, "sin", x=x)["x"].sum())(PARAMS))
    assert ck(PARAMS, 2, "sin", x=x)["p"][1] is None
    with pytest.raises(ValueError, match="static_argnums must name positional arguments"):
        fg.grad(lambda p: fg.checkpoint(f, static_argnums=5)(p, 2, "sin", x=x)["x"].sum())(PARAMS)


def test_integers_and_random_keys_pass_through() -> None:
    def dropout(x: Any, key: Any) -> Any:
        return fnp.where(fg.random.bernoulli(key, 0.5, x.shape), x, 0.0) * 2.0

    key = fg.random.key(3)
    keep = np.asarray(fg.random.bernoulli(key, 0.5, X.shape))
    g = fg.grad(lambda x: fg.checkpoint(dropout)(x, key).sum())(X)
    np.testing.assert_array_equal(np.asarray(g), 2.0 * keep)


def test_with_other_transformations() -> None:
    ck = fg.checkpoint(lambda x: fnp.sin(x) * x)
    x = f32(4)
    want = 2 * np.cos(x) - x * np.sin(x)
    for hess in (fg.grad(fg.grad(ck)), fg.grad(fg.checkpoint(fg.grad(ck))), fg.checkpoint(fg.grad(fg.grad(ck)))):
        np.testing.assert_allclose(np.asarray(fg.vmap(hess)(x)), want, rtol=2e-6, atol=1e-6)
    t = f32(4, seed=1)
    np.testing.assert_allclose(
        np.asarray(fg.jvp(ck, (x,), (t,))[1]), (np.cos(x) * x + np.sin(x)) * t, rtol=2e-6, atol=1e-6
    )
    np.testing.assert_array_equal(np.asarray(fg.vmap(ck)(x)), np.asarray(ck(x)))


def test_inside_a_scan() -> None:
    def run(wrap: Any) -> Any:
        def f(w: Any) -> Any:
            body = wrap(lambda c, x: (fnp.tanh(c @ w + x), c.sum()))
            c, ys = lax.scan(body, fnp.zeros(3, fnp.float32), f32(5, 3))
            return (c**2).sum() + ys.sum()

        return fg.grad(f)(f32(3, 3, seed=1))

    np.testing.assert_allclose(np.asarray(run(fg.checkpoint)), np.asarray(run(lambda f: f)), rtol=1e-6, atol=1e-7)


def test_as_a_decorator_with_options() -> None:
    @fg.checkpoint(policy=P.dots_saveable, prevent_cse=False)
    def f(x: Any) -> Any:
        """Documented."""
        return fnp.sin(x).sum()

    assert f.__doc__ == "Documented."
    np.testing.assert_allclose(np.asarray(fg.grad(f)(X)), np.cos(X), rtol=1e-6, atol=1e-7)
    assert fg.remat is fg.checkpoint
    assert fg.checkpoint_name({"a": 1.0}, "n") == {"a": 1.0}


def test_merging_equal_equations_leaves_the_recomputation() -> None:
    """What is recomputed equals what was computed, and must not be merged with it."""

    def f(x: Any) -> Any:
        return fnp.sin(fnp.sin(fnp.sin(x)))

    def sines(fun: Any) -> int:
        graph = prepare(fg.make_graph(fg.value_and_grad(lambda x: fun(x).sum()))(X), fused=False)
        return sum(e.prim.name == "sin" for e in graph.eqns)

    # the backward half needs the cosines of the first two results: they are computed again
    assert sines(f) == 3
    assert sines(fg.checkpoint(f)) == 5
    assert sines(fg.jit(fg.checkpoint(f))) == 5


def test_which_branch_was_taken_is_kept() -> None:
    """Under every policy: the sum that decides may be rounded otherwise when it is computed again."""

    def f(x: Any) -> Any:
        y = fnp.sin(x)
        return lax.cond(y.sum() > 0, fnp.tanh, lambda y: y * y, y).sum()

    graph = fg.make_graph(fg.checkpoint(f))(X)
    joint = vjp_graph(graph, [True])
    parts = split(joint, 1, 1)
    assert [(v.aval.shape, v.aval.dtype.kind in "iu") for v in parts.residuals if v not in graph.outputs] == [
        ((), True)
    ]
    same_bits(fg.grad(fg.checkpoint(f))(X), fg.grad(f)(X))


def test_policies_print_how_they_were_made() -> None:
    assert "0x" not in repr(P) and repr(P).startswith("checkpoint_policies(everything_saveable, nothing_saveable")
    named = P.save_only_these_names("hidden", "early")
    assert repr(named) == "save_only_these_names('early', 'hidden')"
    assert repr(P.save_any_names_but_these("rest")) == "save_any_names_but_these('rest')"
    both = P.save_from_both_policies(P.dots_saveable, named)
    assert repr(both) == "save_from_both_policies(dots_saveable, save_only_these_names('early', 'hidden'))"
