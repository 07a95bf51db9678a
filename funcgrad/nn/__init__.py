"""Neural networks: functions with ``jax.nn``'s names, and modules that are frozen dataclasses and pytrees."""

from funcgrad.nn import initializers
from funcgrad.nn.attention import MultiHeadAttention, dot_product_attention, rope, sinusoidal_positions
from funcgrad.nn.convolution import Conv1d, Conv2d, Conv3d, ConvTranspose1d, ConvTranspose2d
from funcgrad.nn.functions import *  # noqa: F403
from funcgrad.nn.functions import __all__ as _functions
from funcgrad.nn.layers import Dropout, Embedding, Linear, Sequential
from funcgrad.nn.module import (
    combine,
    count_parameters,
    is_array,
    is_inexact_array,
    module,
    partition,
    replace_at,
    static,
    summary,
)
from funcgrad.nn.normalisation import (
    BatchNorm,
    BatchNormState,
    GroupNorm,
    InstanceNorm,
    LayerNorm,
    RMSNorm,
    masked_mean,
)
from funcgrad.nn.pooling import avg_pool, max_pool, min_pool
from funcgrad.nn.recurrent import GRUCell, LSTMCell, scan_cell

__all__ = [
    *_functions,
    "BatchNorm",
    "BatchNormState",
    "Conv1d",
    "Conv2d",
    "Conv3d",
    "ConvTranspose1d",
    "ConvTranspose2d",
    "Dropout",
    "Embedding",
    "GRUCell",
    "GroupNorm",
    "InstanceNorm",
    "LSTMCell",
    "LayerNorm",
    "Linear",
    "MultiHeadAttention",
    "RMSNorm",
    "Sequential",
    "avg_pool",
    "combine",
    "count_parameters",
    "dot_product_attention",
    "initializers",
    "is_array",
    "is_inexact_array",
    "masked_mean",
    "max_pool",
    "min_pool",
    "module",
    "partition",
    "replace_at",
    "rope",
    "scan_cell",
    "sinusoidal_positions",
    "static",
    "summary",
]
