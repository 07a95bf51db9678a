"""checkpoint_policies.fit: the planner's peak is within the budget, more budget means less work, values stay the same
bits; and a budget that cannot be met is said."""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter
from typing import Any

import numpy as np
import pytest

import funcgrad as fg
import funcgrad.numpy as fnp
from funcgrad import lax, tree
from funcgrad.errors import MemoryBudgetError

pytestmark = pytest.mark.usefixtures("on_cpu")

fit = fg.checkpoint_policies.fit
WIDTH, LAYERS = 32, 5


def f32(*shape: int, seed: int = 0) -> Any:
    return (np.random.default_rng(seed).normal(size=shape) * 0.1).astype(np.float32)


def plain(f: Any) -> Any:
    return f


def mlp_layer(p: Any, x: Any) -> Any:
    return x + fnp.tanh(x @ p["a"]) @ p["b"]


def attention_layer(p: Any, x: Any) -> Any:
    """Normalised, two heads, and a product with the wide weights."""
    y = (x - x.mean(-1, keepdims=True)) / fnp.sqrt(x.var(-1, keepdims=True) + 1e-5)
    q = (y @ p["a"]).reshape(*x.shape[:2], 4, -1)
    s = fg.nn.softmax(fnp.einsum("bqhd,bkhd->bhqk", q, q) / 4.0)
    o = fnp.einsum("bhqk,bkhd->bqhd", s, q).reshape(*x.shape[:2], -1)
    return x + fg.nn.gelu(o) @ p["b"]


def params(n: int) -> list[dict[str, Any]]:
    return [{"a": f32(WIDTH, 4 * WIDTH, seed=2 * i), "b": f32(4 * WIDTH, WIDTH, seed=2 * i + 1)} for i in range(n)]


def whole(layer: Any, wrap: Any) -> Any:
    """The checkpoint is around all layers."""

    def loss(ps: Any, x: Any) -> Any:
        for p in ps:
            x = layer(p, x)
        return (x * x).mean()

    return wrap(loss)


def each(layer: Any, wrap: Any) -> Any:
    """A checkpoint around each layer."""

    def loss(ps: Any, x: Any) -> Any:
        for p in ps:
            x = wrap(layer)(p, x)
        return (x * x).mean()

    return loss


def scanned(layer: Any, wrap: Any) -> Any:
    """A checkpoint around the body of a scan over layers."""

    def loss(ps: Any, x: Any) -> Any:
        stacked = tree.map(lambda *a: fnp.stack(a), *ps)
        y, _ = lax.scan(lambda h, p: (wrap(layer)(p, h), None), x, stacked)
        return (y * y).mean()

    return loss


def around(layer: Any, wrap: Any) -> Any:
    """The checkpoint is around a loss that scans over layers: the policy goes into the scan's body."""
    return wrap(scanned(layer, plain))


CASES = {
    f"{where.__name__} {layer.__name__}": (where, layer)
    for where in (whole, each, scanned, around)
    for layer in (mlp_layer, attention_layer)
}
X = f32(4, 32, WIDTH, seed=99)
PARAMS = params(LAYERS)


def compiled(loss: Any, *args: Any, **options: Any) -> Any:
    return fg.jit(fg.value_and_grad(loss), **options).lower(*(args or (PARAMS, X))).compile()


def peak(c: Any) -> int:
    return int(c.memory_analysis().peak_size_in_bytes)


def flops(c: Any) -> float:
    return float(c.cost_analysis()["flops"])


def fitted(where: Any, layer: Any, budget: Any) -> Any:
    return compiled(where(layer, lambda f: fg.checkpoint(f, policy=fit(budget))))


def least_of(error: pytest.ExceptionInfo[MemoryBudgetError]) -> int:
    """The least peak that the message tells."""
    return int(str(error.value).split("the least peak found is ")[1].split()[0].strip(",").replace(",", ""))


def assert_same(a: Any, b: Any, exact: bool) -> None:
    assert tree.structure(a) == tree.structure(b)
    for x, y in zip(tree.leaves(a), tree.leaves(b), strict=True):
        if exact:
            np.testing.assert_array_equal(np.asarray(x), np.asarray(y))
        else:
            np.testing.assert_allclose(np.asarray(x), np.asarray(y), rtol=1e-5, atol=1e-8)


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_fits_and_more_memory_means_less_work(case: Any) -> None:
    where, layer = case
    unchecked = compiled(where(layer, plain))
    want = unchecked(PARAMS, X)
    with pytest.raises(
        MemoryBudgetError, match=r"jit of .*a budget of 1: the least peak found is [0-9,]+, keeping"
    ) as e:
        fitted(where, layer, 1)
    least, most = least_of(e), peak(unchecked)
    assert least < 0.85 * most  # these models are made so that checkpoints help
    found = []
    for budget in np.linspace(least, most, 5).astype(int).tolist():
        c = fitted(where, layer, budget)
        assert peak(c) <= budget
        # Inside of a scan another order of the same sums may be fused; elsewhere the bits are the same.
        assert_same(c(PARAMS, X), want, exact=where is not scanned)
        found.append((peak(c), flops(c)))
    peaks, work = zip(*found, strict=True)
    assert list(peaks) == sorted(peaks) and list(work) == sorted(work, reverse=True)
    assert work[0] > 1.02 * work[-1] and peaks[-1] > 0.7 * most
    assert work[-1] <= 1.1 * flops(unchecked)


def test_better_than_keeping_nothing_or_products() -> None:
    """At the peak of a fixed policy no more work is done than it does."""
    for policy in (None, fg.checkpoint_policies.dots_saveable):
        fixed = compiled(each(attention_layer, lambda f, p=policy: fg.checkpoint(f, policy=p)))
        assert flops(fitted(each, attention_layer, peak(fixed))) <= flops(fixed)


def test_a_generous_budget_keeps_everything_and_traces_once() -> None:
    calls = []

    def loss(ps: Any, x: Any) -> Any:
        calls.append(1)
        return whole(mlp_layer, plain)(ps, x)

    c = compiled(fg.checkpoint(loss, policy=fit("2GiB")))
    assert len(calls) == 1
    assert flops(c) <= 1.001 * flops(compiled(whole(mlp_layer, plain)))


def test_units() -> None:
    for text, size in {
        "512MiB": 512 * 2**20,
        "1.5GiB": 3 * 2**29,
        "800MB": 800_000_000,
        " 2 kib ": 2048,
        "3k": 3000,
        "100": 100,
        "1TiB": 2**40,
        "7B": 7,
    }.items():
        assert repr(fit(text)) == f"fit({size})"
    assert repr(fit(4096)) == repr(fit(np.int64(4096))) == "fit(4096)"
    bad: tuple[Any, ...] = (
        "",
        "MiB",
        "five",
        "1.5.2GB",
        "-1MB",
        "0",
        0,
        -5,
        True,
        None,
        1.5,
        "1 XB",
        "3iB",
        [1],
        "nan",
    )
    for wrong in bad:
        with pytest.raises(ValueError, match="positive number of bytes"):
            fit(wrong)


def test_the_least_that_the_error_names_can_be_reached() -> None:
    with pytest.raises(MemoryBudgetError, match="way out: fit") as e:
        fitted(whole, mlp_layer, 100)
    assert peak(fitted(whole, mlp_layer, least_of(e))) == least_of(e)


def halfway(make: Callable[[Any], Any]) -> tuple[Any, Any]:
    """The program without checkpoints, and with a budget in the middle between the least and everything."""
    unchecked = make(plain)
    with pytest.raises(MemoryBudgetError) as e:
        make(lambda f: fg.checkpoint(f, policy=fit(1)))
    middle = (least_of(e) + peak(unchecked)) // 2
    c = make(lambda f: fg.checkpoint(f, policy=fit(middle)))
    assert peak(c) <= middle < peak(unchecked)
    return unchecked, c


def test_a_train_step_with_donation() -> None:
    """The whole step counts: what the optimiser keeps, and what the donated state gives back."""

    def make(wrap: Any) -> Any:
        def step(ps: Any, m: Any, x: Any) -> Any:
            value, g = fg.value_and_grad(each(attention_layer, wrap))(ps, x)
            m = tree.map(lambda a, b: 0.9 * a + b, m, g)
            return tree.map(lambda p, a: p - 0.1 * a, ps, m), m, value

        zeros = tree.map(np.zeros_like, PARAMS)
        return fg.jit(step, donate_argnums=(0, 1)).lower(PARAMS, zeros, X).compile()

    a, b = halfway(make)
    state = [tree.map(fnp.asarray, t) for t in (PARAMS, tree.map(np.zeros_like, PARAMS)) * 2]
    assert_same(a(state[0], state[1], X), b(state[2], state[3], X), exact=True)
    assert b.memory_analysis().alias_size_in_bytes > 0


def test_under_vmap_of_grad() -> None:
    def make(wrap: Any) -> Any:
        grads = fg.vmap(fg.grad(each(attention_layer, wrap)), in_axes=(None, 0))
        return fg.jit(grads).lower(PARAMS, np.stack([X[:2], X[2:]])).compile()

    a, b = halfway(make)
    args = (PARAMS, np.stack([X[:2], X[2:]]))
    assert_same(a(*args), b(*args), exact=False)


def test_jit_inside() -> None:
    """A jitted layer inside; and the gradient itself jitted inside of another function."""

    def make(wrap: Any) -> Any:
        layer = fg.jit(attention_layer, max_traces=1, strict=True)
        inner = fg.jit(fg.value_and_grad(whole(layer, wrap)), max_traces=1)
        return fg.jit(lambda ps, x: tree.map(lambda a: a * 2, inner(ps, x))).lower(PARAMS, X).compile()

    a, b = halfway(make)
    assert_same(a(PARAMS, X), b(PARAMS, X), exact=True)


def test_second_order() -> None:
    def make(wrap: Any) -> Any:
        f = whole(mlp_layer, wrap)
        outer = fg.grad(lambda ps, x: sum((g**2).sum() for g in tree.leaves(fg.grad(f)(ps, x))))
        return fg.jit(outer).lower(PARAMS, X).compile()

    a, b = halfway(make)
    assert_same(a(PARAMS, X), b(PARAMS, X), exact=False)


def test_several_budgets_the_smallest_counts() -> None:
    most = peak(compiled(each(mlp_layer, plain)))

    def loss(ps: Any, x: Any) -> Any:
        x = fg.checkpoint(mlp_layer, policy=fit("4GiB"))(ps[0], x)
        return each(mlp_layer, lambda f: fg.checkpoint(f, policy=fit(int(0.8 * most))))(ps[1:], x)

    assert peak(compiled(loss)) <= 0.8 * most


def test_outside_of_jit_each_checkpoint_fits() -> None:
    """There is no program to plan but the checkpoint's own."""
    want = fg.value_and_grad(whole(mlp_layer, plain))(PARAMS, X)
    with pytest.raises(MemoryBudgetError, match="checkpoint of ") as e:
        fg.grad(whole(mlp_layer, lambda f: fg.checkpoint(f, policy=fit(1))))(PARAMS, X)
    got = fg.value_and_grad(whole(mlp_layer, lambda f: fg.checkpoint(f, policy=fit(least_of(e)))))(PARAMS, X)
    assert_same(got, want, exact=True)


def test_a_forward_program_has_nothing_to_choose() -> None:
    loss = whole(mlp_layer, lambda f: fg.checkpoint(f, policy=fit(1)))
    assert float(loss(PARAMS, X)) == float(whole(mlp_layer, plain)(PARAMS, X))
    with pytest.raises(MemoryBudgetError):
        fg.jit(loss)(PARAMS, X)
    assert float(fg.jit(whole(mlp_layer, lambda f: fg.checkpoint(f, policy=fit("1GiB"))))(PARAMS, X)) > 0


def test_the_numpy_device_keeps_everything() -> None:
    with fg.default_device("numpy"):
        f = fg.grad(whole(mlp_layer, lambda f: fg.checkpoint(f, policy=fit(1))))
        want = fg.grad(whole(mlp_layer, plain))(PARAMS, X)
        assert_same(f(PARAMS, X), want, exact=True)
        assert_same(fg.jit(f)(PARAMS, X), want, exact=True)


def test_random_keys_and_closed_over_arrays() -> None:
    w, key = fnp.asarray(f32(WIDTH, WIDTH, seed=5)), fg.random.key(0)

    def make(wrap: Any) -> Any:
        def dropped(p: Any, x: Any) -> Any:
            keep = fg.random.bernoulli(key, 0.8, x.shape)
            return mlp_layer(p, fnp.where(keep, fnp.sin(x @ w), 0.0))

        return compiled(whole(dropped, wrap))

    a, b = halfway(make)
    assert_same(a(PARAMS, X), b(PARAMS, X), exact=True)


def random_program(seed: int) -> tuple[Any, Any, Any]:
    """A function of weights and data: a random chain of products, row operations, loops, branches and calls."""
    rng = np.random.default_rng(seed)
    width, rows = int(rng.choice([8, 16, 32])), int(rng.choice([16, 64, 128]))
    steps = rng.integers(0, [9, 3, 100], size=(int(rng.integers(4, 14)), 3)).tolist()
    weights = [(rng.normal(size=(width, width)) * 0.3).astype(np.float32) for _ in range(4)]
    kinds: list[Callable[[Any, Any, Any], Any]] = [
        lambda a, b, w: a @ w,
        lambda a, b, w: fnp.tanh(a),
        lambda a, b, w: a * b,
        lambda a, b, w: fg.nn.softmax(a),
        lambda a, b, w: (a - a.mean(-1, keepdims=True)) / fnp.sqrt(a.var(-1, keepdims=True) + 1e-3),
        lambda a, b, w: fg.checkpoint(lambda a: fnp.sin(a @ w) * a)(a),
        lambda a, b, w: lax.scan(lambda c, t: (fnp.tanh(c @ w) + t, None), a, fnp.arange(3.0))[0],
        lambda a, b, w: lax.cond(a.sum() > 0, lambda a: fnp.sin(a) @ w, fnp.cos, a),
        lambda a, b, w: fg.jit(lambda a, w: fnp.exp(-a * a) @ w)(a, w),
    ]

    def f(ws: Any, x: Any) -> Any:
        values = [x]
        for kind, back, other in steps:
            a, b = values[-1 - back % len(values)], values[other % len(values)]
            values.append(kinds[kind](a, b, ws[other % 4]))
        return (values[-1] ** 2).mean() + 0.1 * values[len(values) // 2].mean(), values[len(values) // 3].sum()

    return f, weights, rng.normal(size=(rows, width)).astype(np.float32)


@pytest.mark.parametrize("seed", range(10))
def test_random_programs(seed: int) -> None:
    """Branches are taken in the backward half as in the forward half, also where rounding decides."""
    f, weights, x = random_program(seed)

    def make(wrap: Any) -> Any:
        return fg.jit(fg.value_and_grad(wrap(f), argnums=(0, 1), has_aux=True)).lower(weights, x).compile()

    unchecked = make(plain)
    want, most = unchecked(weights, x), peak(unchecked)
    with pytest.raises(MemoryBudgetError) as e:
        make(lambda f: fg.checkpoint(f, policy=fit(1)))
    for share in (0.0, 0.5):
        budget = int(least_of(e) + share * max(0, most - least_of(e)))
        c = make(lambda f, b=budget: fg.checkpoint(f, policy=fit(b)))
        assert peak(c) <= budget
        for got, right in zip(tree.leaves(c(weights, x)), tree.leaves(want), strict=True):
            scale = max(1e-3, float(np.abs(np.asarray(right)).max(initial=0)))
            np.testing.assert_allclose(np.asarray(got), np.asarray(right), rtol=1e-4, atol=1e-4 * scale)


def test_what_an_effect_costs() -> None:
    """An equation without results, which a callback is, has a cost of nothing."""

    def f(x: Any) -> Any:
        fg.debug.print("{}", x)
        return fnp.sin(x)

    assert fg.jit(f).lower(1.0).cost_analysis()["flops"] == 1.0


def test_time_to_compile_is_a_few_times_that_of_one() -> None:
    """Each trial takes about as long as compiling; there are at most eleven."""
    ps = params(12)

    def timed(wrap: Any) -> tuple[float, Any]:
        start = perf_counter()
        c = compiled(each(attention_layer, wrap), ps, X)
        return perf_counter() - start, c

    once = min(timed(plain)[0] for _ in range(3))
    most = peak(timed(plain)[1])
    fitting, c = min((timed(lambda f: fg.checkpoint(f, policy=fit(most // 2))) for _ in range(2)), key=lambda t: t[0])
    assert peak(c) <= most // 2
    assert fitting < 40 * once
