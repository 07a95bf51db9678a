"""Files: ``save`` and ``load`` trees of arrays as safetensors and GGUF."""

from funcgrad.io.atomic import write_atomically
from funcgrad.io.files import TensorInfo, inspect, load, metadata, save
from funcgrad.io.names import dotted

__all__ = ["TensorInfo", "dotted", "inspect", "load", "metadata", "save", "write_atomically"]
