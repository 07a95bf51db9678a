"""The primitives: one class each, a linear operation beside its transpose; importing the package registers all."""

from funcgrad.prims import (
    contract,
    cumulative,
    dynamic,
    functions,
    index,
    layout,
    logic,
    order,
    pointwise,
    window,
)

__all__ = [
    "contract",
    "cumulative",
    "dynamic",
    "functions",
    "index",
    "layout",
    "logic",
    "order",
    "pointwise",
    "window",
]
