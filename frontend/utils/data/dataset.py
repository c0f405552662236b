"""Datasets."""

from __future__ import annotations

import bisect
import itertools
import math
import warnings
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import numpy as np

from tilewright.ir.location import at_user_line

from ...functions import from_data, sampling
from ...recording.threads import gives_way

if TYPE_CHECKING:
    from ..._tensor import Tensor
    from ...functions.generator import Generator

T = TypeVar("T", covariant=True)


class Dataset(Generic[T]):
    """Samples by index: subclasses define `__getitem__` and usually `__len__`."""

    def __getitem__(self, index: Any) -> T:
        raise NotImplementedError("Subclasses of Dataset should implement __getitem__.")

    def __add__(self, other: Dataset[T]) -> ConcatDataset[T]:
        return ConcatDataset([self, other])


class IterableDataset(Dataset[T]):
    """Samples one after another: subclasses define `__iter__`."""

    def __iter__(self) -> Iterator[T]:
        raise NotImplementedError("Subclasses of IterableDataset should implement __iter__.")

    def __add__(self, other: Dataset[Any]) -> Any:
        return ChainDataset([self, other])


def rows(tensor: Tensor, index: Any) -> Tensor:
    """tensor[index], computed at once if the tensor's values are at hand.

    A recorded tensor[index] would hold the index in its graph, so each index would be a new graph.
    """
    if tensor.requires_grad or tensor._typed()[2] != "cpu" or tensor.dim() == 0:
        return tensor[index]
    array = tensor._array()
    picked = array[index]
    return from_data.from_buffer(np.array(picked, copy=True, order="C"), tensor.dtype)


class TensorDataset(Dataset["tuple[Tensor, ...]"]):
    """Sample i is the tuple of the i-th rows of some tensors."""

    tensors: tuple[Tensor, ...]

    def __init__(self, *tensors: Tensor) -> None:
        if any(t.shape[0] != tensors[0].shape[0] for t in tensors):
            raise AssertionError(
                "Size mismatch between tensors: their first dimensions are "
                f"{[t.shape[0] for t in tensors]}{at_user_line()}"
            )
        self.tensors = tensors

    def __getitem__(self, index: Any) -> tuple[Tensor, ...]:
        if isinstance(index, (int, np.integer)):
            size = len(self)
            if not -size <= index < size:
                raise IndexError(f"index {index} is out of bounds for a dataset of {size} samples")
            return tuple(rows(t, int(index)) for t in self.tensors)
        return tuple(t[index] for t in self.tensors)

    def __getitems__(self, indices: Sequence[int]) -> list[tuple[Tensor, ...]]:
        return [self[i] for i in indices]

    def batch(self, indices: Sequence[int]) -> list[Tensor]:
        """The batch that default_collate makes of these samples, read all at once."""
        return [rows(t, np.asarray(indices, dtype=np.int64)) for t in self.tensors]

    def __len__(self) -> int:
        return self.tensors[0].shape[0]


def _samples(dataset: Any, indices: list[int]) -> Any:
    together = getattr(dataset, "__getitems__", None)
    if not callable(together):
        return [dataset[i] for i in indices]
    found = together(indices)
    if len(found) != len(indices):
        raise ValueError(
            "Nested dataset's output size mismatch. "
            f"Expected {len(indices)}, got {len(found)}{at_user_line()}"
        )
    return found


class StackDataset(Dataset[Any]):
    """Sample i is the tuple (or dict) of the i-th samples of some datasets."""

    def __init__(self, *args: Any, **named: Any) -> None:
        if bool(args) == bool(named):
            raise ValueError(
                "StackDataset takes datasets as arguments or by name, and at least one"
            )
        self.datasets: Any = named or args
        lengths = {len(d) for d in (named.values() if named else args)}
        if len(lengths) != 1:
            raise ValueError("Size mismatch between datasets")
        (self._length,) = lengths

    def __getitem__(self, index: int) -> Any:
        if isinstance(self.datasets, dict):
            return {name: d[index] for name, d in self.datasets.items()}
        return tuple(d[index] for d in self.datasets)

    def __getitems__(self, indices: list[int]) -> list[Any]:
        """The samples at several places, which each dataset reads at once if it can."""
        if isinstance(self.datasets, dict):
            columns = [_samples(d, indices) for d in self.datasets.values()]
            return [dict(zip(self.datasets, row)) for row in zip(*columns, strict=True)]
        return list(zip(*(_samples(d, indices) for d in self.datasets), strict=True))

    def __len__(self) -> int:
        return self._length


class ConcatDataset(Dataset[T]):
    """Datasets one after another."""

    def __init__(self, datasets: Iterable[Dataset[T]]) -> None:
        self.datasets = list(datasets)
        if not self.datasets:
            raise AssertionError("datasets should not be an empty iterable")
        if any(isinstance(d, IterableDataset) for d in self.datasets):
            raise AssertionError("ConcatDataset does not support IterableDataset")
        self.cumulative_sizes = self.cumsum(self.datasets)

    @staticmethod
    def cumsum(sequence: Iterable[Any]) -> list[int]:
        """The number of samples up to the end of each dataset."""
        return list(itertools.accumulate(len(d) for d in sequence))

    @property
    def cummulative_sizes(self) -> list[int]:
        """Deprecated: `cumulative_sizes`."""
        warnings.warn(
            "cummulative_sizes attribute is renamed to cumulative_sizes",
            DeprecationWarning,
            stacklevel=2,
        )
        return self.cumulative_sizes

    def __len__(self) -> int:
        return self.cumulative_sizes[-1]

    def __getitem__(self, index: int) -> T:
        if index < 0:
            if -index > len(self):
                raise ValueError("absolute value of index should not exceed dataset length")
            index += len(self)
        which = bisect.bisect_right(self.cumulative_sizes, index)
        if which == len(self.datasets):
            raise IndexError(f"index {index} is out of bounds for a dataset of {len(self)} samples")
        start = self.cumulative_sizes[which - 1] if which else 0
        return self.datasets[which][index - start]


class ChainDataset(IterableDataset[Any]):
    """Iterable datasets one after another."""

    def __init__(self, datasets: Iterable[Dataset[Any]]) -> None:
        self.datasets = datasets

    def __iter__(self) -> Iterator[Any]:
        for d in self.datasets:
            yield from d  # type: ignore[misc]

    def __len__(self) -> int:
        return sum(map(len, self.datasets))  # type: ignore[arg-type]


class Subset(Dataset[T]):
    """The samples of a dataset at the given indices."""

    def __init__(self, dataset: Dataset[T], indices: Sequence[int]) -> None:
        self.dataset = dataset
        self.indices = indices

    @gives_way
    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, list):
            return self.dataset[[self.indices[i] for i in index]]  # type: ignore[index]
        return self.dataset[self.indices[index]]

    def __getitems__(self, indices: list[int]) -> list[T]:
        """The samples at several places, which the dataset reads at once if it can."""
        places = [self.indices[i] for i in indices]
        return _samples(self.dataset, places)  # type: ignore[no-any-return]

    def __len__(self) -> int:
        return len(self.indices)


def random_split(
    dataset: Dataset[T], lengths: Sequence[int | float], generator: Generator | None = None
) -> list[Subset[T]]:
    """Disjoint random subsets of the given lengths, or of the given fractions of the whole."""
    total = len(dataset)  # type: ignore[arg-type]
    if math.isclose(sum(lengths), 1) and sum(lengths) <= 1:
        if any(not 0 <= f <= 1 for f in lengths):
            raise ValueError(f"fractions must lie between 0 and 1, got {list(lengths)}")
        sizes = [math.floor(total * f) for f in lengths]
        for i in range(total - sum(sizes)):
            sizes[i % len(sizes)] += 1
    else:
        sizes = [int(n) for n in lengths]
    if sum(sizes) != total:
        raise ValueError(
            "Sum of input lengths does not equal the length of the input dataset! "
            f"{sum(sizes)} != {total}{at_user_line()}"
        )
    order = sampling.randperm(total, generator=generator).tolist()
    ends = list(itertools.accumulate(sizes))
    return [Subset(dataset, order[end - n : end]) for end, n in zip(ends, sizes, strict=True)]
