"""What a program runs on, under JAX's names: devices of one process, types of values, versions."""

from __future__ import annotations

import importlib.metadata
import platform
from typing import Any

import numpy as np

from funcgrad.array import as_value
from funcgrad.ir import Aval
from funcgrad.runtime import device as _device
from funcgrad.runtime.device import Device

__all__ = [
    "default_backend",
    "device_count",
    "effects_barrier",
    "local_device_count",
    "local_devices",
    "print_environment_info",
    "process_count",
    "process_index",
    "typeof",
]


def default_backend() -> str:
    """Return the platform of the default device: "cpu", "numpy" or "vulkan".

    >>> fg.default_backend() in ("cpu", "numpy", "vulkan")
    True
    """
    return _device.default().name.partition(":")[0]


def local_devices(backend: str | None = None) -> list[Device]:
    """Return the devices of a platform, by default the default device's, in this process.

    >>> len(fg.local_devices("numpy"))
    1
    """
    return _device.devices(backend or default_backend())


def local_device_count(backend: str | None = None) -> int:
    """Return how many devices of a platform this process has.

    >>> fg.local_device_count("numpy")
    1
    """
    return len(local_devices(backend))


device_count = local_device_count


def process_index() -> int:
    """Return 0: a program here is one process.

    >>> fg.process_index()
    0
    """
    return 0


def process_count() -> int:
    """Return 1: a program here is one process.

    >>> fg.process_count()
    1
    """
    return 1


def typeof(x: Any) -> Aval:
    """Return the shape and dtype of a value.

    >>> fg.typeof(fnp.ones((2, 3)))
    f32[2,3]
    """
    return as_value(x).aval  # type: ignore[no-any-return]


def effects_barrier() -> None:
    """Return at once: callbacks have run when the call that contains them returns.

    >>> fg.effects_barrier()
    """


def print_environment_info(return_string: bool = False) -> str | None:
    """Print, or return, the versions and devices that a report of a fault should name.

    >>> "numpy:" in fg.print_environment_info(return_string=True)
    True
    """
    lines = [
        f"funcgrad: {importlib.metadata.version('funcgrad') if _installed() else 'from a source tree'}",
        f"numpy: {np.__version__}",
        f"python: {platform.python_version()}",
        f"system: {platform.platform()}",
        f"devices: {', '.join(d.name for d in _device.devices())}",
    ]
    text = "\n".join(lines)
    if return_string:
        return text
    print(text)
    return None


def _installed() -> bool:
    try:
        importlib.metadata.version("funcgrad")
    except importlib.metadata.PackageNotFoundError:
        return False
    return True
