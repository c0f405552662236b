"""torch.distributed.optim: optimizers over several processes. None can be made yet."""

from __future__ import annotations

from . import ProcessGroup

__all__ = ["DistributedOptimizer", "PostLocalSGDOptimizer", "ZeroRedundancyOptimizer"]


class ZeroRedundancyOptimizer(ProcessGroup):
    """An optimizer whose states are spread over processes. None can be made."""


class PostLocalSGDOptimizer(ProcessGroup):
    """An optimizer that averages parameters now and then. None can be made."""


class DistributedOptimizer(ProcessGroup):
    """An optimizer of parameters on other machines. None can be made."""
