"""torch.backends.quantized: which engine's rules quantized layers follow.

All of PyTorch's engines compute the same exact sums of 8 bit numbers, and so do the layers here.
The engine can be chosen and read, and changes no result.
"""

from __future__ import annotations

import sys
from types import ModuleType

_ENGINES = ("qnnpack", "onednn", "x86", "fbgemm")
_chosen = "x86"


class _Engines(ModuleType):
    """engine: the name of the engine; supported_engines: those that can be chosen."""

    @property
    def engine(self) -> str:
        return _chosen

    @engine.setter
    def engine(self, name: str) -> None:
        global _chosen
        if name in ("none", "", None):
            raise RuntimeError("quantized engine NoQEngine is not supported")
        if name not in _ENGINES:
            raise RuntimeError(f"{name} is not a valid value for quantized engine")
        _chosen = name

    @property
    def supported_engines(self) -> list[str]:
        return list(_ENGINES)

    @supported_engines.setter
    def supported_engines(self, _: list[str]) -> None:
        raise RuntimeError("Assignment not supported")


sys.modules[__name__].__class__ = _Engines
