"""torch.utils.data.dataloader: the loader by PyTorch's path."""

from collections.abc import Callable
from typing import Any

from .collate import default_collate, default_convert
from .dataset import Dataset as Dataset
from .dataset import IterableDataset as IterableDataset
from .fetch import _DatasetKind as _DatasetKind
from .iterators import _BaseDataLoaderIter as _BaseDataLoaderIter
from .iterators import _MultiProcessingDataLoaderIter as _MultiProcessingDataLoaderIter
from .iterators import _SingleProcessDataLoaderIter as _SingleProcessDataLoaderIter
from .loader import DataLoader
from .sampler import BatchSampler as BatchSampler
from .sampler import RandomSampler as RandomSampler
from .sampler import Sampler as Sampler
from .sampler import SequentialSampler as SequentialSampler
from .sampler import _InfiniteConstantSampler as _InfiniteConstantSampler
from .worker import get_worker_info

_collate_fn_t = Callable[[list[Any]], Any]  # packages annotate with it

__all__ = ["DataLoader", "default_collate", "default_convert", "get_worker_info"]
