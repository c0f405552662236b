"""torch.utils."""

from . import _pytree as _pytree
from . import checkpoint as checkpoint
from . import data, dlpack, hooks

__all__ = ["checkpoint", "data", "dlpack", "hooks"]
