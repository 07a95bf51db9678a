"""Libraries that funcgrad can use and does not need."""

from __future__ import annotations

import functools
import importlib
from io import BytesIO
from typing import Any

from funcgrad.errors import message

__all__ = ["new_figure", "optional_module", "picture"]


def optional_module(name: str, what: str) -> Any:
    """Return a module; ImportError says how to get it.

    >>> optional_module("json", "example").dumps([1])
    '[1]'
    """
    try:
        return importlib.import_module(name)
    except ImportError:
        package = name.partition(".")[0]
        raise ImportError(message(what, f"{package} is required", "none", f"pip install {package}")) from None


def new_figure(what: str, width: float, height: float) -> Any:
    """Return an empty figure of matplotlib's, in inches; ImportError says how to get matplotlib.

    A notebook shows it as a picture also when pyplot, which would see to that, was never imported.
    """
    figure = optional_module("matplotlib.figure", what).Figure(figsize=(width, height), layout="constrained")
    figure._repr_png_ = functools.partial(picture, figure)
    return figure


def picture(figure: Any) -> bytes:
    """Return a figure as a PNG file."""
    png = BytesIO()
    figure.savefig(png, format="png", dpi=90)
    return png.getvalue()
