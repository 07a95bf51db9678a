"""The functions of ``tree_utils`` under the short names of ``optax.tree``.

>>> import funcgrad.numpy as fnp
>>> from funcgrad import optim
>>> float(optim.tree.norm({"a": fnp.asarray([3.0, 4.0])}))
5.0
"""

from funcgrad.optim.tree_utils import tree_add as add
from funcgrad.optim.tree_utils import tree_add_scale as add_scale
from funcgrad.optim.tree_utils import tree_allclose as allclose
from funcgrad.optim.tree_utils import tree_batch_shape as batch_shape
from funcgrad.optim.tree_utils import tree_bias_correction as bias_correction
from funcgrad.optim.tree_utils import tree_cast as cast
from funcgrad.optim.tree_utils import tree_cast_like as cast_like
from funcgrad.optim.tree_utils import tree_clip as clip
from funcgrad.optim.tree_utils import tree_div as div
from funcgrad.optim.tree_utils import tree_full_like as full_like
from funcgrad.optim.tree_utils import tree_get as get
from funcgrad.optim.tree_utils import tree_max as max
from funcgrad.optim.tree_utils import tree_min as min
from funcgrad.optim.tree_utils import tree_mul as mul
from funcgrad.optim.tree_utils import tree_norm as norm
from funcgrad.optim.tree_utils import tree_ones_like as ones_like
from funcgrad.optim.tree_utils import tree_random_like as random_like
from funcgrad.optim.tree_utils import tree_scale as scale
from funcgrad.optim.tree_utils import tree_set as set
from funcgrad.optim.tree_utils import tree_size as size
from funcgrad.optim.tree_utils import tree_split_key_like as split_key_like
from funcgrad.optim.tree_utils import tree_sub as sub
from funcgrad.optim.tree_utils import tree_sum as sum
from funcgrad.optim.tree_utils import tree_update_infinity_moment as update_infinity_moment
from funcgrad.optim.tree_utils import tree_update_moment as update_moment
from funcgrad.optim.tree_utils import tree_update_moment_per_elem_norm as update_moment_per_elem_norm
from funcgrad.optim.tree_utils import tree_vdot as vdot
from funcgrad.optim.tree_utils import tree_where as where
from funcgrad.optim.tree_utils import tree_zeros_like as zeros_like

__all__ = [
    "add",
    "add_scale",
    "allclose",
    "batch_shape",
    "bias_correction",
    "cast",
    "cast_like",
    "clip",
    "div",
    "full_like",
    "get",
    "max",
    "min",
    "mul",
    "norm",
    "ones_like",
    "random_like",
    "scale",
    "set",
    "size",
    "split_key_like",
    "sub",
    "sum",
    "update_infinity_moment",
    "update_moment",
    "update_moment_per_elem_norm",
    "vdot",
    "where",
    "zeros_like",
]
