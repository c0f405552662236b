"""torch.mtia: Meta's accelerators, for which there are no kernels here."""

from .foreign import *  # noqa: F403
from .foreign import refusing

__getattr__ = refusing("mtia")
