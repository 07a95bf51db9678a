"""funcgrad: grad, vmap, checkpoint and jit of pure functions, run by ggml on a CPU or on any Vulkan GPU.

>>> import funcgrad as fg
>>> fg.grad(lambda x: x * x)(3.0)
Array(6., dtype=float32)
"""

import importlib
from typing import TYPE_CHECKING, Any

from funcgrad import errors, numpy, tree
from funcgrad import operators as operators  # gives arrays their operators and methods
from funcgrad.array import Array, block_until_ready, default_device, device_get, device_put
from funcgrad.numpy.precision import default_matmul_precision
from funcgrad.runtime.device import Device, devices
from funcgrad.transforms import (
    DonationWarning,
    RetraceWarning,
    ShapeDtypeStruct,
    checkpoint,
    checkpoint_name,
    checkpoint_policies,
    clear_caches,
    closure_convert,
    custom_gradient,
    custom_jvp,
    custom_vjp,
    disable_jit,
    ensure_compile_time_eval,
    eval_shape,
    grad,
    hessian,
    jacfwd,
    jacobian,
    jacrev,
    jit,
    jvp,
    linear_transpose,
    linearize,
    make_graph,
    make_jaxpr,
    named_call,
    named_scope,
    remat,
    value_and_grad,
    vjp,
    vmap,
)

if TYPE_CHECKING:
    from funcgrad import (
        ad_checkpoint,
        custom_batching,
        data,
        debug,
        experimental,
        flatten_util,
        image,
        io,
        lax,
        losses,
        nn,
        ops,
        optim,
        random,
        scipy,
        testing,
        training,
        tree_util,
        typing,
    )
    from funcgrad.debug import debug_nans, pure_callback
    from funcgrad.environment import (
        default_backend,
        device_count,
        effects_barrier,
        local_device_count,
        local_devices,
        print_environment_info,
        process_count,
        process_index,
        typeof,
    )
    from funcgrad.io import load, save
    from funcgrad.placement import compare, coverage
    from funcgrad.train_step import TrainState, TrainStep, make_train_step

# What is imported when it is first used, so that the import is quick: name, and the module it is or is in.
_MODULES = "ad_checkpoint custom_batching data debug experimental flatten_util image io lax losses nn ops optim random"
_MODULES += " scipy testing training tree_util typing"
_LATER = {n: n for n in _MODULES.split()}
_LATER |= dict.fromkeys(("compare", "coverage"), "placement")
_LATER |= dict.fromkeys(("debug_nans", "pure_callback"), "debug")
_LATER |= dict.fromkeys(("load", "save"), "io")
_LATER |= dict.fromkeys(("TrainState", "TrainStep", "make_train_step"), "train_step")
_LATER |= dict.fromkeys(
    (
        "default_backend",
        "device_count",
        "effects_barrier",
        "local_device_count",
        "local_devices",
        "print_environment_info",
        "process_count",
        "process_index",
        "typeof",
    ),
    "environment",
)


# JAX's names that are not here, and what a program does instead.
_SHARDING = "one process, whole arrays: make_train_step(..., device=) and vmap with an axis name"
_INSTEAD = {
    **dict.fromkeys(
        ("config", "enable_x64"), "no global switches: debug_nans(), disable_jit(), default_device('numpy')"
    ),
    "core": "isinstance(x, Array) holds for traced values too",
    **dict.fromkeys(("sharding", "make_mesh", "NamedSharding", "P", "shard_map", "set_mesh", "distributed"), _SHARDING),
    "pmap": "vmap with an axis name",
    "export": "f.lower(*args).compile() in the process that runs it; save() for parameters",
    "profiler": "debug.profile and debug.memory_over_time; named_scope for annotations",
    "live_arrays": "f.lower(*args).compile().memory_analysis()",
    "new_ref": "carry the value through lax.scan",
}


def __getattr__(name: str) -> Any:
    where = _LATER.get(name)
    if where is None:
        way_out = f"\n  way out: {_INSTEAD[name]}" if name in _INSTEAD else ""
        raise AttributeError(f"module 'funcgrad' has no attribute {name!r}{way_out}")
    module = importlib.import_module(f"funcgrad.{where}")
    found = module if where == name else getattr(module, name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


__version__ = "0.1.0"

__all__ = [
    "ad_checkpoint",
    "typing",
    "Device",
    "closure_convert",
    "compare",
    "coverage",
    "custom_batching",
    "custom_gradient",
    "debug_nans",
    "default_backend",
    "device_count",
    "effects_barrier",
    "ensure_compile_time_eval",
    "local_device_count",
    "local_devices",
    "named_call",
    "named_scope",
    "print_environment_info",
    "process_count",
    "process_index",
    "pure_callback",
    "typeof",
    "Array",
    "block_until_ready",
    "checkpoint",
    "checkpoint_name",
    "checkpoint_policies",
    "clear_caches",
    "custom_jvp",
    "custom_vjp",
    "data",
    "debug",
    "default_device",
    "default_matmul_precision",
    "device_get",
    "device_put",
    "devices",
    "disable_jit",
    "errors",
    "experimental",
    "eval_shape",
    "flatten_util",
    "grad",
    "hessian",
    "image",
    "io",
    "jacfwd",
    "jacobian",
    "jacrev",
    "jit",
    "jvp",
    "lax",
    "linear_transpose",
    "linearize",
    "load",
    "losses",
    "make_graph",
    "make_jaxpr",
    "make_train_step",
    "nn",
    "numpy",
    "ops",
    "optim",
    "random",
    "remat",
    "save",
    "scipy",
    "DonationWarning",
    "RetraceWarning",
    "ShapeDtypeStruct",
    "TrainState",
    "TrainStep",
    "testing",
    "training",
    "tree",
    "tree_util",
    "value_and_grad",
    "vjp",
    "vmap",
]
