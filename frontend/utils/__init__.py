"""torch.utils."""

import importlib
from typing import TYPE_CHECKING

from .. import paths
from . import _pytree as _pytree
from . import checkpoint as checkpoint
from . import data, dlpack, hooks
from .exchanging import set_module, swap_tensors

__all__ = ["checkpoint", "data", "dlpack", "hooks", "set_module", "swap_tensors"]

if not TYPE_CHECKING:
    _LATER = "benchmark collect_env model_zoo weak"

    def __getattr__(name: str) -> object:
        if name in _LATER.split():
            return importlib.import_module(f".{name}", __name__)
        return paths.found(__name__, name)
