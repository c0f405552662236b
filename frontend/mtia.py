"""torch.mtia: Meta's accelerators, for which there are no kernels here."""

from .backends.foreign import *  # noqa: F403
from .backends.foreign import refusing

__getattr__ = refusing("mtia")
