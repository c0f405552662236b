"""The class of nested tensors: sequences of different lengths as one tensor.

Their layout is jagged. Those of layout strided, PyTorch's older one, are the same with other names:
they are printed as lists, and combined where their lengths are equal.
"""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Sequence
from textwrap import indent
from typing import TYPE_CHECKING, Any

import numpy as np

from tilewright.ir import ops
from tilewright.ir.dtype import int64
from tilewright.ir.location import at_user_line
from tilewright.ir.node import Node

from .. import layouts
from ..compound import Compound, blank
from ..functions import from_data
from ..recording import record
from ..recording.builders import builder
from ..recording.compounds import is_compound
from .padding import padded

if TYPE_CHECKING:
    from typing_extensions import Self

    from .._tensor import Tensor

_count = itertools.count(1)
_LARGE = 1 << 40  # no size of a dense tensor, so that arithmetic on shapes keeps it recognizable


class Ragged(int):
    """The size of a ragged dimension, which has no number: it is printed as j1, j2, …

    Two are equal if their tensors share their offsets. As an int it is large and odd, so that the
    arithmetic of `view` and `flatten` can be undone.
    """

    number: int

    def __new__(cls, number: int) -> Ragged:
        made = super().__new__(cls, _LARGE + 2 * number + 1)
        made.number = number
        return made

    def __repr__(self) -> str:
        return f"j{self.number}"

    __str__ = __repr__

    def __reduce__(self) -> Any:
        return Ragged, (self.number,)


@builder("offsets")
def _sequence_of(offsets: Node, lengths: Node | None, total: int) -> Node:
    """The number of the sequence that each of `total` rows is in; that of none is the count of
    sequences."""
    count = offsets.shape[0] - 1
    row = ops.iota(total)
    offsets = ops.cast(offsets, int64)
    ends = ops.slice_axis(offsets, 0, 1, count + 1)
    found = ops.insertion(ends, row, True)
    none = ops.full_like(found, count)
    if lengths is None:
        return ops.where(
            ops.ge(row, ops.expand(ops.slice_axis(offsets, 0, 0, 1), row.shape)), found, none
        )
    begins = ops.slice_axis(offsets, 0, 0, count)
    found = ops.insertion(begins, row, True) - 1
    own = ops.maximum(found, ops.zeros_like(found))
    stop = ops.gather(begins + ops.cast(lengths, int64), own, 0)
    inside = ops.bitwise_and(found >= 0, ops.lt(row, stop))
    return ops.where(inside, found, none)


class Sequences:
    """Where the sequences of a ragged dimension are: sequence i has the rows offsets[i] …
    offsets[i + 1], or the first lengths[i] of those from offsets[i] on.

    strided: whether their tensors say that they have PyTorch's older layout, `torch.strided`."""

    def __init__(self, offsets: Any, lengths: Any = None, strided: bool = False):
        self.offsets, self.lengths, self.strided = offsets, lengths, strided
        self.size = Ragged(next(_count))
        self.count = int(offsets.shape[0]) - 1
        self._numbers: dict[int, Any] = {}
        self._known: tuple[np.ndarray, np.ndarray] | None = None

    def on_host(self) -> tuple[np.ndarray, np.ndarray]:
        """Where each sequence begins, and its length."""
        if self._known is None:
            offsets = np.array(self.offsets._array()).astype(np.int64)
            if self.lengths is None:
                lengths = np.diff(offsets)
            else:
                lengths = np.array(self.lengths._array()).astype(np.int64)
            self._known = offsets[:-1], lengths
        return self._known

    def longest(self) -> int:
        return int(self.on_host()[1].max(initial=0))

    def numbers(self, total: int) -> Any:
        """The sequence of each of `total` rows; `count` for a row of none."""
        found = self._numbers.get(total)
        if found is None:
            found = record(_sequence_of, self.offsets, self.lengths, total)
            self._numbers[total] = found
        return found

    def begins(self) -> Any:
        return self.offsets[:-1]

    def counts(self) -> Any:
        """The length of each sequence, as a tensor."""
        return self.offsets[1:] - self.offsets[:-1] if self.lengths is None else self.lengths


_by_offsets: weakref.WeakValueDictionary[Any, Sequences] = weakref.WeakValueDictionary()


def sequences(offsets: Any, lengths: Any = None) -> Sequences:
    """The sequences with these offsets: the same ones where tensors share them."""
    key = id(offsets), id(lengths)
    found = _by_offsets.get(key)
    if found is None:
        found = _by_offsets[key] = Sequences(offsets, lengths)
    return found


def of_lengths(lengths: Sequence[int] | np.ndarray, like: Any) -> Sequences:
    """Sequences of these lengths, one after another, on the device of `like`."""
    offsets = np.concatenate(([0], np.cumsum(np.asarray(lengths, np.int64)))).astype(np.int64)
    made = sequences(from_data.beside(offsets.copy(), like))
    made._known = offsets[:-1], np.diff(offsets)
    return made


_by_lengths: weakref.WeakValueDictionary[Any, Sequences] = weakref.WeakValueDictionary()


def strided_rows(lengths: Sequence[int] | np.ndarray, like: Any) -> Sequences:
    """Sequences of tensors of layout strided: the same ones for the same lengths on one device, so
    that such tensors can be combined."""
    key = tuple(int(n) for n in lengths), str(like.device)
    found = _by_lengths.get(key)
    if found is None:
        packed = of_lengths(lengths, like)
        found = _by_lengths[key] = Sequences(packed.offsets, strided=True)
        found._known = packed._known
    return found


class Nested(Compound):
    """Sequences whose rows lie one after another in dimension `_ragged_idx - 1` of `_elements`.

    Dimension 0 counts sequences, dimension `_ragged_idx` is ragged, the others are regular.
    """

    __slots__ = ("_ragged_idx", "_rows")

    _rows: Sequences
    _ragged_idx: int
    is_nested = True

    @property
    def layout(self) -> layouts.layout:
        return layouts.strided if self._rows.strided else layouts.jagged

    def size(self, dim: int | None = None) -> Any:
        """All sizes, or that of one dimension."""
        if dim is None or not self._rows.strided or dim % self.dim() != self._ragged_idx:
            return super().size(dim)
        lengths = self._rows.on_host()[1]
        if (lengths != lengths[:1]).any():
            raise RuntimeError(
                f"Given dimension {dim} is irregular and does not have a size.{at_user_line()}"
            )
        return int(lengths[0])

    def _like(self, elements: Tensor, sizes: Any = None) -> Self:
        return nested(elements, self._rows, self._ragged_idx)  # type: ignore[return-value]

    def _structure(self) -> tuple[Any, ...]:
        return self._rows.offsets, self._rows.lengths

    def _restructured(self, structure: tuple[Any, ...], elements: Tensor) -> Self:
        offsets, lengths = structure
        mine = self._rows
        kept = offsets is mine.offsets and lengths is mine.lengths
        if mine.strided and not kept:
            mine, kept = strided_rows(mine.on_host()[1], elements), True
        rows = mine if kept else sequences(offsets, lengths)
        return nested(elements, rows, self._ragged_idx)  # type: ignore[return-value]

    def _take(self, other: Any) -> None:
        self._elements, self._rows, self._sizes = other._elements, other._rows, other._sizes
        self._ragged_idx = other._ragged_idx

    def _pickled(self) -> tuple[Any, Any]:
        return (*self._structure(), self._elements), (self._ragged_idx, self._rows.strided)

    @classmethod
    def _unpickled(cls, parts: Any, rest: Any) -> Any:
        *structure, elements = parts
        ragged, strided = rest if isinstance(rest, tuple) else (rest, False)
        rows = sequences(*structure)
        rows = strided_rows(rows.on_host()[1], elements) if strided else rows
        return nested(elements, rows, ragged)

    # ---- what it is made of ------------------------------------------------------------------

    def values(self) -> Tensor:
        """All rows, one after another, differentiable. Those of layout strided as one dimension."""
        if self._rows.strided:
            return self._elements.reshape(-1)  # type: ignore[no-any-return]
        return self._elements.view_as(self._elements)  # type: ignore[no-any-return]

    @property
    def _values(self) -> Tensor:  # type: ignore[override]
        return self._elements  # type: ignore[no-any-return]

    def offsets(self) -> Tensor:
        """Where each sequence begins, and the last one ends: [sequences + 1]."""
        return self._rows.offsets  # type: ignore[no-any-return]

    def lengths(self) -> Tensor | None:
        """The lengths of sequences that don't reach to the next one's begin; else None."""
        return self._rows.lengths  # type: ignore[no-any-return]

    @property
    def _offsets(self) -> Any:
        return self._rows.offsets

    @property
    def _lengths(self) -> Any:
        return self._rows.lengths

    @property
    def _max_seqlen(self) -> int:
        return self._rows.longest()

    _maybe_max_seqlen = _max_seqlen

    @property
    def _min_seqlen(self) -> int:
        return int(self._rows.on_host()[1].min(initial=np.iinfo(np.int64).max))

    _maybe_min_seqlen = _min_seqlen

    def numel(self) -> int:
        return int(self._elements.numel())

    nelement = numel

    def is_contiguous(self, memory_format: Any = None) -> bool:
        return self._rows.lengths is None and self._ragged_idx == 1

    def to_padded_tensor(self, padding: float, output_size: Any = None) -> Tensor:
        """A dense tensor [sequences, longest, ...], with `padding` behind each sequence.

        output_size: its size; longer sequences are cut.
        """
        length = None if output_size is None else int(tuple(output_size)[self._ragged_idx])
        made = padded(self, padding, length)
        if output_size is None or tuple(output_size) == tuple(made.shape):
            return made  # type: ignore[no-any-return]
        wide = made.new_full(tuple(output_size), padding)
        wide[tuple(slice(0, n) for n in made.shape)] = made
        return wide  # type: ignore[no-any-return]

    def contiguous(self, memory_format: Any = None) -> Self:
        """Without gaps between the sequences."""
        if self._rows.lengths is None:
            return self
        begins, lengths = self._rows.on_host()
        first = np.repeat(begins, lengths)
        within = np.arange(first.size) - np.repeat(np.cumsum(lengths) - lengths, lengths)
        at = from_data.beside((first + within).astype(np.int64), self._elements)
        elements = self._elements.index_select(self._ragged_idx - 1, at)
        return nested(elements, of_lengths(lengths, elements), self._ragged_idx)  # type: ignore[return-value]

    def __len__(self) -> int:
        return self._rows.count

    def __repr__(self, *, tensor_contents: Any = None) -> str:  # type: ignore[override]
        how = ""
        if self.requires_grad:
            call = self.grad_fn
            how = ", requires_grad=True" if call is None else f", grad_fn=<{call.name()}>"
        if self._rows.strided:
            parts = [t.detach().requires_grad_(self.requires_grad) for t in self.unbind()]
            texts = [indent(repr(t), "  ", lambda line: True) for t in parts]
            return "nested_tensor([\n" + ",\n".join(texts) + f"\n]{how})"
        gaps = self._rows.lengths is None
        return (
            f"NestedTensor(size={tuple(self._sizes)}, offsets={self._rows.offsets}{how}, "
            f"contiguous={gaps})"
        )

    def __setitem__(self, key: Any, value: Any) -> None:
        raise NotImplementedError(
            f"a nested tensor can't be written to by an index{at_user_line()}"
        )


def nested(elements: Any, rows: Sequences, ragged: int = 1) -> Nested:
    """A nested tensor of parts that are known to fit."""
    shape = elements.shape
    made: Nested = blank(
        Nested, elements, (rows.count, *shape[: ragged - 1], rows.size, *shape[ragged:])
    )
    made._rows, made._ragged_idx = rows, ragged
    return made


def is_nested(t: Any) -> bool:
    return is_compound(t) and isinstance(t, Nested)
