"""Reading of the samples of one batch, in this process or in a worker."""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from ...recording.threads import gives_way
from .collate import default_collate
from .dataset import Subset, TensorDataset

Fetch = Callable[[Any], Any]
"""fetch(indices) -> a batch. Raises StopIteration when an iterable dataset is at its end."""


class _DatasetKind:
    """How a loader asks its dataset: by index, or for an iterator."""

    Map, Iterable = 0, 1


def fetcher(
    kind: int,
    dataset: Any,
    batched: bool,
    collate_fn: Callable[[Any], Any],
    drop_last: bool,
) -> Fetch:
    """A function that makes batches of `dataset` from lists of indices or, without `batched`, from
    single indices. An iterable dataset begins here, and gives a sample for each index."""
    if kind == _DatasetKind.Iterable:
        return _stream(iter(dataset), batched, collate_fn, drop_last)
    if not batched:
        return gives_way(lambda index: collate_fn(dataset[index]))
    take = _whole_batches(dataset) if collate_fn is default_collate else None
    if take is not None:
        return take
    if hasattr(dataset, "__getitems__"):
        return gives_way(lambda indices: collate_fn(dataset.__getitems__(indices)))
    sample = functools.partial(operator.getitem, dataset)
    return gives_way(lambda indices: collate_fn(list(map(sample, indices))))


def _stream(
    samples: Iterator[Any], batched: bool, collate_fn: Callable[[Any], Any], drop_last: bool
) -> Fetch:
    if not batched:
        return gives_way(lambda _: collate_fn(next(samples)))
    ended = False

    @gives_way
    def take(indices: Iterable[Any]) -> Any:
        nonlocal ended
        if ended:
            raise StopIteration
        batch = []
        for _ in indices:  # `iter(samples)`, which islice calls, restarts some iterators
            try:
                batch.append(next(samples))
            except StopIteration:
                ended = True
                break
        if not batch or (ended and drop_last):
            raise StopIteration
        return collate_fn(batch)

    return take


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
