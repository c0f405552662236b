"""torch.utils.data: datasets, samplers, and the loader that makes batches of them."""

import importlib
from typing import TYPE_CHECKING

from ... import paths
from . import dataloader as dataloader
from .collate import default_collate, default_convert
from .dataset import (
    ChainDataset,
    ConcatDataset,
    Dataset,
    IterableDataset,
    StackDataset,
    Subset,
    TensorDataset,
    random_split,
)
from .distributed import DistributedSampler
from .loader import DataLoader
from .sampler import (
    BatchSampler,
    RandomSampler,
    Sampler,
    SequentialSampler,
    SubsetRandomSampler,
    WeightedRandomSampler,
)
from .worker import WorkerInfo, get_worker_info

__all__ = [
    "BatchSampler",
    "ChainDataset",
    "ConcatDataset",
    "DataChunk",
    "DataLoader",
    "Dataset",
    "DistributedSampler",
    "IterDataPipe",
    "IterableDataset",
    "MapDataPipe",
    "RandomSampler",
    "Sampler",
    "SequentialSampler",
    "StackDataset",
    "Subset",
    "SubsetRandomSampler",
    "TensorDataset",
    "WeightedRandomSampler",
    "WorkerInfo",
    "default_collate",
    "default_convert",
    "functional_datapipe",
    "get_worker_info",
    "random_split",
]

if not TYPE_CHECKING:

    def __getattr__(name: str) -> object:
        if name == "datapipes":
            return importlib.import_module(".datapipes", __name__)
        if name in ("DataChunk", "IterDataPipe", "MapDataPipe", "functional_datapipe"):
            importlib.import_module(".datapipes", __name__)  # which registers their methods
            return getattr(importlib.import_module(".datapipes.datapipe", __name__), name)
        return paths.found(__name__, name)
