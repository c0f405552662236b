"""Generators: streams of random numbers, counted instead of stored.

Each draw is a function of its generator's (seed, offset), two numbers bound at run time, so a step
that repeats meets its nodes again and draws other numbers.
"""

from __future__ import annotations

import functools
import math
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np

from tilewright.ir import dtype as dtypes
from tilewright.ir.location import at_user_line
from tilewright.ir.node import Node
from tilewright.runtime.baseline.quiet import quietly

from .. import recording
from ..devices import cuda_available
from ..devices import device as Device
from ..recording import epoch, novelty, volatile
from ..recording.epoch import clock, drawn, scalars

if TYPE_CHECKING:
    from .._tensor import Tensor
    from ..types import DeviceLike

_DEFAULT_SEED = 67280421310721  # the seed of a new Generator, as in PyTorch
_WORD = 1 << 64


class Generator:
    """A stream of random numbers: a seed, and the number of draws made so far."""

    device: Device

    def __init__(self, device: DeviceLike | None = "cpu"):
        self.device = Device(device)
        if self.device.type == "cuda" and not cuda_available():
            raise RuntimeError(
                f"Cannot get CUDA generator: there is no CUDA device here{at_user_line()}"
            )
        self._seed = _DEFAULT_SEED
        self._offset = 0

    def manual_seed(self, seed: int) -> Generator:
        """Begin the stream of `seed`, an integer of 64 bits (negative ones count from 2^64)."""
        seed = int(seed)
        if not -(_WORD >> 1) <= seed < _WORD:
            raise RuntimeError(
                f"Overflow when unpacking long: the seed {seed} has more than 64 bits"
                f"{at_user_line()}"
            )
        self._set(seed % _WORD, 0)
        return self

    def seed(self) -> int:
        """Begin the stream of a seed that the operating system draws; returns it."""
        self.manual_seed(int.from_bytes(os.urandom(8), "little"))
        return self._seed

    def initial_seed(self) -> int:
        return self._seed

    def get_state(self) -> Tensor:
        """The seed and the offset, as 16 bytes."""
        from ..functions import from_data

        state = np.array([self._seed, self._offset], dtype="<u8").view(np.uint8)
        return from_data.tensor(state)

    def set_state(self, new_state: Tensor) -> Generator:
        """Go on from where `get_state` was called."""
        if not isinstance(new_state, recording.Handle):
            raise TypeError(
                f"expected a torch.ByteTensor, but got {type(new_state).__name__}{at_user_line()}"
            )
        state = np.asarray(new_state.detach().cpu()._array())
        if state.dtype != np.uint8:
            raise TypeError(f"RNG state must be a torch.ByteTensor{at_user_line()}")
        if state.size != 16:
            raise RuntimeError(
                "RNG state is wrong size: expected the 16 bytes that get_state returns, got "
                f"{state.size}{at_user_line()}"
            )
        self._set(*(int(v) for v in state.copy().view("<u8")))
        return self

    def get_offset(self) -> int:
        """The number of draws so far."""
        return self._offset

    def set_offset(self, offset: int) -> Generator:
        """Go on after the given number of draws."""
        self._set(self._seed, int(offset))
        return self

    def graphsafe_get_state(self) -> Generator:
        """The stream itself, for `graphsafe_set_state`: CUDA graphs read it at each replay."""
        return self

    def graphsafe_set_state(self, state: Generator) -> Generator:
        """Go on where another generator is."""
        self._set(state._seed, state._offset)
        return self

    def clone_state(self) -> Generator:
        out = Generator(self.device)
        out._seed, out._offset = self._seed, self._offset
        return out

    def __getstate__(self) -> dict[str, Any]:
        return {"device": str(self.device), "seed": self._seed, "offset": self._offset}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.device = Device(state["device"])
        self._seed, self._offset = state["seed"], state["offset"]

    def __repr__(self) -> str:
        return f"<torch.Generator device={self.device} seed={self._seed} offset={self._offset}>"

    def _set(self, seed: int, offset: int) -> None:
        self._seed, self._offset = seed, offset
        clock.effects += 1

    def _take(self, draws: int = 1) -> int:
        """The offset of the next `draws` draws."""
        offset = self._offset
        self._offset = offset + draws
        return offset


default_generator = Generator()
default_generator.seed()


def manual_seed(seed: int) -> Generator:
    """Begin the stream of `seed` in the default generator, which all devices draw from."""
    return default_generator.manual_seed(seed)


def seed() -> int:
    """Seed the default generator from the operating system; returns the seed."""
    return default_generator.seed()


def initial_seed() -> int:
    """The seed of the default generator."""
    return default_generator.initial_seed()


def get_rng_state() -> Tensor:
    """The state of the default generator."""
    return default_generator.get_state()


def set_rng_state(new_state: Tensor) -> None:
    """Go on from where `get_rng_state` was called."""
    default_generator.set_state(new_state)


@contextmanager
def fork_rng(devices: Any = None, enabled: bool = True, **_: Any) -> Iterator[None]:
    """Draws inside the block don't advance the default generator outside."""
    before = (default_generator._seed, default_generator._offset)
    try:
        yield
    finally:
        if enabled:
            default_generator._set(*before)


def draw(generator: Generator | None = None, device: str | None = None) -> tuple[Any, Any]:
    """(seed, offset) of one draw, as nodes or what becomes nodes; the offset advances.

    device: the device of the numbers, unless an operand decides it.
    """
    source = default_generator if generator is None else generator
    seed, offset = signed(source._seed), source._take()
    may_compute = clock.volatile and not clock.holding and volatile.may_compute()
    if may_compute and device in (None, "cpu"):
        return (
            volatile.Number(seed, functools.partial(_bound, "seed", source, device)),
            volatile.Number(offset, functools.partial(_bound, "offset", source, device)),
        )
    return _bound("seed", source, device, seed), _bound("offset", source, device, offset)


def draws_at_once(device: str) -> bool:
    """Whether a draw on a device may be computed when it is made."""
    return (
        clock.volatile
        and device == "cpu"
        and not clock.holding
        and not epoch.fallible
        and volatile.may_compute()
    )


def drawn_at_once(
    form: Callable[..., np.ndarray | None],
    generator: Generator | None,
    device: str,
    shape: tuple[int, ...],
    dtype: dtypes.DType,
    *attrs: Any,
) -> np.ndarray | None:
    """The numbers of one draw, computed when it is made; None if it must be recorded, and none was
    made. form: one of `runtime/baseline/draws.py`."""
    if not draws_at_once(device) or not novelty.lasts():
        return None
    source = default_generator if generator is None else generator
    made = quietly(form, signed(source._seed), source._offset, shape, dtype, *attrs)
    if made is not None:
        source._offset += 1
        novelty.noted.append((hash((form, shape)), math.prod(shape)))
        made = np.asarray(made)  # one draw may be a number
    return made


def _bound(kind: str, source: Generator, device: str | None, value: int) -> Node:
    """A part of a draw, as a number that is bound when the graph runs."""
    drawn[len(scalars)] = kind, source
    return recording.scalar(value, dtypes.int64, device)


def signed(word: int) -> int:
    """The int64 with the same bits as a word of 64 bits."""
    return word - _WORD if word >= _WORD >> 1 else word
