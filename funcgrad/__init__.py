"""funcgrad: grad, vmap, checkpoint and jit of pure functions, run by ggml on a CPU or on any Vulkan GPU.

>>> import funcgrad as fg
>>> fg.grad(lambda x: x * x)(3.0)
Array(6., dtype=float32)
"""

from funcgrad import data, debug, errors, flatten_util, io, lax, losses, nn, numpy, optim, random, training, tree
from funcgrad import operators as operators  # gives arrays their operators and methods
from funcgrad.array import Array, block_until_ready, default_device, device_get, device_put
from funcgrad.io import load, save
from funcgrad.numpy.precision import default_matmul_precision
from funcgrad.runtime.device import devices
from funcgrad.train_step import TrainState, TrainStep, make_train_step
from funcgrad.transforms import (
    DonationWarning,
    RetraceWarning,
    ShapeDtypeStruct,
    checkpoint,
    checkpoint_name,
    checkpoint_policies,
    clear_caches,
    custom_jvp,
    custom_vjp,
    disable_jit,
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
    remat,
    value_and_grad,
    vjp,
    vmap,
)

__version__ = "0.1.0"

__all__ = [
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
    "eval_shape",
    "flatten_util",
    "grad",
    "hessian",
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
    "optim",
    "random",
    "remat",
    "save",
    "DonationWarning",
    "RetraceWarning",
    "ShapeDtypeStruct",
    "TrainState",
    "TrainStep",
    "training",
    "tree",
    "value_and_grad",
    "vjp",
    "vmap",
]
