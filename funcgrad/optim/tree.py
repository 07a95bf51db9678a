"""The functions of ``tree_utils`` under the short names of ``optax.tree``.

>>> import funcgrad.numpy as fnp
>>> from funcgrad import optim
>>> float(optim.tree.norm({"a": fnp.asarray([3.0, 4.0])}))
5.0
"""

from funcgrad.optim.tree_utils import tree_add as add
from funcgrad.optim.tree_utils import tree_add_scale as add_scale
from funcgrad.optim.tree_utils import tree_cast as cast
from funcgrad.optim.tree_utils import tree_get as get
from funcgrad.optim.tree_utils import tree_mul as mul
from funcgrad.optim.tree_utils import tree_norm as norm
from funcgrad.optim.tree_utils import tree_ones_like as ones_like
from funcgrad.optim.tree_utils import tree_scale as scale
from funcgrad.optim.tree_utils import tree_set as set
from funcgrad.optim.tree_utils import tree_sub as sub
from funcgrad.optim.tree_utils import tree_sum as sum
from funcgrad.optim.tree_utils import tree_vdot as vdot
from funcgrad.optim.tree_utils import tree_zeros_like as zeros_like

__all__ = [
    "add",
    "add_scale",
    "cast",
    "get",
    "mul",
    "norm",
    "ones_like",
    "scale",
    "set",
    "sub",
    "sum",
    "vdot",
    "zeros_like",
]
