"""torch.nn.parallel: a model on several devices, or in several processes.

A process computes on one device. So DataParallel passes through. DistributedDataParallel averages
the gradients of several processes.
"""

from .data_parallel import DataParallel, data_parallel, gather, parallel_apply, replicate, scatter
from .distributed import DistributedDataParallel

__all__ = [
    "DataParallel",
    "DistributedDataParallel",
    "data_parallel",
    "gather",
    "parallel_apply",
    "replicate",
    "scatter",
]
