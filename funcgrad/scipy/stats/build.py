"""Makes a distribution's functions from those of its standard form."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from funcgrad import numpy as fnp
from funcgrad.numpy.promotion import floating_arrays

__all__ = ["continuous", "discrete"]

Standard = Callable[..., Any]
TEXT = {
    "logpdf": "the logarithm of the density",
    "pdf": "the density",
    "logpmf": "the logarithm of the probability of k",
    "pmf": "the probability of k",
    "cdf": "the distribution function",
    "logcdf": "the logarithm of the distribution function",
    "sf": "the survival function, 1 - cdf",
    "logsf": "the logarithm of the survival function",
    "ppf": "the quantile function, the inverse of cdf",
    "isf": "the inverse of the survival function",
}


def _signature(first: str, shapes: str, defaults: dict[str, float]) -> inspect.Signature:
    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    required = [inspect.Parameter(n, kind) for n in (first, *shapes.split())]
    return inspect.Signature([*required, *[inspect.Parameter(n, kind, default=v) for n, v in defaults.items()]])


def _named(function: Any, distribution: str, name: str, title: str, signature: inspect.Signature, at: str) -> Any:
    """Give a function its name, signature and documentation; ``at`` are shape parameters for its example."""
    parameters = ", ".join(f"``{p}``" for p in list(signature.parameters)[1:]) or "none"
    function.__name__, function.__qualname__ = name, f"{distribution}.{name}"
    function.__module__ = f"funcgrad.scipy.stats.{distribution}"
    function.__signature__ = signature
    call = f"{distribution}.{name}({', '.join(['fnp.asarray([0.25, 0.5])', *at.split()])})"
    example = f">>> from funcgrad.scipy.stats import {distribution}\n>>> {call}.shape\n(2,)"
    function.__doc__ = f"Return {TEXT[name]} of {title}; parameters: {parameters}.\n\n{example}"
    return function


def _function(signature: inspect.Signature, name: str, inner: Callable[..., Any]) -> Any:
    def function(*args: Any, **kwargs: Any) -> Any:
        bound = signature.bind(*args, **kwargs)
        bound.apply_defaults()
        return inner(*fnp.broadcast_arrays(*floating_arrays(name, *bound.arguments.values())))

    return function


def _completed(given: dict[str, Standard]) -> dict[str, Standard]:
    """The functions that follow from those given."""
    all_: dict[str, Standard] = dict(given)
    logpdf = given["logpdf"]
    all_["pdf"] = given.get("pdf", lambda z, *p: fnp.exp(logpdf(z, *p)))
    cdf, sf, logcdf, logsf = (given.get(n) for n in ("cdf", "sf", "logcdf", "logsf"))
    if cdf is None and logcdf is not None:
        cdf = lambda z, *p: fnp.exp(logcdf(z, *p))
    if cdf is not None:
        sf = sf or (lambda z, *p: 1 - cdf(z, *p))
        all_["cdf"], all_["sf"] = cdf, sf
        all_["logcdf"] = logcdf or (lambda z, *p: fnp.log(cdf(z, *p)))
        all_["logsf"] = logsf or (lambda z, *p: fnp.log(sf(z, *p)))
    return all_


def continuous(name: str, title: str, shapes: str = "", at: str = "", **given: Standard) -> SimpleNamespace:
    """A distribution of location and scale.

    ``given`` are functions of z = (x - loc) / scale and the shape parameters: ``logpdf`` and any of the others, from
    which the rest follows; ``ppf`` and ``isf`` map a probability to z.
    """
    found: dict[str, Any] = {}
    for kind, standard in _completed(given).items():
        first = "q" if kind in ("ppf", "isf") else "x"
        signature = _signature(first, shapes, {"loc": 0.0, "scale": 1.0})
        found[kind] = _named(
            _function(signature, f"{name}.{kind}", _located(kind, standard)), name, kind, title, signature, at
        )
    return SimpleNamespace(**dict(sorted(found.items())))


def _located(kind: str, standard: Standard) -> Callable[..., Any]:
    def inner(x: Any, *rest: Any) -> Any:
        *shapes, loc, scale = rest
        if kind in ("ppf", "isf"):
            return standard(x, *shapes) * scale + loc
        value = standard((x - loc) / scale, *shapes)
        return value - fnp.log(scale) if kind == "logpdf" else value / scale if kind == "pdf" else value

    return inner


def discrete(name: str, title: str, shapes: str, at: str, **given: Standard) -> SimpleNamespace:
    """A distribution of whole numbers: ``logpmf`` and others are functions of k - loc and the shape parameters."""
    logpmf = given["logpmf"]
    functions = {"pmf": lambda k, *p: fnp.exp(logpmf(k, *p)), **given}
    found: dict[str, Any] = {}
    for kind, standard in functions.items():
        signature = _signature("q" if kind == "ppf" else "k", shapes, {"loc": 0.0})

        def inner(x: Any, *rest: Any, standard: Standard = standard, kind: str = kind) -> Any:
            *parameters, loc = rest
            if kind == "ppf":
                return standard(x, *parameters) + loc
            return standard(x - loc, *parameters)

        found[kind] = _named(_function(signature, f"{name}.{kind}", inner), name, kind, title, signature, at)
    return SimpleNamespace(**dict(sorted(found.items())))
