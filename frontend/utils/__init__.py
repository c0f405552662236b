"""torch.utils."""

import importlib
from typing import TYPE_CHECKING

from .. import paths
from . import _pytree as _pytree
from . import checkpoint as checkpoint
from . import data, dlpack, hooks
from .exchanging import set_module, swap_tensors

__all__ = [
    "ThroughputBenchmark",
    "checkpoint",
    "data",
    "dlpack",
    "generate_methods_for_privateuse1_backend",
    "hooks",
    "rename_privateuse1_backend",
    "set_module",
    "swap_tensors",
]

_LATER = (
    "_triton backend_registration benchmark collect_env deterministic model_zoo "
    "throughput_benchmark weak"
).split()
_HOMES = {
    "ThroughputBenchmark": "throughput_benchmark",
    "generate_methods_for_privateuse1_backend": "backend_registration",
    "rename_privateuse1_backend": "backend_registration",
}

if not TYPE_CHECKING:

    def __getattr__(name: str) -> object:
        if name in _HOMES:
            return getattr(importlib.import_module(f".{_HOMES[name]}", __name__), name)
        if name in _LATER:
            return importlib.import_module(f".{name}", __name__)
        return paths.found(__name__, name)
