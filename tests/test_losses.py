"""Losses and their gradients against float64 numpy from the formulas, at ordinary and at extreme arguments."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import funcgrad as fg
import funcgrad.numpy as fnp
from funcgrad import losses
from funcgrad.losses.common import shifted

R = np.random.default_rng(0)
X, Y = (R.normal(0, 3, (6, 5)).astype(np.float32) for _ in range(2))
IDS = R.integers(0, 5, 6).astype(np.int32)
SOFT = R.dirichlet(np.ones(5), 6).astype(np.float32)
BITS = R.integers(0, 2, (6, 5)).astype(np.float32)
MASK = R.random((6, 5)) > 0.4
MASK[3] = False
INF = float("inf")


def a(values):
    return fnp.asarray(values)


def log_softmax64(x, where=None):
    """The log softmax over the classes that count; NaN for an example without any."""
    x = np.asarray(x, np.float64)
    x = x if where is None else np.where(where, x, -np.inf)
    x = np.where(np.any(np.isfinite(x), axis=-1, keepdims=True), x, np.nan)
    top = np.max(x, axis=-1, keepdims=True)
    return x - top - np.log(np.sum(np.exp(x - top), axis=-1, keepdims=True))


def check(got, want, tol=3e-6):
    np.testing.assert_allclose(np.asarray(got), want, rtol=tol, atol=1e-6)


def test_regression_losses():
    d = X.astype(np.float64) - Y
    check(losses.squared_error(a(X), a(Y)), d**2)
    check(losses.l2_loss(a(X), a(Y)), d**2 / 2)
    check(losses.l2_loss(a(X)), X.astype(np.float64) ** 2 / 2)
    small = np.abs(d) <= 1.5
    check(losses.huber_loss(a(X), a(Y), delta=1.5), np.where(small, d**2 / 2, 1.5 * (np.abs(d) - 0.75)))
    check(losses.log_cosh(a(X), a(Y)), np.log(np.cosh(d)))


def test_log_cosh_is_precise_near_zero_and_finite_far_out():
    x = np.array([1e-6, 1e-4, 1e-2, 0.999, 1.001, 50.0, 1e30], np.float32)
    x64 = x.astype(np.float64)
    want = np.where(x64 < 1e-3, x64**2 / 2, np.where(x64 > 40, x64 - np.log(2), np.log(np.cosh(np.minimum(x64, 40)))))
    np.testing.assert_allclose(np.asarray(losses.log_cosh(a(x))), want, rtol=2e-6)
    grad = fg.grad(lambda x: fnp.sum(losses.log_cosh(x)))(a(x))
    np.testing.assert_allclose(np.asarray(grad), np.tanh(x64), rtol=2e-6)
    assert float(fg.grad(losses.log_cosh)(fnp.asarray(0.0))) == 0.0


def test_vector_losses():
    x, y = X.astype(np.float64), Y.astype(np.float64)
    cosine = np.sum(x * y, 1) / np.linalg.norm(x, axis=1) / np.linalg.norm(y, axis=1)
    check(losses.cosine_similarity(a(X), a(Y)), cosine)
    check(losses.cosine_distance(a(X), a(Y)), 1 - cosine)
    assert float(losses.cosine_similarity(fnp.zeros(3), fnp.ones(3), epsilon=1e-6)) == 0.0
    near, far = np.linalg.norm(x - y, axis=1), np.linalg.norm(x - SOFT, axis=1)
    check(losses.triplet_margin_loss(a(X), a(Y), a(SOFT), margin=0.5), np.maximum(near - far + 0.5, 0), 1e-5)
    third = np.sum(np.abs(x - y) ** 3, 1) ** (1 / 3) - np.sum(np.abs(x - SOFT) ** 3, 1) ** (1 / 3) + 1
    check(losses.triplet_margin_loss(a(X), a(Y), a(SOFT), norm_degree=3), np.maximum(third, 0), 1e-5)


def test_softmax_losses():
    log_p = log_softmax64(X)
    check(losses.softmax_cross_entropy(a(X), a(SOFT)), -np.sum(SOFT * log_p, 1))
    check(losses.softmax_cross_entropy(a(X.T), a(SOFT.T), axis=0), -np.sum(SOFT * log_p, 1))
    check(losses.softmax_cross_entropy_with_integer_labels(a(X), a(IDS)), -log_p[np.arange(6), IDS])
    check(losses.softmax_cross_entropy_with_integer_labels(a(X.T), a(IDS), axis=0), -log_p[np.arange(6), IDS])
    miss = np.sum(SOFT * (1 - np.exp(log_p)), 1)
    check(losses.poly_loss_cross_entropy(a(X), a(SOFT), epsilon=1.5), -np.sum(SOFT * log_p, 1) + 1.5 * miss)
    cube = R.normal(0, 1, (2, 3, 4)).astype(np.float32)
    flat = -log_softmax64(cube.transpose(1, 2, 0).reshape(3, 8))[np.arange(3), IDS[:3]]
    check(losses.softmax_cross_entropy_with_integer_labels(a(cube), a(IDS[:3]), axis=(2, 0)), flat)


def test_softmax_losses_with_a_mask():
    """Masked classes do not exist: whatever they hold, NaN too; an example without classes has loss and gradient 0."""
    dirty = np.where(MASK, X, np.nan).astype(np.float32)
    labels = np.where(MASK, SOFT, np.nan).astype(np.float32)
    rows = [i for i in range(6) if MASK[i].any()]
    want = -np.sum(np.where(MASK, SOFT * np.where(MASK, log_softmax64(X, MASK), 0), 0), axis=1)
    got = np.asarray(losses.softmax_cross_entropy(a(dirty), a(labels), where=a(MASK)))
    check(got[rows], want[rows])
    assert got[3] == 0.0

    ids = np.argmax(MASK, axis=1).astype(np.int32)
    got = np.asarray(losses.softmax_cross_entropy_with_integer_labels(a(dirty), a(ids), where=a(MASK)))
    check(got[rows], [-log_softmax64(X, MASK)[i, ids[i]] for i in rows])
    assert got[3] == 0.0

    for loss, target in (
        (losses.softmax_cross_entropy, a(labels)),
        (losses.softmax_cross_entropy_with_integer_labels, a(ids)),
    ):
        grad = fg.grad(lambda x, loss=loss, target=target: fnp.sum(loss(x, target, where=a(MASK))))(a(dirty))
        assert np.isfinite(np.asarray(grad)).all()
        np.testing.assert_array_equal(np.asarray(grad)[~MASK], 0.0)


def test_no_infinity_arises_where_nothing_counts():
    """So that a search for the first NaN of a step does not stop at a padded example."""
    scores, log_total = shifted(a(X), -1, a(MASK))
    assert np.isfinite(np.asarray(scores)).all() and np.isfinite(np.asarray(log_total)).all()


def test_whole_examples_can_be_masked():
    keep = np.array([True, False, True, True, False, True])
    got = losses.softmax_cross_entropy_with_integer_labels(a(X), a(IDS), where=a(keep))
    check(got, np.where(keep, -log_softmax64(X)[np.arange(6), IDS], 0.0))


def test_softmax_losses_at_extreme_logits():
    logits = np.array([[1e4, 0.0, -1e4], [3e38, -3e38, 0.0], [-INF, 0.0, 0.0], [1e-30, 0.0, 1e30]], np.float32)
    hot = np.eye(3, dtype=np.float32)[[0, 0, 1, 2]]
    with np.errstate(over="ignore"):
        want = -log_softmax64(logits)[np.arange(4), [0, 0, 1, 2]]
    ids = a(np.array([0, 0, 1, 2], np.int32))
    check(losses.softmax_cross_entropy(a(logits), a(hot)), want)
    check(losses.softmax_cross_entropy_with_integer_labels(a(logits), ids), want)
    # a difference of two large logits keeps its digits
    close = a(np.array([[1e4, 1e4 - 1.0]], np.float32))
    check(losses.softmax_cross_entropy_with_integer_labels(close, ids[:1]), [np.log1p(np.exp(-1))])
    for loss, target in (
        (losses.softmax_cross_entropy, a(hot)),
        (losses.softmax_cross_entropy_with_integer_labels, ids),
    ):
        grad = np.asarray(fg.grad(lambda x, loss=loss, target=target: fnp.sum(loss(x, target)))(a(logits)))
        np.testing.assert_allclose(grad, np.exp(log_softmax64(logits)) - hot, atol=1e-6)


def test_gradient_with_respect_to_soft_labels():
    grad = fg.grad(lambda p: fnp.sum(losses.softmax_cross_entropy(a(X), p)))(a(np.eye(5, dtype=np.float32)[IDS]))
    check(grad, -log_softmax64(X))


def test_binary_losses():
    x = X.astype(np.float64)
    p = 1 / (1 + np.exp(-x))
    entropy = -BITS * np.log(p) - (1 - BITS) * np.log(1 - p)
    check(losses.sigmoid_binary_cross_entropy(a(X), a(BITS)), entropy)
    p_t = BITS * p + (1 - BITS) * (1 - p)
    check(losses.sigmoid_focal_loss(a(X), a(BITS)), (1 - p_t) ** 2 * entropy, 1e-5)
    weight = 0.3 * BITS + 0.7 * (1 - BITS)
    check(losses.sigmoid_focal_loss(a(X), a(BITS), alpha=0.3, gamma=1.5), weight * (1 - p_t) ** 1.5 * entropy, 1e-5)
    signs = 2 * BITS - 1
    check(losses.hinge_loss(a(X), a(signs)), np.maximum(0, 1 - x * signs))
    check(losses.perceptron_loss(a(X), a(signs)), np.maximum(0, -x * signs))
    margins = x + 1 - np.eye(5)[IDS]
    check(losses.multiclass_hinge_loss(a(X), a(IDS)), np.max(margins, 1) - x[np.arange(6), IDS])


def test_binary_cross_entropy_keeps_small_losses():
    x = np.array([-1e4, -80.0, -30.0, 30.0, 80.0, 1e4], np.float32)
    yes = np.asarray(losses.sigmoid_binary_cross_entropy(a(x), fnp.ones(6)))
    np.testing.assert_allclose(yes, np.logaddexp(0, -x.astype(np.float64)), rtol=2e-6)
    for label in (0.0, 0.3, 1.0):
        target = fnp.full(6, label)
        grad = fg.grad(lambda x, t=target: fnp.sum(losses.sigmoid_binary_cross_entropy(x, t)))(a(x))
        want = 1 / (1 + np.exp(-np.maximum(x.astype(np.float64), -700))) - label
        np.testing.assert_allclose(np.asarray(grad), want, atol=1e-6)
        focal = fg.grad(lambda x, t=target: fnp.sum(losses.sigmoid_focal_loss(x, t)))(a(x))
        assert np.isfinite(np.asarray(focal)).all()


def test_probability_losses():
    y = np.eye(5)[IDS]
    check(losses.cross_entropy_from_probs(a(SOFT), a(y.astype(np.float32))), -np.log(SOFT[np.arange(6), IDS]))
    sure = a(np.array([[1.0, 0.0], [0.0, 1.0]], np.float32))
    eps64 = np.float64(np.float32(1 - 1e-7))
    check(losses.cross_entropy_from_probs(sure, a(np.array([[1.0, 0.0], [1.0, 0.0]]))), [-np.log(eps64), -np.log(1e-7)])

    p, q = SOFT.astype(np.float64), R.dirichlet(np.ones(5), 6).astype(np.float32)
    log_q = np.log(q.astype(np.float64))
    sparse = np.where(SOFT < 0.1, 0, SOFT).astype(np.float32)
    with np.errstate(divide="ignore", invalid="ignore"):
        terms = np.where(sparse > 0, sparse * (np.log(sparse.astype(np.float64)) - log_q), 0)
    check(losses.kl_divergence(a(np.log(q)), a(sparse)), terms.sum(1), 1e-5)
    check(losses.kl_divergence(a(np.log(q)), a(sparse), where=a(MASK)), (terms * MASK).sum(1), 1e-5)
    check(losses.generalized_kl_divergence(a(np.log(q)), a(sparse)), terms.sum(1) + (q - sparse).sum(1), 1e-5)
    log_p = np.log(p)
    log_p[:, 0] = -np.inf
    p[:, 0] = 0
    want = np.sum(p * (np.where(p > 0, log_p, 0) - log_q), 1)
    check(losses.kl_divergence_with_log_targets(a(np.log(q)), a(log_p.astype(np.float32))), want, 1e-5)


def test_smooth_labels():
    hot = np.eye(5, dtype=np.float32)[IDS]
    check(losses.smooth_labels(a(hot), 0.1), 0.9 * hot + 0.02)
    counts = np.maximum(MASK.sum(1, keepdims=True), 1)
    got = np.asarray(losses.smooth_labels(a(hot), 0.1, where=a(MASK)))
    rows = MASK.any(1)
    check(got[rows], (0.9 * hot + 0.1 / counts)[rows])


def ctc64(logits, labels, blank):
    """Sum over all paths of classes that collapse to the labels."""
    log_p = log_softmax64(logits)
    total = 0.0
    for path in itertools.product(range(logits.shape[1]), repeat=logits.shape[0]):
        merged = [k for k, _ in itertools.groupby(path)]
        if [k for k in merged if k != blank] == list(labels):
            total += np.exp(sum(log_p[t, k] for t, k in enumerate(path)))
    return -np.log(total)


@pytest.mark.parametrize("blank", [0, 2])
def test_ctc_against_all_paths(blank):
    logits = R.normal(0, 2, (4, 6, 3)).astype(np.float32)
    one, two = [k for k in range(3) if k != blank]
    words = [[one, two], [one, one], [two], []]
    frames = [6, 5, 4, 3]
    labels, ends = np.full((4, 3), one, np.int32), np.ones((4, 3), np.float32)
    for i, word in enumerate(words):
        labels[i, : len(word)], ends[i, : len(word)] = word, 0
    padding = (np.arange(6)[None, :] >= np.array(frames)[:, None]).astype(np.float32)
    got = losses.ctc_loss(a(logits), a(padding), a(labels), a(ends), blank_id=blank)
    want = [ctc64(logits[i, : frames[i]], words[i], blank) for i in range(4)]
    check(got, want, 1e-5)


def test_ctc_gradient_and_impossible_labels():
    logits = R.normal(0, 1, (1, 4, 3)).astype(np.float32)
    labels, none = np.array([[1, 2]], np.int32), np.zeros((1, 2), np.float32)

    def loss(x):
        return fnp.sum(losses.ctc_loss(x, fnp.zeros((1, 4)), a(labels), a(none)))

    grad = np.asarray(fg.grad(loss)(a(logits)))
    for i, j in ((0, 1), (2, 0), (3, 2)):
        step = np.zeros_like(logits, np.float64)
        step[0, i, j] = 1e-5
        slope = (ctc64((logits + step)[0], [1, 2], 0) - ctc64((logits - step)[0], [1, 2], 0)) / 2e-5
        assert grad[0, i, j] == pytest.approx(slope, abs=2e-5)
    # two equal labels need a blank between them, which two frames do not have
    twice = losses.ctc_loss(a(logits[:, :2]), fnp.zeros((1, 2)), a(np.array([[1, 1]], np.int32)), a(none))
    assert float(twice[0]) > 9e4


def test_contrastive_loss():
    x = R.normal(0, 1, (7, 4)).astype(np.float32)
    labels = np.array([0, 0, 1, 1, 1, 2, 3], np.int32)
    unit = x / np.linalg.norm(x.astype(np.float64), axis=1, keepdims=True)
    s = unit @ unit.T / 0.5
    terms = [
        -np.log(np.exp(s[i, j]) / (np.exp(s[i, j]) + sum(np.exp(s[i, k]) for k in range(7) if labels[k] != labels[i])))
        for i in range(7)
        for j in range(7)
        if i != j and labels[i] == labels[j]
    ]
    assert float(losses.ntxent(a(x), a(labels), temperature=0.5)) == pytest.approx(np.mean(terms), rel=1e-5)
    alone = a(np.arange(7, dtype=np.int32))
    assert float(losses.ntxent(a(x), alone)) == 0.0
    assert float(losses.ntxent(a(x), fnp.zeros(7, dtype=fnp.int32))) == 0.0
    grad = fg.grad(lambda x: losses.ntxent(x, fnp.zeros(7, dtype=fnp.int32)))(a(x))
    np.testing.assert_array_equal(np.asarray(grad), 0.0)


def test_dice():
    scores = R.normal(0, 1, (2, 3, 4, 3)).astype(np.float32)
    target = np.eye(3, dtype=np.float32)[R.integers(0, 3, (2, 3, 4))]
    p = np.exp(log_softmax64(scores))
    overlap, extra = np.sum(p * target, (1, 2)), np.sum(p * (1 - target), (1, 2))
    missed = np.sum((1 - p) * target, (1, 2))
    want = 1 - (overlap + 0.5) / (overlap + 0.3 * extra + 0.7 * missed + 0.5)
    options = {"smooth": 0.5, "alpha": 0.3, "beta": 0.7}
    check(losses.dice_loss(a(scores), a(target), reduction="none", **options), want)
    check(
        losses.dice_loss(a(scores), a(target), reduction="sum", ignore_background=True, **options), want[:, 1:].sum(1)
    )
    check(
        losses.dice_loss(a(scores), a(target), class_weights=fnp.asarray([1.0, 2.0, 0.0]), **options),
        want @ [1, 2, 0] / 3,
    )
    p, bits = 1 / (1 + np.exp(-X.astype(np.float64))), BITS
    want = 1 - (np.sum(p * bits, 1) + 1) / (0.5 * (p.sum(1) + bits.sum(1)) + 1)
    check(losses.binary_dice_loss(a(X), a(bits)), want)


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (lambda: losses.squared_error(fnp.ones(3), fnp.ones((3, 1))), ValueError, "shapes must be equal"),
        (lambda: losses.squared_error(a(IDS)), TypeError, "predictions must be floating point"),
        (lambda: losses.softmax_cross_entropy(a(X), a(IDS)), ValueError, "shapes must be equal"),
        (lambda: losses.softmax_cross_entropy_with_integer_labels(a(X), a(SOFT)), TypeError, "integer labels"),
        (lambda: losses.softmax_cross_entropy_with_integer_labels(a(X), a(IDS[:3])), ValueError, "labels of shape"),
        (lambda: losses.cross_entropy_from_probs(a(SOFT), a(SOFT), eps=0.7), ValueError, "eps must be in"),
        (lambda: losses.huber_loss(a(X), delta=0.0), ValueError, "delta must be positive"),
        (lambda: losses.smooth_labels(a(SOFT), 1.5), ValueError, "alpha must be in"),
        (lambda: losses.ntxent(a(X), a(IDS), temperature=0.0), ValueError, "temperature must be positive"),
        (lambda: losses.ntxent(a(X), a(IDS[:2])), ValueError, "shapes"),
        (lambda: losses.ctc_loss(a(X), a(X), a(X), a(X)), ValueError, "are required"),
        (lambda: losses.dice_loss(a(X), a(X), reduction="all"), ValueError, "reduction must be"),
    ],
)
def test_bad_arguments(call, error, words):
    with pytest.raises(error, match=words):
        call()
