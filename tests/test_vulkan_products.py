"""Products on the matrix units: ranges of operands, blocks that are computed again, and what comes out in the end.

Ranges and repairs run on any device; the products themselves where there are matrix units.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from spirv_device import Array, as_gpu, device, validate

from funcgrad.runtime.spirv.kernel import Dispatch, Target
from funcgrad.runtime.spirv.matrix import best_units, lower_matrix
from funcgrad.runtime.spirv.product import Blocks, Product, parse
from funcgrad.runtime.spirv.ranges import DEPTH, SLACKS, Ranges
from funcgrad.runtime.spirv.repair import Repair
from funcgrad.runtime.spirv.tiles import TILES, tiles
from funcgrad.runtime.spirv.words import Lowered

pytestmark = [pytest.mark.ggml, pytest.mark.vulkan]
UNITS = Target(cooperative=True, halves=True, shared_bytes=49152)
INF, NAN = np.inf, np.nan


def words(
    m: int, n: int, k: int, batch: Sequence[int] = (), turned: Sequence[bool] = (False, False), precision: int = 0
) -> list[int]:
    """The words of a product; ``turned`` operands lie transposed in memory."""

    def operand(slot: int, rows: int, columns: int, turn: bool) -> list[int]:
        outer = [4 * rows * columns * math.prod(batch[i + 1 :]) for i in range(len(batch))]
        return [slot, 0, 0, *outer, *((4, 4 * rows) if turn else (4 * columns, 4))]

    operands = [operand(0, m, k, turned[0]), operand(1, k, n, turned[1]), operand(2, m, n, False)]
    return [0, len(batch), *batch, m, n, k, *operands[0], *operands[1], *operands[2], precision]


def in_memory(x: Array, turn: bool) -> Array:
    return np.ascontiguousarray(x.swapaxes(-1, -2) if turn else x)


def moved(d: Dispatch, first: int) -> Dispatch:
    """A dispatch whose scratch are slots from ``first`` on, so that tests can write and read them."""
    return d._replace(table=tuple((first + ~s, o) if s < 0 else (s, o) for s, o in d.table))


def wide(rng: Any, *shape: int) -> Array:
    """Numbers of very different magnitudes."""
    return (rng.normal(size=shape) * np.exp(4 * rng.normal(size=shape))).astype(np.float32)


def expected_ranges(x: Array, r: Ranges) -> Array:
    """By numpy: for each part, of each row, the bits of the largest finite magnitude and the counts."""
    each = r.held * r.lanes * (4 if r.deep else 1)
    out = []
    for p in range(r.parts):
        part = np.abs(x[:, p * each : (p + 1) * each])
        finite = np.isfinite(part)
        most = np.where(finite, part, 0).max(1)
        word = np.where(finite.all(1), 0, 1 << 31)
        exponent = np.floor(np.log2(np.where(most > 0, most, 1)))
        for i, slack in enumerate(SLACKS if r.parts > 1 else (0,)):
            limit = np.where(most > 0, 2.0 ** (exponent - DEPTH + slack), 0)
            word = word + ((part > 0) & (part < limit[:, None])).sum(1) * (1 << 10 * i)
        out.append(np.stack([most.view(np.uint32), word.astype(np.uint32)], -1))
    return np.stack(out)


SHAPES = [
    (128, 128, 64, (), (False, False)),
    (128, 256, 768, (2,), (False, True)),
    (128, 64, 4096, (), (True, True)),
    (64, 64, 16400, (), (False, False)),
    (64, 64, 48, (2, 3), (True, False)),
]


@pytest.mark.parametrize("shape", SHAPES)
def test_ranges_of_rows(shape: tuple[Any, ...]) -> None:
    m, n, k, batch, turned = shape
    rng = np.random.default_rng(k)
    p = parse(words(*shape))
    operands = [wide(rng, *batch, m, k), wide(rng, *batch, k, n)]
    operands[0][..., 3, 5], operands[0][..., 7, :], operands[0][..., 9, 2] = INF, 0, NAN
    operands[1][..., 1] *= 1e-30
    for i, x in enumerate(operands):
        r = Ranges(p, i)
        found = np.zeros(r.nbytes // 4, np.uint32)
        made = Lowered([moved(r.dispatch(0, device().target), 2)], [])
        device().run(made, [in_memory(x, turned[i])] * 2 + [found], [found])
        rows = np.ascontiguousarray(x if i == 0 else x.swapaxes(-1, -2)).reshape(-1, k)
        np.testing.assert_array_equal(found.reshape(r.parts, -1, 2), expected_ranges(rows, r))


def repaired(p: Product, a: Array, b: Array, c: Array, marks: Array) -> Array:
    """What the guard of the blocks makes of a result ``c``, with marks of blocks of 64 times 64."""
    cut, ranges, target = Blocks(p, 64, 64, 1), (Ranges(p, 0), Ranges(p, 1)), as_gpu()
    assert marks.size == cut.total
    guarded = tiles(p, TILES[1], 1, target, Repair(cut, ranges, (1, 2, 3)))
    launches = [*[r.dispatch(1 + i, target) for i, r in enumerate(ranges)], guarded]
    scratch = [np.zeros(1, np.uint32), *[np.zeros(r.nbytes // 4, np.uint32) for r in ranges], marks]
    out = c.copy()
    device().run(Lowered([moved(d, 3) for d in launches], []), [a, b, out, *scratch], [out])
    return out


def test_blocks_whose_results_may_be_wrong_are_computed_again() -> None:
    rng = np.random.default_rng(0)
    m, n, k = 128, 192, 64
    a, b = rng.normal(size=(m, k)).astype(np.float32), rng.normal(size=(k, n)).astype(np.float32)
    a[3, 5], a[100, 7] = 1e-12, 1e-12  # far below the largest of their rows
    exact = (a.astype(np.float64) @ b.astype(np.float64)).astype(np.float32)
    given = exact * np.float32(1.01)
    given[3, 70] = 1e-9  # so small that a[3, 5] may matter
    marks = np.ones(6, np.uint32)
    marks[5] = 0
    out = repaired(parse(words(m, n, k)), a, b, given, marks)
    again = np.zeros((m, n), bool)
    again[:64, 64:128] = True
    np.testing.assert_array_equal(out[~again], given[~again])
    np.testing.assert_allclose(out[again], exact[again], rtol=1e-4, atol=1e-5)
    given[100, 150] = 1e-9  # there is no mark
    np.testing.assert_array_equal(repaired(parse(words(m, n, k)), a, b, given, marks)[64:, 128:], given[64:, 128:])


@pytest.mark.parametrize("bad", [INF, -INF, NAN, 1e30, 1e-30])
def test_blocks_with_rows_that_scaling_does_not_help_are_computed_again(bad: float) -> None:
    rng = np.random.default_rng(1)
    a, b = rng.normal(size=(2, 64, 64)).astype(np.float32)
    a[5] = np.where(np.arange(64) == 9, bad, a[5] * (0 if abs(bad) < 1 else 1))
    with np.errstate(invalid="ignore"):
        exact = a.astype(np.float64) @ b.astype(np.float64)
    out = repaired(parse(words(64, 64, 64)), a, b, np.full((64, 64), 7, np.float32), np.ones(1, np.uint32))
    np.testing.assert_allclose(out, exact.astype(np.float32), rtol=1e-3, atol=1e-4 if not abs(bad) < 1 else 0)


def test_rows_of_zeros_are_results_of_zero() -> None:
    a, b = np.zeros((64, 64), np.float32), np.ones((64, 64), np.float32)
    b[5, 6] = 1e-20
    given = np.zeros((64, 64), np.float32)
    given[3, 3] = 5  # would be mended if the block were looked at as one that may be wrong
    out = repaired(parse(words(64, 64, 64)), a, b, given, np.ones(1, np.uint32))
    np.testing.assert_array_equal(out, given)


def units_by_numpy(p: Product, a: Array, b: Array) -> tuple[Array, Array]:
    """What the matrix units leave: the parts of a product, wrong in all blocks with a mark, and the marks."""
    tile, splits = best_units(p, UNITS) or pytest.fail("the units are not used")
    parts = np.stack([x @ y for x, y in zip(np.split(a, splits, 1), np.split(b, splits, 0), strict=True)])
    lost = []
    for x in (a, b.T):
        size = np.abs(np.where(np.isfinite(x), x, 0))
        most = size.max(1, keepdims=True)
        tiny = (size > 0) & (size < 2.0**-30 * most)
        lost.append((tiny | ~np.isfinite(x) | ((most > 0) & ((most < 2.0**-80) | (most > 2.0**80)))).any(1))
    rows, columns = lost[0].reshape(-1, tile.m).any(1), lost[1].reshape(-1, tile.n).any(1)
    marks = np.broadcast_to(rows[:, None] | columns, (splits, len(rows), len(columns))).astype(np.uint32)
    wrong = np.kron(marks, np.ones((1, tile.m, tile.n), np.uint32)) != 0
    return np.where(wrong, NAN, parts).astype(np.float32), marks.copy()


@pytest.mark.parametrize("precision", [0, 1])
@pytest.mark.parametrize("shape", [(512, 512, 512), (256, 384, 64), (128, 128, 2048), (1024, 256, 128)])
def test_whatever_the_tiles_marked_blocks_come_out_right(shape: tuple[int, int, int], precision: int) -> None:
    m, n, k = shape
    rng = np.random.default_rng(m)
    a, b = rng.normal(size=(m, k)).astype(np.float32), rng.normal(size=(k, n)).astype(np.float32)
    a[m // 2 + 70 * (m > 256), 3], b[5, n - 3], a[m - 1, 7] = INF, NAN, 1e-20
    p = parse(words(m, n, k, precision=precision))
    with np.errstate(invalid="ignore"):
        parts, marks = units_by_numpy(p, a, b)
        want = (a.astype(np.float64) @ b.astype(np.float64)).astype(np.float32)
    made = lower_matrix(p, UNITS)
    kept = [d for d in made.dispatches if not d.subgroup]  # all but the product itself
    scratch = [np.zeros(-(-size // 4), np.uint32) for size in made.scratch]
    out = parts[0].copy() if len(parts) == 1 else np.zeros((m, n), np.float32)
    scratch[0] = parts if len(parts) > 1 else scratch[0]
    scratch[3] = marks
    device().run(Lowered([moved(d, 3) for d in kept], []), [a, b, out, *scratch], [out])
    np.testing.assert_allclose(out, want, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("precision", [0, 1, 2])
@pytest.mark.parametrize("shape", [s for s in SHAPES if s[2] % 32 == 0])
def test_kernels_on_the_matrix_units_are_valid(shape: tuple[Any, ...], precision: int) -> None:
    made = lower_matrix(parse(words(*shape, precision)), UNITS)
    validate(made)
    assert any(d.subgroup == 32 for d in made.dispatches)


# -- on matrix units -------------------------------------------------------------------------------------------------
def product(a: Array, b: Array, precision: int, turned: Sequence[bool] = (False, False)) -> Array:
    """On the matrix units, whether or not they would be chosen."""
    if not (device().target.cooperative and device().target.halves):
        pytest.skip("a device with matrix units is required")
    batch, (m, k), n = a.shape[:-2], a.shape[-2:], b.shape[-1]
    out = np.full((*batch, m, n), 7, np.float32)
    made = lower_matrix(parse(words(m, n, k, batch, turned, precision)), device().target)
    device().run(made, [in_memory(a, turned[0]), in_memory(b, turned[1]), out], [out])
    return out


LARGER = [(128, 128, 16384, (), (True, False)), (256, 384, 1024, (), (False, True)), (512, 512, 64, (5,), (True, True))]


@pytest.mark.parametrize("shape", [*[s for s in SHAPES if s[2] % 32 == 0], *LARGER])
@pytest.mark.parametrize(("precision", "bound"), [(0, 1e-6), (1, 2.0**-9)])
def test_shapes_and_layouts(shape: tuple[Any, ...], precision: int, bound: float) -> None:
    m, n, k, batch, turned = shape
    rng = np.random.default_rng(m + n + k)
    a, b = rng.normal(size=(*batch, m, k)), rng.normal(size=(*batch, k, n))
    a, b = [
        (x * 10.0 ** rng.integers(-15, 15, side)).astype(np.float32)
        for x, side in ((a, (*batch, m, 1)), (b, (*batch, 1, n)))
    ]
    b[..., 5] = 0
    got, want = product(a, b, precision, turned), a.astype(np.float64) @ b.astype(np.float64)
    assert (np.abs(got - want) <= bound * (np.abs(a).astype(np.float64) @ np.abs(b))).all()


def cases() -> dict[str, tuple[Array, Array]]:
    rng = np.random.default_rng(5)
    n = 512
    a, b = rng.normal(size=(2, n, n)).astype(np.float32)

    def scaled(x: Array, low: int, high: int, axis: int) -> Array:
        return (x * 10.0 ** rng.integers(low, high, (n, 1) if axis == 0 else (1, n))).astype(np.float32)

    large, zero, small = a.copy(), b.copy(), b.copy()
    large[:, 0], zero[0], small[0] = 1e10, 0, 1e-12
    bad, other = a.copy(), b.copy()
    bad[3, 5], bad[200, 7], bad[300, 9], other[7, 100], other[11, 4] = INF, -INF, NAN, INF, 0
    return {
        "normal": (a, b),
        "positive": (np.abs(a), np.abs(b)),
        "rows of any scale": (scaled(a, -15, 15, 0), scaled(b, -15, 15, 1)),
        "elements of any scale": (wide(rng, n, n), wide(rng, n, n)),
        "large times zero": (large, zero),
        "large times small": (large, small),
        "a long tail": (np.where(a > 0, 3 * a, a * np.exp(-9 * a * a)).astype(np.float32), b),
        "sparse": (a * (rng.random((n, n)) < 0.01), b * (rng.random((n, n)) < 0.01)),
        "zero": (0 * a, b),
        "not finite": (bad, other),
    }


@pytest.mark.parametrize("name", list(cases()))
@pytest.mark.parametrize(("precision", "bound"), [(0, 1e-6), (1, 2.0**-9)])
def test_errors_are_small_beside_the_sums_of_magnitudes(name: str, precision: int, bound: float) -> None:
    a, b = cases()[name]
    got = product(a, b, precision)
    with np.errstate(invalid="ignore"):
        want = a.astype(np.float64) @ b.astype(np.float64)
        size = np.abs(a).astype(np.float64) @ np.abs(b).astype(np.float64)
    finite = np.isfinite(want)
    np.testing.assert_array_equal(got[~finite], want[~finite])
    assert (np.abs(got[finite] - want[finite]) <= bound * size[finite]).all()
