"""The names of the Python array API standard, with their parameters, for the dtypes that exist here."""

# ruff: noqa: SIM905 (words in a line read better than a list of strings)

from __future__ import annotations

# Parameters as the standard writes them: "/" ends the positional-only ones, "*" begins the keyword-only ones.
UNARY = """abs acos acosh asin asinh atan atanh bitwise_invert ceil cos cosh exp expm1 floor isfinite isinf isnan log
log1p log2 log10 logical_not negative positive reciprocal round sign signbit sin sinh
square sqrt tan tanh trunc""".split()
UNARY.remove("reciprocal")  # of 2024.12
BINARY = """add atan2 bitwise_and bitwise_left_shift bitwise_or bitwise_right_shift bitwise_xor copysign divide equal
floor_divide greater greater_equal hypot less less_equal logaddexp logical_and logical_or logical_xor maximum minimum
multiply not_equal pow remainder subtract""".split()
SIGNATURES = {
    **dict.fromkeys(UNARY, "x /"),
    **dict.fromkeys(BINARY, "x1 x2 /"),
    "clip": "x / min max",
    "arange": "start / stop step * dtype device",
    "asarray": "obj / * dtype device copy",
    "empty": "shape * dtype device",
    "empty_like": "x / * dtype device",
    "eye": "n_rows n_cols / * k dtype device",
    "from_dlpack": "x / * device copy",
    "full": "shape fill_value * dtype device",
    "full_like": "x / fill_value * dtype device",
    "linspace": "start stop / num * dtype device endpoint",
    "meshgrid": "*arrays indexing",
    "ones": "shape * dtype device",
    "ones_like": "x / * dtype device",
    "tril": "x / * k",
    "triu": "x / * k",
    "zeros": "shape * dtype device",
    "zeros_like": "x / * dtype device",
    "astype": "x dtype / * copy device",
    "broadcast_arrays": "*arrays",
    "broadcast_to": "x / shape",
    "can_cast": "from_ to /",
    "finfo": "type /",
    "iinfo": "type /",
    "isdtype": "dtype kind",
    "result_type": "*arrays_and_dtypes",
    "matmul": "x1 x2 /",
    "matrix_transpose": "x /",
    "tensordot": "x1 x2 / * axes",
    "vecdot": "x1 x2 / * axis",
    "take": "x indices / * axis",
    "concat": "arrays / * axis",
    "expand_dims": "x / * axis",
    "flip": "x / * axis",
    "moveaxis": "x source destination /",
    "permute_dims": "x / axes",
    "repeat": "x repeats / * axis",
    "reshape": "x / shape * copy",
    "roll": "x / shift * axis",
    "squeeze": "x / axis",
    "stack": "arrays / * axis",
    "tile": "x repetitions /",
    "unstack": "x / * axis",
    "argmax": "x / * axis keepdims",
    "argmin": "x / * axis keepdims",
    "nonzero": "x /",
    "searchsorted": "x1 x2 / * side sorter",
    "where": "condition x1 x2 /",
    "unique_all": "x /",
    "unique_counts": "x /",
    "unique_inverse": "x /",
    "unique_values": "x /",
    "argsort": "x / * axis descending stable",
    "sort": "x / * axis descending stable",
    "cumulative_sum": "x / * axis dtype include_initial",
    "max": "x / * axis keepdims",
    "mean": "x / * axis keepdims",
    "min": "x / * axis keepdims",
    "prod": "x / * axis dtype keepdims",
    "std": "x / * axis correction keepdims",
    "sum": "x / * axis dtype keepdims",
    "var": "x / * axis correction keepdims",
    "all": "x / * axis keepdims",
    "any": "x / * axis keepdims",
    "__array_namespace_info__": "",
    "linalg.cholesky": "x / * upper",
    "linalg.cross": "x1 x2 / * axis",
    "linalg.det": "x /",
    "linalg.diagonal": "x / * offset",
    "linalg.eigh": "x /",
    "linalg.eigvalsh": "x /",
    "linalg.inv": "x /",
    "linalg.matmul": "x1 x2 /",
    "linalg.matrix_norm": "x / * keepdims ord",
    "linalg.matrix_power": "x n /",
    "linalg.matrix_rank": "x / * rtol",
    "linalg.matrix_transpose": "x /",
    "linalg.outer": "x1 x2 /",
    "linalg.pinv": "x / * rtol",
    "linalg.qr": "x / * mode",
    "linalg.slogdet": "x /",
    "linalg.solve": "x1 x2 /",
    "linalg.svd": "x / * full_matrices",
    "linalg.svdvals": "x /",
    "linalg.tensordot": "x1 x2 / * axes",
    "linalg.trace": "x / * offset dtype",
    "linalg.vecdot": "x1 x2 / * axis",
    "linalg.vector_norm": "x / * axis keepdims ord",
    # 2024.12
    "reciprocal": "x /",
    "nextafter": "x1 x2 /",
    "count_nonzero": "x / * axis keepdims",
    "cumulative_prod": "x / * axis dtype include_initial",
    "diff": "x / * axis n prepend append",
    "take_along_axis": "x indices / * axis",
}
# fft works on complex numbers; conj, imag and real are about them.
CONVERSIONS = "abs bool complex float index int invert neg pos dlpack_device".split()
METHODS = {f"__{name}__": "" for name in CONVERSIONS}
METHODS |= {
    f"__{name}__": "other /"
    for name in """add and eq floordiv ge gt le lshift lt matmul mod mul ne or pow rshift sub
truediv xor radd rand rfloordiv rlshift rmatmul rmod rmul ror rpow rrshift rsub rtruediv rxor""".split()
}
METHODS |= {"__getitem__": "key /", "__array_namespace__": "/ * api_version", "to_device": "device / * stream"}
METHODS |= {"__dlpack__": "* stream max_version dl_device copy"}
