"""What belongs to ``checkpoint``, under the names of ``jax.ad_checkpoint``.

>>> from funcgrad.ad_checkpoint import checkpoint_name, print_saved_residuals
>>> print_saved_residuals(lambda x: checkpoint_name(fnp.sin(x), "wave"), 1.0)
f32[]                       4 bytes  cos at ...
1 values, 4 bytes
"""

from funcgrad.debug import print_saved_residuals
from funcgrad.transforms import checkpoint, checkpoint_name, remat
from funcgrad.transforms import checkpoint_policies as checkpoint_policies

__all__ = ["checkpoint", "checkpoint_name", "print_saved_residuals", "remat"]
