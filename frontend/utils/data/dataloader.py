"""torch.utils.data.dataloader: the loader by PyTorch's path."""

from .collate import default_collate, default_convert
from .dataset import Dataset as Dataset
from .dataset import IterableDataset as IterableDataset
from .loader import DataLoader
from .loader import _DatasetKind as _DatasetKind
from .sampler import BatchSampler as BatchSampler
from .sampler import RandomSampler as RandomSampler
from .sampler import Sampler as Sampler
from .sampler import SequentialSampler as SequentialSampler
from .worker import get_worker_info

__all__ = ["DataLoader", "default_collate", "default_convert", "get_worker_info"]


class _BaseDataLoaderIter:
    """PyTorch's class of a loader's iterators. Here they are plain ones, none of this class."""


class _SingleProcessDataLoaderIter(_BaseDataLoaderIter):
    pass


class _MultiProcessingDataLoaderIter(_BaseDataLoaderIter):
    pass
