"""torch.nn.parallel: a model on several devices, or in several processes.

There is one device and one process here. So DataParallel passes through, and
DistributedDataParallel asks for the process group that there can't be.
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
