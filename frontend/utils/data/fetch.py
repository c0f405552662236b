"""Reading of the samples of one batch, in this process or in a worker."""

from __future__ import annotations

import functools
import itertools
import operator
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from ...recording.threads import gives_way
from .collate import default_collate
from .dataset import IterableDataset, Subset, TensorDataset

if TYPE_CHECKING:
    from ...utils.data.dataset import Dataset

Fetch = Callable[[Any], Any]
"""fetch(indices) -> a batch. Raises StopIteration when an IterableDataset is at its end."""


def fetcher(
    dataset: Dataset[Any],
    collate_fn: Callable[[Any], Any],
    batched: bool,
    batch_size: int | None,
    drop_last: bool,
) -> Fetch:
    """A function that makes batches of `dataset` from lists of indices or, without `batched`, from
    single indices. An IterableDataset begins here, and gives its next samples."""
    if isinstance(dataset, IterableDataset):
        batches = _stream(iter(dataset), collate_fn, batch_size, drop_last)
        return gives_way(lambda _: next(batches))
    if not batched:
        return gives_way(lambda index: collate_fn(dataset[index]))
    take = _whole_batches(dataset) if collate_fn is default_collate else None
    if take is not None:
        return take
    if hasattr(dataset, "__getitems__"):
        return gives_way(lambda indices: collate_fn(dataset.__getitems__(indices)))
    sample = functools.partial(operator.getitem, dataset)
    return gives_way(lambda indices: collate_fn(list(map(sample, indices))))


@gives_way
def _stream(
    samples: Iterator[Any],
    collate_fn: Callable[[Any], Any],
    batch_size: int | None,
    drop_last: bool,
) -> Iterator[Any]:
    if batch_size is None:
        yield from map(collate_fn, samples)
        return
    while batch := list(itertools.islice(samples, batch_size)):
        if len(batch) < batch_size and drop_last:
            return
        yield collate_fn(batch)


def _whole_batches(dataset: Any) -> Callable[[list[int]], list[Any]] | None:
    """A function that reads a whole batch at once, for datasets without overridden methods."""
    if type(dataset) is TensorDataset:
        return dataset.batch
    if type(dataset) is Subset:
        inner = _whole_batches(dataset.dataset)
        if inner is not None:
            indices = dataset.indices
            return lambda places: inner([indices[i] for i in places])
    return None
