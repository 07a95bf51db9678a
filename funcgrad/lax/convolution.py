"""lax's contractions: dot_general, batch_matmul, and convolutions in every layout."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from funcgrad.errors import ShapeError, message
from funcgrad.numpy.precision import resolve_precision
from funcgrad.numpy.promotion import array_of, axis_index, cast, result_dtype
from funcgrad.prims import contract, layout
from funcgrad.prims.window import dilated

__all__ = [
    "ConvDimensionNumbers",
    "batch_matmul",
    "conv",
    "conv_dimension_numbers",
    "conv_general_dilated",
    "conv_general_dilated_patches",
    "conv_transpose",
    "conv_with_general_padding",
    "dot",
    "dot_general",
    "padtype_to_pads",
]

Pairs = Sequence[tuple[int, int]]


# -- products ----------------------------------------------------------------------------------------------------
def dot_general(
    lhs: Any, rhs: Any, dimension_numbers: Any, precision: Any = None, preferred_element_type: Any = None
) -> Any:
    """Return the products summed over contracted axes, for each index of the batch axes.

    ``dimension_numbers`` is ((lhs_contracting, rhs_contracting), (lhs_batch, rhs_batch)).  The result has the batch
    axes, then the other axes of lhs, then those of rhs.

    >>> lax.dot_general(fnp.ones((2, 3)), fnp.ones((3, 4)), (((1,), (0,)), ((), ()))).shape
    (2, 4)
    """
    x, y = array_of("dot_general", lhs), array_of("dot_general", rhs)
    (lc, rc), (lb, rb) = dimension_numbers
    left = [tuple([axis_index("dot_general", d, x.aval.ndim) for d in axes]) for axes in (lc, lb)]
    right = [tuple([axis_index("dot_general", d, y.aval.ndim) for d in axes]) for axes in (rc, rb)]
    chosen = resolve_precision("dot_general", precision)
    out = contract.dot_general(x, y, left[0], right[0], left[1], right[1], chosen)
    return out if preferred_element_type is None else cast(out, result_dtype(preferred_element_type, None))


def dot(lhs: Any, rhs: Any, precision: Any = None, preferred_element_type: Any = None) -> Any:
    """Return the product of vectors or matrices.

    >>> lax.dot(fnp.ones((2, 3)), fnp.ones(3))
    Array([3., 3.], dtype=float32)
    """
    x, y = array_of("dot", lhs), array_of("dot", rhs)
    if not (1 <= x.aval.ndim <= 2 and 1 <= y.aval.ndim <= 2):
        raise ShapeError(
            message("dot", "vectors or matrices are required", f"{x.aval} and {y.aval}", "use dot_general")
        )
    return dot_general(x, y, (((x.aval.ndim - 1,), (0,)), ((), ())), precision, preferred_element_type)


def batch_matmul(lhs: Any, rhs: Any, precision: Any = None) -> Any:
    """Return the matrix products for each index of the leading axes, which must be equal.

    >>> lax.batch_matmul(fnp.ones((5, 2, 3)), fnp.ones((5, 3, 4))).shape
    (5, 2, 4)
    """
    x, y = array_of("batch_matmul", lhs), array_of("batch_matmul", rhs)
    if x.aval.ndim < 2 or x.aval.ndim != y.aval.ndim:
        raise ShapeError(
            message("batch_matmul", "equal numbers of axes, two or more, are required", f"{x.aval} and {y.aval}")
        )
    n = x.aval.ndim
    batch = tuple(range(n - 2))
    return dot_general(x, y, (((n - 1,), (n - 2,)), (batch, batch)), precision)


# -- layouts -----------------------------------------------------------------------------------------------------
class ConvDimensionNumbers(NamedTuple):
    """Where the axes lie: ``(batch, feature, *spatial)`` of lhs and result, ``(output, input, *spatial)`` of rhs."""

    lhs_spec: tuple[int, ...]
    rhs_spec: tuple[int, ...]
    out_spec: tuple[int, ...]


def conv_dimension_numbers(
    lhs_shape: Sequence[int], rhs_shape: Sequence[int], dimension_numbers: Any
) -> ConvDimensionNumbers:
    """Return the places of the axes for names such as ("NHWC", "HWIO", "NHWC"), None meaning NC* and OI*.

    >>> lax.conv_dimension_numbers((1, 8, 8, 3), (3, 3, 3, 4), ("NHWC", "HWIO", "NHWC")).rhs_spec
    (3, 2, 0, 1)
    """
    if isinstance(dimension_numbers, ConvDimensionNumbers):
        return dimension_numbers
    n = len(lhs_shape)
    if len(rhs_shape) != n:
        got = f"{tuple(lhs_shape)} and {tuple(rhs_shape)}"
        raise ShapeError(message("conv", "both operands must have the same number of axes", got))
    if dimension_numbers is None:
        default = tuple(range(n))
        return ConvDimensionNumbers(default, default, default)
    lhs, rhs, out = dimension_numbers
    spatial = [c for c in rhs if c not in "OI"]
    specs = [(lhs, "NC"), (rhs, "OI"), (out, "NC")]
    for text, first in specs:
        if sorted(text) != sorted([*first, *spatial]) or len(text) != n:
            got = f"{dimension_numbers} for {n} axes"
            requirement = (
                'each layout must name N and C (O and I for the kernel) and the same spatial axes, e.g. "NHWC"'
            )
            raise ValueError(message("conv", requirement, got))
    return ConvDimensionNumbers(*[tuple([text.index(c) for c in [*first, *spatial]]) for text, first in specs])


def padtype_to_pads(
    in_shape: Sequence[int], window_shape: Sequence[int], window_strides: Sequence[int], padding: Any
) -> list[tuple[int, int]]:
    """Return a pair for each axis for "VALID", "SAME" (extra padding behind) or "SAME_LOWER" (in front).

    >>> lax.padtype_to_pads((5,), (2,), (1,), "SAME")
    [(0, 1)]
    """
    kind = str(getattr(padding, "name", padding)).upper()
    if kind not in ("VALID", "SAME", "SAME_LOWER"):
        raise ValueError(message("padding", '"VALID", "SAME", "SAME_LOWER" or pairs are required', repr(padding)))
    if kind == "VALID":
        return [(0, 0)] * len(in_shape)
    out = []
    for n, k, s in zip(in_shape, window_shape, window_strides, strict=True):
        total = max(0, (-(-n // s) - 1) * s + k - n)
        small, large = total // 2, total - total // 2
        out.append((small, large) if kind == "SAME" else (large, small))
    return out


# -- convolutions ------------------------------------------------------------------------------------------------
def conv_general_dilated(
    lhs: Any,
    rhs: Any,
    window_strides: Sequence[int],
    padding: Any,
    lhs_dilation: Sequence[int] | None = None,
    rhs_dilation: Sequence[int] | None = None,
    dimension_numbers: Any = None,
    feature_group_count: int = 1,
    batch_group_count: int = 1,
    precision: Any = None,
    preferred_element_type: Any = None,
) -> Any:
    """Return the cross-correlation of lhs with a kernel over one to three spatial axes.

    ``padding`` is "SAME", "VALID", "SAME_LOWER" or a pair for each spatial axis; ``dimension_numbers`` names the
    layouts, by default ("NCHW", "OIHW", "NCHW"); channels last, ("NHWC", "HWIO", "NHWC"), needs no transposition.
    ``precision`` is "float32", "tensorfloat32" or "float16", by default that of ``default_matmul_precision``.

    >>> x, k = fnp.ones((1, 4, 4, 2)), fnp.ones((3, 3, 2, 5))
    >>> lax.conv_general_dilated(x, k, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")).shape
    (1, 4, 4, 5)
    """
    x, kernel = array_of("conv_general_dilated", lhs), array_of("conv_general_dilated", rhs)
    spec = conv_dimension_numbers(x.aval.shape, kernel.aval.shape, dimension_numbers)
    d = x.aval.ndim - 2
    one = (1,) * d
    base, inner, strides = tuple(lhs_dilation or one), tuple(rhs_dilation or one), tuple(window_strides)
    if any(len(v) != d for v in (base, inner, strides)):
        raise ShapeError(
            message(
                "conv_general_dilated", f"strides and dilations must have {d} entries", f"{strides}, {base}, {inner}"
            )
        )
    pads = padding
    if isinstance(padding, str) or hasattr(padding, "name"):
        sizes = [dilated(x.aval.shape[a], b) for a, b in zip(spec.lhs_spec[2:], base, strict=True)]
        window = [dilated(kernel.aval.shape[a], w) for a, w in zip(spec.rhs_spec[2:], inner, strict=True)]
        pads = padtype_to_pads(sizes, window, strides, padding)
    chosen = resolve_precision("conv_general_dilated", precision)
    x = layout.transpose(x, (spec.lhs_spec[0], *spec.lhs_spec[2:], spec.lhs_spec[1]))
    kernel = layout.transpose(kernel, (*spec.rhs_spec[2:], spec.rhs_spec[1], spec.rhs_spec[0]))
    pairs = tuple([(int(a), int(b)) for a, b in pads])
    prim = contract.Conv(strides, pairs, base, inner, feature_group_count, batch_group_count, chosen)
    out = contract.conv(x, kernel, prim)
    # The result is (N, *spatial, C); axis i of what is asked for is where out_spec puts it.
    places = (spec.out_spec[0], *spec.out_spec[2:], spec.out_spec[1])
    out = layout.transpose(out, sorted(range(d + 2), key=places.__getitem__))
    return out if preferred_element_type is None else cast(out, result_dtype(preferred_element_type, None))


def conv(
    lhs: Any,
    rhs: Any,
    window_strides: Sequence[int],
    padding: Any,
    precision: Any = None,
    preferred_element_type: Any = None,
) -> Any:
    """Return the cross-correlation in the layouts NC*, OI*, NC*.

    >>> lax.conv(fnp.ones((1, 2, 4)), fnp.ones((3, 2, 2)), (1,), "VALID").shape
    (1, 3, 3)
    """
    return conv_general_dilated(
        lhs, rhs, window_strides, padding, precision=precision, preferred_element_type=preferred_element_type
    )


def conv_with_general_padding(
    lhs: Any,
    rhs: Any,
    window_strides: Sequence[int],
    padding: Any,
    lhs_dilation: Sequence[int] | None,
    rhs_dilation: Sequence[int] | None,
    precision: Any = None,
    preferred_element_type: Any = None,
) -> Any:
    """Return the cross-correlation in the layouts NC*, OI*, NC*, with dilations.

    >>> lax.conv_with_general_padding(fnp.ones((1, 1, 5)), fnp.ones((1, 1, 2)), (1,), [(0, 0)], None, (2,)).shape
    (1, 1, 3)
    """
    return conv_general_dilated(
        lhs, rhs, window_strides, padding, lhs_dilation, rhs_dilation, None, 1, 1, precision, preferred_element_type
    )


def conv_transpose(
    lhs: Any,
    rhs: Any,
    strides: Sequence[int],
    padding: Any,
    rhs_dilation: Sequence[int] | None = None,
    dimension_numbers: Any = None,
    transpose_kernel: bool = False,
    precision: Any = None,
    preferred_element_type: Any = None,
) -> Any:
    """Return the fractionally strided convolution: lhs is spread by the strides.  The default layout is channels last.

    With ``transpose_kernel`` the kernel's spatial axes are reversed and its channel axes exchanged, which gives the
    gradient of the convolution with that kernel.

    >>> lax.conv_transpose(fnp.ones((1, 4, 1)), fnp.ones((3, 1, 2)), (2,), "SAME").shape
    (1, 8, 2)
    """
    x, kernel = array_of("conv_transpose", lhs), array_of("conv_transpose", rhs)
    d = x.aval.ndim - 2
    if dimension_numbers is None:
        spatial = "DHW"[3 - d :]
        dimension_numbers = (f"N{spatial}C", f"{spatial}IO", f"N{spatial}C")
    spec = conv_dimension_numbers(x.aval.shape, kernel.aval.shape, dimension_numbers)
    inner = tuple(rhs_dilation or (1,) * d)
    sizes = [dilated(kernel.aval.shape[a], w) for a, w in zip(spec.rhs_spec[2:], inner, strict=True)]
    pads = padding
    if isinstance(padding, str):
        pads = [_transpose_pads(k, s, padding) for k, s in zip(sizes, strides, strict=True)]
    if transpose_kernel:
        kernel = layout.reverse(kernel, tuple(sorted(spec.rhs_spec[2:])))
        perm = list(range(d + 2))
        o, i = spec.rhs_spec[:2]
        perm[o], perm[i] = i, o
        kernel = layout.transpose(kernel, perm)
    return conv_general_dilated(
        x,
        kernel,
        (1,) * d,
        pads,
        strides,
        inner,
        spec,
        precision=precision,
        preferred_element_type=preferred_element_type,
    )


def _transpose_pads(k: int, s: int, padding: str) -> tuple[int, int]:
    """What makes a "SAME" transpose s times as long as its input, and a "VALID" one undo a "VALID" convolution."""
    if padding == "SAME":
        total = k + s - 2
        before = k - 1 if s > k - 1 else -(-total // 2)
    elif padding == "VALID":
        total = k + s - 2 + max(k - s, 0)
        before = k - 1
    else:
        raise ValueError(message("conv_transpose", '"SAME", "VALID" or pairs are required', repr(padding)))
    return before, total - before


def conv_general_dilated_patches(
    lhs: Any,
    filter_shape: Sequence[int],
    window_strides: Sequence[int],
    padding: Any,
    lhs_dilation: Sequence[int] | None = None,
    rhs_dilation: Sequence[int] | None = None,
    dimension_numbers: Any = None,
    precision: Any = None,
    preferred_element_type: Any = None,
) -> Any:
    """Return the patches that a convolution multiplies, as channels: by input channel, then by place in the window.

    Patches are copies, so they are exact unless ``precision`` itself asks for less.

    >>> lax.conv_general_dilated_patches(fnp.ones((1, 2, 4)), (3,), (1,), "VALID").shape
    (1, 6, 2)
    """
    x = array_of("conv_general_dilated_patches", lhs)
    window = tuple(filter_shape)
    n = len(window)
    spec = conv_dimension_numbers(x.aval.shape, (1,) * (n + 2), dimension_numbers)
    channels = x.aval.shape[spec.lhs_spec[1]]
    size = 1
    for k in window:
        size *= k
    # One output channel for each place in the window, the same for every input channel.
    place = layout.iota((channels * size, 1, size), 0, result_dtype("int32", None))
    inner = layout.iota((channels * size, 1, size), 2, result_dtype("int32", None))
    same = (place % size) == inner
    kernel = cast(layout.reshape(same, (channels * size, 1, *window)), x.aval.dtype)
    places = [0] * (n + 2)
    for to, frm in zip(spec.rhs_spec, range(n + 2), strict=True):
        places[to] = frm
    kernel = layout.transpose(kernel, places)
    return conv_general_dilated(
        x,
        kernel,
        window_strides,
        padding,
        lhs_dilation,
        rhs_dilation,
        spec,
        channels,
        1,
        "float32" if precision is None else precision,
        preferred_element_type,
    )
