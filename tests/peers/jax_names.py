"""Every public name of JAX that is not here, or is here with another meaning, and why.

``python tests/peers/jax_names.py`` writes docs/coverage.md from it.
"""

from __future__ import annotations

import textwrap
import types
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import jax.scipy.linalg
import jax.scipy.ndimage
import jax.scipy.optimize
import jax.scipy.signal
import jax.scipy.sparse.linalg
import jax.scipy.special
import jax.scipy.stats

import funcgrad as fg
import funcgrad.numpy as fnp

PAGE = Path(__file__).parents[2] / "docs" / "coverage.md"
# The reasons why a name makes no sense here; the others count as missing.
COMPLEX = "complex numbers"
FLOAT64 = "64-bit floats on a device"
NARROW = "dtypes that no device here computes in"
SHARDING = "sharding over meshes and processes"
XLA = "XLA's compiler, its tokens and its program formats"
TYPES = "a class that only names a type or the form of an argument"
REFS = "mutable references: programs here are pure functions of arrays"
OBJECTS = "numpy's objects, text and files"
INTERNAL = "a part of JAX's own machinery that its modules happen to show"
SWITCHES = "a switch of JAX's own implementation"
SENSELESS = (COMPLEX, FLOAT64, NARROW, SHARDING, XLA, TYPES, REFS, OBJECTS, INTERNAL, SWITCHES)

MIXED = "one behaviour, documented, instead of a global switch"
CHECKS = "always on"
OWN_BITS = "bits of its own; the distribution is the same"


class Table(NamedTuple):
    """A namespace of JAX and ours: what differs though it is here, what stands in for a name, what is missing."""

    title: str
    theirs: Any
    ours: Any
    here: dict[str, str]
    instead: dict[str, str]
    missing: dict[str, str]


def words(why: str, names: str) -> dict[str, str]:
    """One text for several names."""
    return dict.fromkeys(names.split(), why)


TOP = Table(
    "jax",
    jax,
    fg,
    {
        "jit": "no weak types; arrays that a function closes over are inputs; a retrace warns and says why",
        "grad": "conventions at kinks: docs/numerics.md",
        "default_device": "a context manager",
        "disable_jit": "also runs loops as plain Python",
        "make_jaxpr": "gives funcgrad's graph",
        "device_put": "to one device",
        "named_scope": "shown beside source lines in errors and reports, not in a profiler",
        "print_environment_info": "names what runs here",
        "custom_gradient": "computes the forward half again where the gradient is",
    },
    {
        **words(MIXED, "numpy_dtype_promotion numpy_rank_promotion config"),
        **words(CHECKS, "check_tracer_leaks checking_leaks enable_checks"),
        "debug_infs": "debug.check_finite and debug.find_nonfinite",
        "debug_key_reuse": "keys are plain arrays; nothing tracks their use",
        "explain_cache_misses": "every retrace warns and says why",
        "log_compiles": "f.stats and RetraceWarning",
        "live_arrays": "f.lower().compile().memory_analysis(), and the ledger of debug.expect",
        **words("debug.expect(uploads=, downloads=)", "transfer_guard transfer_guard_device_to_device"),
        **words("debug.expect(uploads=, downloads=)", "transfer_guard_device_to_host transfer_guard_host_to_device"),
        "float0": "the cotangent of integers is zeros of their own dtype",
        "pmap": "vmap with an axis name",
        "fwd_and_bwd": "vjp",
        "copy_to_host_async": "Array.numpy()",
    },
    {
        **words(SHARDING, "NamedSharding P Shard shard_map smap make_mesh set_mesh reshard memory device_put_sharded"),
        **words(SHARDING, "make_array_from_callback make_array_from_process_local_data device_put_replicated"),
        **words(SHARDING, "make_array_from_single_device_arrays remove_size_one_mesh_axis_from_type"),
        **words(SHARDING, "host_count host_id host_ids process_indices"),
        **words(REFS, "Ref empty_ref free_ref freeze new_ref"),
        **words(INTERNAL, "ad ds make_user_context"),
        **words(SWITCHES, "allow_f16_reductions array_garbage_collection_guard auto_pcast default_prng_impl"),
        **words(SWITCHES, "jax2tf_associative_scan_reductions legacy_prng_key no_execution no_tracing"),
        **words(SWITCHES, "enable_custom_prng softmax_custom_jvp thread_guard threefry_partitionable"),
        **words(FLOAT64, "enable_x64"),
    },
)
NUMPY = Table(
    "jax.numpy",
    jnp,
    fnp,
    {
        "float64": "float32 on a device; float64 on the numpy device",
        **words("int32", "int8 int16 int64"),
        **words("uint32 or int32", "uint8 uint16 uint64"),
        "where": "exact: what is not selected contributes nothing, forward and backward",
        "asarray": "no weak types: a Python number takes the dtype of the array beside it",
        "clip": "gradient 0 on and outside the bounds",
        "unique": "its size depends on values: outside jit only, or with size=",
    },
    {
        "place": "where, or .at[mask].set: arrays are immutable",
        **words("read with numpy, then asarray", "fromfile fromstring"),
        **words("vectorize", "frompyfunc ufunc"),
    },
    {
        **words(COMPLEX, "ComplexWarning cdouble complex128 complex64 complex_ csingle sort_complex roots"),
        **words(OBJECTS, "character flexible object_"),
        **words(NARROW, "float4_e2m1fn float6_e2m3fn float6_e3m2fn float8_e3m4 float8_e4m3 float8_e4m3b11fnuz"),
        **words(NARROW, "float8_e4m3fn float8_e4m3fnuz float8_e5m2 float8_e5m2fnuz float8_e8m0fnu"),
        **words(NARROW, "int1 int2 int4 uint1 uint2 uint4 packbits unpackbits"),
    },
)
LINALG = Table("jax.numpy.linalg", jnp.linalg, fnp.linalg, {}, {}, words(COMPLEX, "eig eigvals"))
LAX = Table(
    "jax.lax",
    jax.lax,
    fg.lax,
    {
        "while_loop": "reverse mode is an error that names scan and fori_loop",
        "approx_max_k": "exact",
        "approx_min_k": "exact",
        "optimization_barrier": "the value itself",
        "Precision": "every one is float32; default_matmul_precision chooses less",
        "betainc": "differentiable by all three arguments",
        "custom_linear_solve": "without has_aux",
        "custom_root": "without has_aux",
    },
    {
        **words("random.bits and random.uniform", "rng_bit_generator rng_uniform RandomAlgorithm"),
        "platform_dependent": "default_backend() outside the traced function",
        "conv_general_dilated_local": "conv_general_dilated_patches and einsum",
        "shape_as_value": "x.shape",
        "stage": "jit",
        "composite": "jit",
        "dce_sink": "what nothing reads is not computed",
    },
    {
        **words(COMPLEX, "complex fft FftType"),
        **words(TYPES, "AccuracyMode DotAlgorithm DotAlgorithmPreset DotDimensionNumbers PrecisionLike Tolerance"),
        **words(TYPES, "ConvGeneralDilatedDimensionNumbers RaggedDotDimensionNumbers"),
        **words(XLA, "after_all create_token"),
        **words(SHARDING, "pbroadcast pcast precv psend ragged_all_to_all with_sharding_constraint"),
        **words(SHARDING, "all_to_all pshuffle pswapaxes"),
        **words("products of ragged or scaled blocks", "ragged_dot ragged_dot_general scaled_dot"),
        **words("products of 64 bits", "mulhi"),
        **words(INTERNAL, "conv_general_permutations"),
    },
)
RANDOM = Table(
    "jax.random",
    jax.random,
    fg.random,
    {
        "key": "a uint32 array of shape (2,), as PRNGKey gives",
        **words(OWN_BITS, "ball beta binomial chisquare dirichlet double_sided_maxwell f gamma generalized_normal"),
        **words(OWN_BITS, "loggamma multinomial poisson t wald"),
    },
    {"key_dtype": "keys are uint32 arrays"},
    {},
)
MAIN = [TOP, NUMPY, LINALG, LAX, RANDOM]


def distributions(module: Any) -> types.SimpleNamespace:
    """A module of distributions as one namespace of the functions of each."""
    found = {n: getattr(module, n) for n in dir(module) if n[0] != "_" and callable(getattr(module, n))}
    for name in dir(jax.scipy.stats):
        inner = getattr(module, name, None)
        if inner is not None and not callable(inner) and not name.startswith("_"):
            found |= {f"{name}.{f}": getattr(inner, f) for f in dir(inner) if f[0] != "_"}
    return types.SimpleNamespace(**found)


TREE = Table(
    "jax.tree",
    jax.tree,
    fg.tree,
    {},
    {"static": "nn.static, register_static", "reduce_associative": "reduce"},
    {},
)
TREE_UTIL = Table(
    "jax.tree_util",
    jax.tree_util,
    fg.tree_util,
    {},
    {
        **words("a union of DictKey, GetAttrKey and SequenceKey", "KeyEntry KeyPath"),
        "FlattenedIndexKey": "SequenceKey",
        "is_tree_node": "not treedef_is_leaf(tree_structure(x))",
        "tree_reduce_associative": "tree_reduce",
        "treedef_tuple": "tree_structure of a tuple",
        **words("tree_flatten, with is_leaf", "flatten_one_level flatten_one_level_with_keys"),
    },
    words(INTERNAL, "default_registry"),
)
OPS = Table("jax.ops", jax.ops, fg.ops, {}, {}, {})
IMAGE = Table("jax.image", jax.image, fg.image, {}, {}, {})
SPECIAL = Table(
    "jax.scipy.special",
    jax.scipy.special,
    fg.scipy.special,
    {"factorial": "of whole numbers below 2^20 exact"},
    {},
    {
        **words(COMPLEX, "wofz sph_harm_y"),
        **words(
            "rarely used", "bernoulli bessel_jn dawsn erfcx exp1 expi expn fresnel hyp1f1 hyp2f1 owens_t sici spence"
        ),
    },
)
SCIPY_LINALG = Table(
    "jax.scipy.linalg",
    jax.scipy.linalg,
    fg.scipy.linalg,
    {},
    {
        **words("inv, solve and det", "lu lu_factor lu_solve"),
        "expm_frechet": "jvp of expm",
        "qr_multiply": "qr, then a product",
        "solve_sylvester": "kron and solve",
        "sqrtm": "eigh, for symmetric matrices",
    },
    {
        **words(COMPLEX, "dft funm rsf2csf schur"),
        "hessenberg": "a step of algorithms that are not here",
        **words(
            "matrices that numpy or scipy can make",
            "companion convolution_matrix fiedler fiedler_companion hadamard helmert invhilbert invpascal leslie "
            "pascal",
        ),
    },
)
SPARSE = Table("jax.scipy.sparse.linalg", jax.scipy.sparse.linalg, fg.scipy.sparse.linalg, {}, {}, {})
STATS = Table(
    "jax.scipy.stats",
    distributions(jax.scipy.stats),
    distributions(fg.scipy.stats),
    {},
    {"mode": "numpy.bincount and argmax", "rankdata": "argsort of argsort", "sem": "std(x, ddof=1) / sqrt(n)"},
    {"gaussian_kde": "logsumexp of multivariate_normal.logpdf is one", "poisson.entropy": "no closed form"},
)
SIGNAL = Table(
    "jax.scipy.signal",
    jax.scipy.signal,
    fg.scipy.signal,
    {"fftconvolve": "computed directly", **words("zeros outside only", "convolve2d correlate2d")},
    {},
    words(COMPLEX, "csd istft stft welch"),
)
NDIMAGE = Table("jax.scipy.ndimage", jax.scipy.ndimage, fg.scipy.ndimage, {}, {}, {})
OPTIMIZE = Table("jax.scipy.optimize", jax.scipy.optimize, fg.scipy.optimize, {}, {}, {})
NN = Table(
    "jax.nn",
    jax.nn,
    fg.nn,
    {},
    {},
    words("products of ragged or scaled blocks", "get_scaled_dot_general_config scaled_dot_general scaled_matmul"),
)
TABLES = [*MAIN, NN, TREE, TREE_UTIL, OPS, IMAGE, SPECIAL, SCIPY_LINALG, SPARSE, STATS, SIGNAL, NDIMAGE, OPTIMIZE]


def public(module: Any) -> list[str]:
    """The public names of a module, without submodules and primitive objects."""
    found = [n for n in dir(module) if not n.startswith("_") and not n.endswith("_p")]
    return sorted(n for n in found if not isinstance(getattr(module, n, None), types.ModuleType))


def sensible(table: Table) -> list[str]:
    """The names that make sense without complex numbers, float64 and sharding."""
    return [n for n in public(table.theirs) if table.missing.get(n) not in SENSELESS]


def counted(table: Table) -> tuple[int, int, int]:
    """How many names make sense; how many of them are here; how many have something else in their place."""
    names = sensible(table)
    here = sum(hasattr(table.ours, n) for n in names)
    return len(names), here, sum(n in table.instead for n in names if not hasattr(table.ours, n))


def grouped(texts: dict[str, str], names: list[str]) -> list[str]:
    """Rows of a table, names with one text together."""
    rows: dict[str, list[str]] = {}
    for n in names:
        rows.setdefault(texts[n], []).append(f"`{n}`")
    return [f"| {' '.join(found)} | {why} |" for why, found in rows.items()]


def section(table: Table) -> list[str]:
    """The part of the page about a namespace."""
    names = public(table.theirs)
    here = [n for n in names if hasattr(table.ours, n)]
    total, have, instead = counted(table)
    head = f"{len(names)} names; {total} make sense here, of which {have} are here and {instead} have another form."
    plain = " ".join(f"`{n}`" for n in here if n not in table.here)
    out = [f"## {table.title}", "", head, "", "Here:", "", *textwrap.wrap(plain, 118, break_on_hyphens=False), ""]
    different = [*grouped(table.here, [n for n in here if n in table.here])]
    if different:
        out += ["Here, deliberately different:", "", "| name | difference |", "|---|---|", *different, ""]
    absent = [n for n in names if n not in here]
    for title, texts in (("Deliberately not under this name:", table.instead), ("Not here:", table.missing)):
        rows = grouped(texts, [n for n in absent if n in texts])
        if rows:
            column = "instead" if texts is table.instead else "why"
            out += [title, "", f"| name | {column} |", "|---|---|", *rows, ""]
    return out


def page() -> str:
    """The whole page."""
    lines = [
        "# Coverage of JAX",
        "",
        f"Every public name of JAX {jax.__version__}: here, deliberately different, or not here and why.  Written by",
        "`python tests/peers/jax_names.py`, checked by `make test-peers`.  JAX's primitive objects (`lax.add_p`",
        "and so on) and submodules are left out; funcgrad's primitives are the classes of `funcgrad.prims`.",
        "",
        "| namespace | names | make sense | here | of those that make sense |",
        "|---|---|---|---|---|",
    ]
    for t in TABLES:
        total, have, _ = counted(t)
        lines.append(f"| {t.title} | {len(public(t.theirs))} | {total} | {have} | {100 * have / total:.0f}% |")
    lines.append("")
    for t in TABLES:
        lines += section(t)
    return "\n".join(lines).rstrip() + "\n"


if __name__ == "__main__":
    PAGE.write_text(page())
