"""torch.utils.data.datapipes.iter: pipes that give one sample after another."""

from __future__ import annotations

import contextlib
import copy
import random
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from ....functions import generator
from ..collate import default_collate
from .datapipe import DataChunk, IterDataPipe, all_of, functional_datapipe

__all__ = [
    "Batcher", "Collator", "Concater", "Filter", "IterableWrapper", "Mapper", "Multiplexer",
    "Shuffler", "UnBatcher", "Zipper",
]  # fmt: skip


class IterableWrapper(IterDataPipe):
    """The samples of an iterable, of which each pass reads a copy."""

    def __init__(self, iterable: Iterable[Any], deepcopy: bool = True):
        self.iterable, self.deepcopy = iterable, deepcopy

    def __iter__(self) -> Iterator[Any]:
        source = self.iterable
        if self.deepcopy:
            with contextlib.suppress(TypeError):  # such as a generator
                source = copy.deepcopy(source)
        yield from source

    def __len__(self) -> int:
        return len(self.iterable)  # type: ignore[arg-type]


class _Of(IterDataPipe):
    """A pipe of another one, with as many samples."""

    def __init__(self, datapipe: Any):
        self.datapipe = datapipe

    def __len__(self) -> int:
        return len(self.datapipe)


def _picked(sample: Any, column: Any) -> Any:
    """The parts of a sample to which a function is applied, as a tuple of arguments."""
    if column is None:
        return (sample,)
    columns = column if isinstance(column, (list, tuple)) else (column,)
    return tuple(sample[c] for c in columns)


@functional_datapipe("map")
class Mapper(_Of):
    """fn(sample), or of its columns `input_col`; the result replaces or extends them, or goes to
    `output_col`."""

    def __init__(
        self, datapipe: Any, fn: Callable[..., Any], input_col: Any = None, output_col: Any = None
    ):
        super().__init__(datapipe)
        if input_col is None and output_col is not None:
            raise ValueError("`output_col` must be None when `input_col` is None.")
        if isinstance(output_col, (list, tuple)):
            if len(output_col) != 1:
                raise ValueError("`output_col` must be a single-element list or tuple")
            (output_col,) = output_col
        self.fn, self.input_col, self.output_col = fn, input_col, output_col

    def __iter__(self) -> Iterator[Any]:
        for sample in self.datapipe:
            made = self.fn(*_picked(sample, self.input_col))
            yield made if self.input_col is None else self._with(sample, made)

    def _with(self, sample: Any, made: Any) -> Any:
        place = self.output_col
        was_tuple = isinstance(sample, tuple)
        changed = list(sample) if was_tuple else copy.copy(sample)
        if place is None:
            many = isinstance(self.input_col, (list, tuple))
            place = self.input_col[0] if many else self.input_col
            changed[place] = made
            for rest in sorted(self.input_col[1:], reverse=True) if many else ():
                del changed[rest]
        elif place == -1:
            changed.append(made)
        else:
            changed[place] = made
        return tuple(changed) if was_tuple else changed


@functional_datapipe("filter")
class Filter(IterDataPipe):
    """The samples for which filter_fn(sample), or of its columns, holds."""

    def __init__(self, datapipe: Any, filter_fn: Callable[..., Any], input_col: Any = None):
        self.datapipe, self.filter_fn, self.input_col = datapipe, filter_fn, input_col

    def __iter__(self) -> Iterator[Any]:
        for sample in self.datapipe:
            held = self.filter_fn(*_picked(sample, self.input_col))
            if not isinstance(held, bool):
                raise ValueError(
                    "Boolean output is required for `filter_fn` of FilterIterDataPipe, got "
                    f"{type(held)}"
                )
            if held:
                yield sample


@functional_datapipe("collate")
class Collator(_Of):
    """Each sample (a batch, usually) as tensors, by `collate_fn` or by `default_collate`."""

    def __init__(self, datapipe: Any, conversion: Any = None, collate_fn: Any = None):
        super().__init__(datapipe)
        chosen = conversion if collate_fn is None else collate_fn
        self.collate_fn = default_collate if chosen is None else chosen

    def __iter__(self) -> Iterator[Any]:
        return map(self.collate_fn, self.datapipe)


@functional_datapipe("batch")
class Batcher(IterDataPipe):
    """Batches of samples."""

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

    def __iter__(self) -> Iterator[Any]:
        batch: list[Any] = []
        for sample in self.datapipe:
            batch.append(sample)
            if len(batch) == self.batch_size:
                yield self.wrapper_class(batch)
                batch = []
        if batch and not self.drop_last:
            yield self.wrapper_class(batch)

    def __len__(self) -> int:
        count = len(self.datapipe)
        return count // self.batch_size if self.drop_last else -(-count // self.batch_size)


@functional_datapipe("unbatch")
class UnBatcher(IterDataPipe):
    """The samples of batches; of batches of batches down to a level, or -1 for the lowest."""

    def __init__(self, datapipe: Any, unbatch_level: int = 1):
        self.datapipe, self.unbatch_level = datapipe, unbatch_level

    def __iter__(self) -> Iterator[Any]:
        if self.unbatch_level < -1:
            raise ValueError("unbatch_level must be -1 or >= 0")
        for sample in self.datapipe:
            yield from _flattened(sample, self.unbatch_level)


def _flattened(sample: Any, level: int) -> Iterator[Any]:
    is_batch = isinstance(sample, (list, DataChunk))
    if level == 0 or (level == -1 and not is_batch):
        yield sample
        return
    if not is_batch:
        raise IndexError(f"unbatch_level {level} exceeds the depth of the DataPipe")
    for each in sample:
        yield from _flattened(each, level if level == -1 else level - 1)


class _OfMany(IterDataPipe):
    """A pipe of several others."""

    def __init__(self, *datapipes: Any):
        self.datapipes = all_of(IterDataPipe, datapipes)


@functional_datapipe("concat")
class Concater(_OfMany):
    """The samples of one pipe after those of another."""

    def __iter__(self) -> Iterator[Any]:
        for each in self.datapipes:
            yield from each

    def __len__(self) -> int:
        return sum(map(len, self.datapipes))


@functional_datapipe("zip")
class Zipper(_OfMany):
    """Tuples of a sample of each pipe, until the shortest ends."""

    def __iter__(self) -> Iterator[Any]:
        yield from zip(*self.datapipes, strict=False)

    def __len__(self) -> int:
        return min(map(len, self.datapipes))


@functional_datapipe("mux")
class Multiplexer(_OfMany):
    """A sample of each pipe in turn, until the shortest ends."""

    def __iter__(self) -> Iterator[Any]:
        for samples in zip(*self.datapipes, strict=False):
            yield from samples

    def __len__(self) -> int:
        return min(map(len, self.datapipes)) * len(self.datapipes)


@functional_datapipe("shuffle")
class Shuffler(_Of):
    """The samples in a random order: each is drawn from a buffer of those that follow."""

    def __init__(self, datapipe: Any, *, buffer_size: int = 10000, unbatch_level: int = 0):
        if buffer_size <= 0:
            raise ValueError("buffer_size should be larger than 0")
        super().__init__(datapipe.unbatch(unbatch_level) if unbatch_level else datapipe)
        self.buffer_size, self._enabled = buffer_size, True
        self._seed: int | None = None

    def set_shuffle(self, shuffle: bool = True) -> Shuffler:
        self._enabled = shuffle
        return self

    def set_seed(self, seed: int) -> Shuffler:
        """The seed of the next pass; otherwise the default generator draws one."""
        self._seed = seed
        return self

    def __iter__(self) -> Iterator[Any]:
        if not self._enabled:
            yield from self.datapipe
            return
        seed, self._seed = self._seed, None
        draw = random.Random(_drawn() if seed is None else seed)
        buffer: list[Any] = []
        for sample in self.datapipe:
            if len(buffer) == self.buffer_size:
                place = draw.randint(0, len(buffer) - 1)
                yield buffer[place]
                buffer[place] = sample
            else:
                buffer.append(sample)
        while buffer:
            yield buffer.pop(draw.randint(0, len(buffer) - 1))


def _drawn() -> int:
    from ....functions.sampling import randint

    made = randint(0, 2**31, (), generator=generator.default_generator)
    return int(made.item())


ShufflerIterDataPipe = Shuffler  # its name at `datapipes.iter.combinatorics`
