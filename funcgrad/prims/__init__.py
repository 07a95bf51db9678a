"""The primitives: one class each, a linear operation beside its transpose; importing the package registers all."""

from funcgrad.prims import (
    contract,
    cumulative,
    determinants,
    dynamic,
    functions,
    index,
    layout,
    linalg,
    logic,
    order,
    pointwise,
    spectral,
    window,
)

__all__ = [
    "contract",
    "cumulative",
    "determinants",
    "dynamic",
    "functions",
    "index",
    "layout",
    "linalg",
    "logic",
    "order",
    "pointwise",
    "spectral",
    "window",
]
