"""torch.utils.data.datapipes.map: pipes of samples by index."""

from __future__ import annotations

import bisect
import copy
import itertools
from collections.abc import Callable
from typing import Any

from .datapipe import DataChunk, MapDataPipe, all_of, functional_datapipe

__all__ = ["Batcher", "Concater", "Mapper", "SequenceWrapper", "Zipper"]


class SequenceWrapper(MapDataPipe):
    """The samples of a sequence or a dictionary, of which it keeps a copy."""

    def __init__(self, sequence: Any, deepcopy: bool = True):
        self.sequence = copy.deepcopy(sequence) if deepcopy else sequence

    def __getitem__(self, index: Any) -> Any:
        return self.sequence[index]

    def __len__(self) -> int:
        return len(self.sequence)


@functional_datapipe("map")
class Mapper(MapDataPipe):
    """fn(sample)."""

    def __init__(self, datapipe: Any, fn: Callable[..., Any]):
        self.datapipe, self.fn = datapipe, fn

    def __getitem__(self, index: Any) -> Any:
        return self.fn(self.datapipe[index])

    def __len__(self) -> int:
        return len(self.datapipe)


@functional_datapipe("batch")
class Batcher(MapDataPipe):
    """Batches of samples that follow each other."""

    def __init__(
        self,
        datapipe: Any,
        batch_size: int,
        drop_last: bool = False,
        wrapper_class: Any = DataChunk,
    ):
        if batch_size <= 0:
            raise AssertionError("Batch size is required to be larger than 0!")
        self.datapipe, self.batch_size, self.drop_last = datapipe, batch_size, drop_last
        self.wrapper_class = wrapper_class

    def __getitem__(self, index: int) -> Any:
        first = index * self.batch_size
        last = min(first + self.batch_size, len(self.datapipe))
        if first >= last or (self.drop_last and last - first < self.batch_size):
            raise IndexError(f"Index {index} is out of bound.")
        return self.wrapper_class([self.datapipe[i] for i in range(first, last)])

    def __len__(self) -> int:
        count = len(self.datapipe)
        return count // self.batch_size if self.drop_last else -(-count // self.batch_size)


class _OfMany(MapDataPipe):
    """A pipe of several others."""

    def __init__(self, *datapipes: Any):
        self.datapipes = all_of(MapDataPipe, datapipes)


@functional_datapipe("concat")
class Concater(_OfMany):
    """The samples of one pipe behind those of another."""

    def __getitem__(self, index: int) -> Any:
        ends = list(itertools.accumulate(map(len, self.datapipes)))
        at = bisect.bisect_right(ends, index)
        if at == len(ends):
            raise IndexError(f"Index {index} is out of range.")
        return self.datapipes[at][index - (ends[at - 1] if at else 0)]

    def __len__(self) -> int:
        return sum(map(len, self.datapipes))


@functional_datapipe("zip")
class Zipper(_OfMany):
    """Tuples of a sample of each pipe."""

    def __getitem__(self, index: Any) -> Any:
        return tuple(each[index] for each in self.datapipes)

    def __len__(self) -> int:
        return min(map(len, self.datapipes))
