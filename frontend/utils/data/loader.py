"""DataLoader: batches of a dataset."""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Callable, Iterator
from typing import Any

from tilewright.ir.location import at_user_line

from .collate import default_collate, default_convert
from .dataset import IterableDataset, Subset, TensorDataset
from .sampler import BatchSampler, RandomSampler, SequentialSampler

_warned = False


def get_worker_info() -> None:
    """Which worker runs the dataset: none, samples are loaded in the main process."""
    return None


def _warn_of_workers(count: int) -> None:
    global _warned
    if count and not _warned:
        _warned = True
        warnings.warn(
            f"DataLoader: num_workers={count} was asked for, but worker processes are not "
            "implemented yet; samples are loaded in the main process",
            stacklevel=3,
        )


class DataLoader:
    """Iterates over batches of `dataset`.

    batch_size: samples a batch; None yields single samples. shuffle: a new random order each time.
    sampler, batch_sampler: the order of indices, or of lists of them. collate_fn: makes a batch of
    a list of samples. drop_last: leave out a last batch that is not full. generator: what the
    shuffling draws from. num_workers: workers come later; samples are loaded in this process.
    """

    def __init__(
        self,
        dataset: Any,
        batch_size: int | None = 1,
        shuffle: bool | None = None,
        sampler: Any = None,
        batch_sampler: Any = None,
        num_workers: int = 0,
        collate_fn: Callable[[list[Any]], Any] | None = None,
        pin_memory: bool = False,
        drop_last: bool = False,
        timeout: float = 0,
        worker_init_fn: Callable[[int], None] | None = None,
        multiprocessing_context: Any = None,
        generator: Any = None,
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
        if persistent_workers and num_workers == 0:
            raise ValueError("persistent_workers option needs num_workers > 0")
        _warn_of_workers(num_workers)
        self.dataset = dataset
        self.num_workers = num_workers
        self.pin_memory = pin_memory
        self.timeout = timeout
        self.worker_init_fn = worker_init_fn
        self.generator = generator
        self.prefetch_factor = prefetch_factor
        self.persistent_workers = persistent_workers
        self.multiprocessing_context = multiprocessing_context
        iterable = isinstance(dataset, IterableDataset)
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
        if sampler is None and not iterable:
            if shuffle:
                sampler = RandomSampler(dataset, generator=generator)
            else:
                sampler = SequentialSampler(dataset)
        if batch_size is not None and batch_sampler is None and not iterable:
            batch_sampler = BatchSampler(sampler, batch_size, drop_last)
        if (
            iterable
            and batch_size is not None
            and (not isinstance(batch_size, int) or batch_size <= 0)
        ):
            raise ValueError(
                f"batch_size should be a positive integer value, but got batch_size={batch_size}"
            )
        self.batch_size = batch_size
        self.drop_last = drop_last
        self.sampler = sampler
        self.batch_sampler = batch_sampler
        if collate_fn is None:
            batched = batch_sampler is not None or (iterable and batch_size is not None)
            collate_fn = default_collate if batched else default_convert
        self.collate_fn = collate_fn

    def __iter__(self) -> Iterator[Any]:
        if isinstance(self.dataset, IterableDataset):
            return self._stream()
        if self.batch_sampler is None:
            return (self.collate_fn(self.dataset[i]) for i in self.sampler)
        return self._batches()

    def _batches(self) -> Iterator[Any]:
        dataset, collate = self.dataset, self.collate_fn
        take = _whole_batches(dataset) if collate is default_collate else None
        for indices in self.batch_sampler:
            if take is not None:
                yield take(indices)
            elif hasattr(dataset, "__getitems__"):
                yield collate(dataset.__getitems__(indices))
            else:
                yield collate([dataset[i] for i in indices])

    def _stream(self) -> Iterator[Any]:
        samples = iter(self.dataset)
        if self.batch_size is None:
            yield from map(self.collate_fn, samples)
            return
        while batch := list(itertools.islice(samples, self.batch_size)):
            if len(batch) < self.batch_size and self.drop_last:
                return
            yield self.collate_fn(batch)

    def __len__(self) -> int:
        if isinstance(self.dataset, IterableDataset):
            total = len(self.dataset)  # type: ignore[arg-type]
            if self.batch_size is None:
                return total
            whole, rest = divmod(total, self.batch_size)
            return whole + (rest > 0 and not self.drop_last)
        return len(self.sampler if self.batch_sampler is None else self.batch_sampler)


def _whole_batches(dataset: Any) -> Callable[[list[int]], list[Any]] | None:
    """How to take a whole batch at once, for datasets of which nothing is overridden."""
    if type(dataset) is TensorDataset:
        return dataset.batch
    if type(dataset) is Subset:
        inner = _whole_batches(dataset.dataset)
        if inner is not None:
            indices = dataset.indices
            return lambda places: inner([indices[i] for i in places])
    return None
