"""Sequences of unequal length: padded to one, or packed without padding."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from tilewright.ir import dtype as dtypes
from tilewright.ir.dtype import int64
from tilewright.ir.location import at_user_line

from ...functions import creation, from_data
from ...recording import Handle

if TYPE_CHECKING:
    from ..._tensor import Tensor

__all__ = [
    "PackedSequence",
    "invert_permutation",
    "pack_padded_sequence",
    "pack_sequence",
    "pad_packed_sequence",
    "pad_sequence",
    "unpack_sequence",
    "unpad_sequence",
]


class _Fields(NamedTuple):
    data: Any
    batch_sizes: Any
    sorted_indices: Any
    unsorted_indices: Any


class PackedSequence(_Fields):
    """The elements of a batch of sequences, time step after time step, the longest sequence first.

    data[elements, …]. batch_sizes[steps]: the number of sequences that reach each step, int64 on
    the CPU. sorted_indices, unsorted_indices: the order by length, and its inverse; None if the
    sequences came in that order.
    """

    def __new__(
        cls,
        data: Any,
        batch_sizes: Any = None,
        sorted_indices: Any = None,
        unsorted_indices: Any = None,
    ) -> PackedSequence:
        if unsorted_indices is None:
            unsorted_indices = invert_permutation(sorted_indices)
        return super().__new__(cls, data, batch_sizes, sorted_indices, unsorted_indices)

    def _with(self, data: Any) -> PackedSequence:
        return PackedSequence(data, *self[1:])

    def to(self, *args: Any, **kwargs: Any) -> PackedSequence:
        """The same sequences with data of another dtype or on another device."""
        data = self.data.to(*args, **kwargs)
        return self if data is self.data else self._with(data)

    def cpu(self, *args: Any, **kwargs: Any) -> PackedSequence:
        return self.to(*args, device="cpu", **kwargs)

    def float(self) -> PackedSequence:
        return self._with(self.data.float())

    def double(self) -> PackedSequence:
        return self._with(self.data.double())

    def half(self) -> PackedSequence:
        return self._with(self.data.half())

    def long(self) -> PackedSequence:
        return self._with(self.data.long())

    def int(self) -> PackedSequence:
        return self._with(self.data.int())

    def short(self) -> PackedSequence:
        return self._with(self.data.short())

    def char(self) -> PackedSequence:
        return self._with(self.data.to(dtypes.int8))

    def byte(self) -> PackedSequence:
        return self._with(self.data.to(dtypes.uint8))

    def cuda(self, *args: Any, **kwargs: Any) -> PackedSequence:
        return self.to(*(args or ("cuda",)), **kwargs)

    def pin_memory(self) -> PackedSequence:
        """The same sequences with pinned data."""
        return self._with(self.data.pin_memory())

    def is_pinned(self) -> bool:
        return bool(self.data.is_pinned())

    @property
    def is_cuda(self) -> bool:
        return bool(self.data.is_cuda)


class Layout:
    """The places of a packed sequence's elements in a padded one.

    places: each element's place in [steps * batch]. padded: the element at each place, any element
        at places without one. valid[steps, batch, 1]: bool, whether a place has an element.
    """

    def __init__(self, batch_sizes: np.ndarray):
        self.steps, self.batch = len(batch_sizes), int(batch_sizes[0])
        mask = np.arange(self.batch) < batch_sizes[:, None]
        self.places = np.flatnonzero(mask)
        self.padded = np.zeros(mask.size, np.int64)
        self.padded[self.places] = np.arange(len(self.places))
        self.valid = mask[:, :, None]


def invert_permutation(permutation: Tensor | None) -> Tensor | None:
    """The inverse of a permutation; None for None."""
    if permutation is None:
        return None
    order = permutation.cpu().numpy()
    inverse = np.empty_like(order)
    inverse[order] = np.arange(len(order))
    return from_data.tensor(inverse, device=permutation.device)


def pack_padded_sequence(
    input: Tensor,
    lengths: Tensor | Sequence[int],
    batch_first: bool = False,
    enforce_sorted: bool = True,
) -> PackedSequence:
    """input[steps, batch, …] (with batch_first [batch, steps, …]) without its padding.

    lengths: the length of each sequence, at least 1; in descending order with `enforce_sorted`.
    """
    sizes = np.asarray(lengths.cpu().numpy() if isinstance(lengths, Handle) else lengths, np.int64)
    if not input.numel():
        raise RuntimeError(f"Cannot pack empty tensors.{at_user_line()}")
    if batch_first:
        input = input.transpose(0, 1)
    if sizes.shape != (input.shape[1],):
        raise RuntimeError(
            f"Expected `len(lengths)` to be equal to batch_size, but got {sizes.size} (batch_size="
            f"{input.shape[1]}){at_user_line()}"
        )
    if sizes.min(initial=1) <= 0:
        raise RuntimeError(
            "Length of all samples has to be greater than 0, but found an element in 'lengths' "
            f"that is <= 0{at_user_line()}"
        )
    order = None
    if not enforce_sorted:
        by_length = np.argsort(-sizes, kind="stable")
        sizes = sizes[by_length]
        order = from_data.tensor(by_length, device=input.device)
        input = input.index_select(1, order)
    elif np.any(np.diff(sizes) > 0):
        raise RuntimeError(
            "`lengths` array must be sorted in decreasing order when `enforce_sorted` is True. You "
            f"can pass `enforce_sorted=False` to pack_padded_sequence{at_user_line()}"
        )
    if sizes[0] > input.shape[0]:
        raise RuntimeError(
            f"Expected sequences of at most {input.shape[0]} steps, got a length of {sizes[0]}"
            f"{at_user_line()}"
        )
    batch_sizes = (sizes > np.arange(sizes[0])[:, None]).sum(1)
    places = from_data.tensor(Layout(batch_sizes).places, device=input.device)
    used = input[: int(sizes[0])]
    data = used.reshape(-1, *input.shape[2:]).index_select(0, places)
    return PackedSequence(data, from_data.tensor(batch_sizes, dtype=int64), order)


def pad_packed_sequence(
    sequence: PackedSequence,
    batch_first: bool = False,
    padding_value: float = 0.0,
    total_length: int | None = None,
) -> tuple[Any, Any]:
    """The padded sequences [steps, batch, …] (with batch_first [batch, steps, …]), and their
    lengths. total_length: the number of steps, at least the length of the longest sequence."""
    batch_sizes = sequence.batch_sizes.numpy()
    layout = Layout(batch_sizes)
    steps = layout.steps
    if total_length is not None:
        if total_length < steps:
            raise ValueError(
                "Expected total_length to be at least the length of the longest sequence in input, "
                f"but got total_length={total_length} and max sequence length being {steps}"
                f"{at_user_line()}"
            )
        steps = total_length
    data = sequence.data
    shape = (steps * layout.batch, *data.shape[1:])
    places = from_data.tensor(layout.places, device=data.device)
    blank = creation.full(shape, padding_value, dtype=data.dtype, device=data.device)
    padded = blank.index_copy(0, places, data).reshape(steps, layout.batch, *data.shape[1:])
    lengths = from_data.tensor((np.arange(layout.batch)[:, None] < batch_sizes).sum(1))
    if sequence.unsorted_indices is not None:
        padded = padded.index_select(1, sequence.unsorted_indices)
        lengths = lengths[sequence.unsorted_indices.cpu()]
    return (padded.transpose(0, 1) if batch_first else padded), lengths


def pad_sequence(
    sequences: Tensor | Iterable[Tensor],
    batch_first: bool = False,
    padding_value: float = 0.0,
    padding_side: str = "right",
) -> Tensor:
    """Tensors [steps, …] of unequal length, padded to one [longest, batch, …] or, with batch_first,
    [batch, longest, …]."""
    if padding_side not in ("left", "right"):
        raise RuntimeError(
            f"Expected padding_side to be one of left or right, but got {padding_side}."
            f"{at_user_line()}"
        )
    listed = list(sequences)
    if not listed:
        raise RuntimeError(f"received an empty list of sequences{at_user_line()}")
    from ..functional import pad

    longest = max(s.shape[0] for s in listed)
    rows = []
    for s in listed:
        missing = longest - s.shape[0]
        sides = (0, missing) if padding_side == "right" else (missing, 0)
        rows.append(pad(s, (*(0, 0) * (s.dim() - 1), *sides), value=padding_value))
    from ...functions.joining import stack

    return stack(rows, 0 if batch_first else 1)


def unpad_sequence(
    padded_sequences: Tensor, lengths: Tensor, batch_first: bool = False
) -> list[Any]:
    """The sequences of a padded batch, without their padding."""
    if not batch_first:
        padded_sequences = padded_sequences.transpose(0, 1)
    return [s[: int(n)] for s, n in zip(padded_sequences, lengths.tolist(), strict=True)]


def pack_sequence(sequences: Sequence[Any], enforce_sorted: bool = True) -> PackedSequence:
    """Tensors [steps, …] of unequal length, packed."""
    lengths = [s.shape[0] for s in sequences]
    return pack_padded_sequence(pad_sequence(sequences), lengths, enforce_sorted=enforce_sorted)


def unpack_sequence(packed_sequences: PackedSequence) -> list[Any]:
    """The sequences of a packed batch."""
    padded, lengths = pad_packed_sequence(packed_sequences, batch_first=True)
    return unpad_sequence(padded, lengths, batch_first=True)
