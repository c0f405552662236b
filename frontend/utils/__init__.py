"""torch.utils."""

from . import _pytree as _pytree
from . import checkpoint as checkpoint
from . import data, dlpack, hooks
from .exchanging import set_module, swap_tensors

__all__ = ["checkpoint", "data", "dlpack", "hooks", "set_module", "swap_tensors"]
