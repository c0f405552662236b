"""DataLoader: batches of a dataset."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from tilewright.ir.location import at_user_line

from .collate import default_collate, default_convert
from .dataset import IterableDataset
from .fetch import _DatasetKind
from .iterators import (
    _BaseDataLoaderIter,
    _MultiProcessingDataLoaderIter,
    _SingleProcessDataLoaderIter,
)
from .sampler import BatchSampler, RandomSampler, SequentialSampler, _InfiniteConstantSampler

if TYPE_CHECKING:
    from multiprocessing.context import BaseContext

    from ...functions.generator import Generator
    from ...utils.data.dataset import Dataset
    from ...utils.data.sampler import Sampler


T = TypeVar("T", covariant=True)

_FIXED = (
    "batch_size", "batch_sampler", "sampler", "drop_last", "dataset", "persistent_workers"
)  # fmt: skip


class DataLoader(Generic[T]):
    """Iterates over batches of `dataset`.

    batch_size: samples per batch; None yields single samples. shuffle: a new random order each
    time. sampler, batch_sampler: the order of indices, or of lists of indices. collate_fn: makes a
    batch from a list of samples. drop_last: leave out a last batch that is not full. generator: the
    source of the shuffling and of the workers' seeds.

    num_workers: the number of processes that load batches; with 0 this process loads them. Each
    worker has `prefetch_factor` batches under way (2 by default). worker_init_fn(id) is called in
    each worker. persistent_workers keeps workers for the next epoch. timeout: seconds to wait for a
    batch, 0 to wait without limit. in_order: batches come in the order of the sampler.
    multiprocessing_context: the way workers start, as a name (fork, spawn, forkserver) or a
    context. pin_memory: whether batches come in pinned memory, which a GPU copies from by itself.
    """

    multiprocessing_context: Any  # None without workers
    __initialized = False  # PyTorch's name: packages clear it to set a sampler later (timm)

    def check_worker_number_rationality(self) -> None:
        """Warn if there are more workers than processors."""
        count = os.cpu_count()
        if hasattr(os, "sched_getaffinity"):
            count = len(os.sched_getaffinity(0))
        if count is not None and self.num_workers > count:
            warnings.warn(
                f"This DataLoader will create {self.num_workers} worker processes in total. Our "
                f"suggested max number of worker in current system is {count}, which is smaller "
                "than what this DataLoader is going to create. Please be aware that excessive "
                "worker creation might get DataLoader running slow or even freeze, lower the "
                "worker number to avoid potential slowness/freeze if necessary.",
                stacklevel=2,
            )

    def __init__(
        self,
        dataset: Dataset[T],
        batch_size: int | None = 1,
        shuffle: bool | None = None,
        sampler: Sampler[Any] | Iterable[Any] | None = None,
        batch_sampler: Sampler[Sequence[Any]] | Iterable[Sequence[Any]] | None = None,
        num_workers: int = 0,
        collate_fn: Callable[[list[Any]], Any] | None = None,
        pin_memory: bool = False,
        drop_last: bool = False,
        timeout: float = 0,
        worker_init_fn: Callable[[int], None] | None = None,
        multiprocessing_context: str | BaseContext | None = None,
        generator: Generator | None = None,
        *,
        prefetch_factor: int | None = None,
        persistent_workers: bool = False,
        pin_memory_device: str = "",
        in_order: bool = True,
    ) -> None:
        if num_workers < 0:
            raise ValueError(
                "num_workers option should be non-negative; use num_workers=0 to disable "
                "multiprocessing."
            )
        if timeout < 0:
            raise ValueError("timeout option should be non-negative")
        if num_workers == 0 and prefetch_factor is not None:
            raise ValueError(
                "prefetch_factor option could only be specified in multiprocessing.let num_workers "
                "> 0 to enable multiprocessing, otherwise set prefetch_factor to None."
            )
        if prefetch_factor is not None and prefetch_factor < 1:
            raise ValueError("prefetch_factor option should be positive")
        if persistent_workers and num_workers == 0:
            raise ValueError("persistent_workers option needs num_workers > 0")
        self.dataset: Any = dataset
        self.num_workers = num_workers
        self.pin_memory = pin_memory
        self.timeout = timeout
        self.worker_init_fn = worker_init_fn
        self.generator = generator
        self.prefetch_factor: Any = (
            2 if num_workers and prefetch_factor is None else prefetch_factor
        )
        self.persistent_workers = persistent_workers
        self.multiprocessing_context = _context(multiprocessing_context, num_workers)
        self.in_order = in_order
        iterable = isinstance(dataset, IterableDataset)
        self._dataset_kind = _DatasetKind.Iterable if iterable else _DatasetKind.Map
        if iterable:
            if shuffle:
                raise ValueError(
                    "DataLoader with IterableDataset: expected unspecified shuffle option, but got "
                    f"shuffle={shuffle}{at_user_line()}"
                )
            if sampler is not None or batch_sampler is not None:
                raise ValueError(
                    "DataLoader with IterableDataset: expected unspecified sampler and "
                    f"batch_sampler options{at_user_line()}"
                )
        if sampler is not None and shuffle:
            raise ValueError(f"sampler option is mutually exclusive with shuffle{at_user_line()}")
        if batch_sampler is not None:
            if batch_size != 1 or shuffle or sampler is not None or drop_last:
                raise ValueError(
                    "batch_sampler option is mutually exclusive with batch_size, shuffle, sampler, "
                    f"and drop_last{at_user_line()}"
                )
            batch_size, drop_last = None, False
        elif batch_size is None and drop_last:
            raise ValueError(
                "batch_size=None option disables auto-batching and is mutually exclusive with "
                f"drop_last{at_user_line()}"
            )
        if sampler is None:
            if iterable:
                sampler = _InfiniteConstantSampler()
            elif shuffle:
                sampler = RandomSampler(dataset, generator=generator)  # type: ignore[arg-type]
            else:
                sampler = SequentialSampler(dataset)  # type: ignore[arg-type]
        if batch_size is not None and batch_sampler is None:
            batch_sampler = BatchSampler(sampler, batch_size, drop_last)  # type: ignore[arg-type]
        self.batch_size = batch_size
        self.drop_last = drop_last
        self.sampler: Any = sampler
        self.batch_sampler: Any = batch_sampler
        if collate_fn is None:
            collate_fn = default_convert if batch_sampler is None else default_collate
        self.collate_fn = collate_fn
        self._iterator: _BaseDataLoaderIter | None = None  # the one whose workers persist
        self.__initialized = True

    def __setattr__(self, name: str, value: Any) -> None:
        if name in _FIXED and self.__initialized:
            raise ValueError(
                f"{name} attribute should not be set after {type(self).__name__} is initialized"
                + at_user_line()
            )
        super().__setattr__(name, value)

    @property
    def _auto_collation(self) -> bool:
        return self.batch_sampler is not None

    @property
    def _index_sampler(self) -> Any:
        """What gives the indices of each batch."""
        return self.batch_sampler if self._auto_collation else self.sampler

    def __iter__(self) -> _BaseDataLoaderIter:
        if not (self.persistent_workers and self.num_workers):
            return self._get_iterator()
        before = self._iterator
        if isinstance(before, _MultiProcessingDataLoaderIter) and not before._workers.is_closed:
            before._reset(self)
            return before
        made = self._iterator = self._get_iterator()
        return made

    def _get_iterator(self) -> _BaseDataLoaderIter:
        if not self.num_workers:
            return _SingleProcessDataLoaderIter(self)
        return _MultiProcessingDataLoaderIter(self)

    def __len__(self) -> int:
        if isinstance(self.dataset, IterableDataset):
            total = len(self.dataset)  # type: ignore[arg-type]
            if self.batch_size is None:
                return total
            whole, rest = divmod(total, self.batch_size)
            return whole + (rest > 0 and not self.drop_last)
        return len(self._index_sampler)


def _context(given: Any, workers: int) -> Any:
    """The context in which workers start; None without workers."""
    import multiprocessing

    if given is not None and not workers:
        raise ValueError(
            "multiprocessing_context can only be used with multi-process loading (num_workers > "
            f"0), but got num_workers={workers}"
        )
    if isinstance(given, str):
        valid = multiprocessing.get_all_start_methods()
        if given not in valid:
            raise ValueError(
                "multiprocessing_context option should specify a valid start method in "
                f"{valid!r}, but got multiprocessing_context={given!r}"
            )
        return multiprocessing.get_context(given)
    if given is None and workers:
        return multiprocessing.get_context()
    if given is not None and not isinstance(given, multiprocessing.context.BaseContext):
        raise TypeError(
            "multiprocessing_context option should be a valid context object or a string "
            f"specifying the start method, but got multiprocessing_context={given}"
        )
    return given
