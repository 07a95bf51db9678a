"""Neural networks: functions, and modules that are frozen dataclasses and pytrees."""

from funcgrad.nn.functions import *  # noqa: F403
from funcgrad.nn.functions import __all__ as __all__
