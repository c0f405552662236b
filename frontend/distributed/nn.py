"""torch.distributed.nn: collective operations with gradients. There is no group to call them on."""

from __future__ import annotations

from . import ReduceOp, _uninitialized, group

__all__ = [
    "ReduceOp",
    "all_gather",
    "all_reduce",
    "all_to_all",
    "all_to_all_single",
    "broadcast",
    "gather",
    "group",
    "reduce",
    "reduce_scatter",
    "scatter",
]

all_gather, all_reduce = _uninitialized("nn.all_gather"), _uninitialized("nn.all_reduce")
all_to_all, broadcast = _uninitialized("nn.all_to_all"), _uninitialized("nn.broadcast")
all_to_all_single = _uninitialized("nn.all_to_all_single")
gather, scatter = _uninitialized("nn.gather"), _uninitialized("nn.scatter")
reduce, reduce_scatter = _uninitialized("nn.reduce"), _uninitialized("nn.reduce_scatter")
