"""Files: ``save`` and ``load`` trees of arrays as safetensors and GGUF."""

from funcgrad.io.atomic import remove_leftovers, write_atomically
from funcgrad.io.files import TensorInfo, inspect, load, metadata, save
from funcgrad.io.names import dotted

__all__ = ["TensorInfo", "dotted", "inspect", "load", "metadata", "remove_leftovers", "save", "write_atomically"]
