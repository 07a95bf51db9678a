"""The transformations: the only place where trees meet graphs."""

from funcgrad.transforms.autodiff import (
    grad,
    jvp,
    linear_transpose,
    linearize,
    value_and_grad,
    vjp,
)
from funcgrad.transforms.batching import vmap
from funcgrad.transforms.closures import closure_convert, custom_gradient, ensure_compile_time_eval
from funcgrad.transforms.custom import custom_jvp, custom_vjp
from funcgrad.transforms.explain import DonationWarning, RetraceWarning
from funcgrad.transforms.inspect import ShapeDtypeStruct, eval_shape, make_graph, make_jaxpr
from funcgrad.transforms.jacobians import hessian, jacfwd, jacobian, jacrev
from funcgrad.transforms.jit import clear_caches, jit
from funcgrad.transforms.naming import named_call, named_scope
from funcgrad.transforms.remat import checkpoint, checkpoint_name, checkpoint_policies, remat
from funcgrad.transforms.switches import disable_jit

__all__ = [
    "DonationWarning",
    "RetraceWarning",
    "ShapeDtypeStruct",
    "checkpoint",
    "checkpoint_name",
    "checkpoint_policies",
    "clear_caches",
    "closure_convert",
    "custom_gradient",
    "custom_jvp",
    "custom_vjp",
    "disable_jit",
    "ensure_compile_time_eval",
    "eval_shape",
    "grad",
    "hessian",
    "jacfwd",
    "jacobian",
    "jacrev",
    "jit",
    "jvp",
    "linear_transpose",
    "linearize",
    "make_graph",
    "make_jaxpr",
    "named_call",
    "named_scope",
    "remat",
    "value_and_grad",
    "vjp",
    "vmap",
]
