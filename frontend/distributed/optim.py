"""torch.distributed.optim: optimizers over several processes. None can be made yet."""

from __future__ import annotations

from . import _Absent

__all__ = ["DistributedOptimizer", "PostLocalSGDOptimizer", "ZeroRedundancyOptimizer"]


class ZeroRedundancyOptimizer(_Absent):
    """An optimizer whose states are spread over processes. None can be made."""


class PostLocalSGDOptimizer(_Absent):
    """An optimizer that averages parameters now and then. None can be made."""


class DistributedOptimizer(_Absent):
    """An optimizer of parameters on other machines. None can be made."""
