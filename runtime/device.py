"""Device: the one interface to a target."""

from __future__ import annotations

import abc
import functools
import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from tilewright.ir.dtype import DType

if TYPE_CHECKING:
    from tilewright.codegen.kernel import Bundle, Kernel
    from tilewright.codegen.target import Target
    from tilewright.codegen.triton import Emitted

    from .engine import Engine
    from .results.choices import Choice

Launch = Callable[[Sequence[Any], Sequence[Any]], None]
"""launch(buffers, scalars): buffers are the kernel's outputs followed by its inputs, scalars are
Python numbers in the order of `kernel.scalars`."""

Bound = tuple[Launch, tuple[int, ...], tuple[int, ...]]
"""A launch, the slots that it is called with, and the numbers of its scalars."""

Run = Callable[[list[Any], Sequence[Any]], int]
"""run(slots, scalars): several bound launches in one call; how many of them went well. The one that
didn't is to be made again by itself, which raises its error."""


class OutOfMemoryError(RuntimeError, MemoryError):
    """A device has no memory left for a buffer."""


def told(error: Exception) -> Exception:
    """The error of a launch or an allocation as it is raised: for want of memory one of PyTorch's
    class, also if it is NumPy's or Python's."""
    if isinstance(error, MemoryError) and not isinstance(error, OutOfMemoryError):
        return OutOfMemoryError(f"DefaultCPUAllocator: can't allocate memory: {error}")
    return error


class Arrival(Protocol):
    """A copy to host memory that is under way. wait: raises what went wrong in the work before."""

    def done(self) -> bool: ...

    def wait(self) -> None: ...


class Device(abc.ABC):
    """Where buffers live and kernels run. A buffer is contiguous memory of one dtype and shape."""

    name: str
    target: Target
    engine: Engine[Any] | None = None
    """What can be chosen for its kernels, if anything."""
    lane: str | None = None
    """Names work that runs beside the device's other work, with temporaries of its own."""
    concurrent = False
    """Whether there has ever been such work: then `meet` is to be told what a run uses."""

    def meet(self, read: Sequence[Any], written: Sequence[Any]) -> None:  # noqa: B027  (one lane)
        """Let further work wait for what other lanes have given to these buffers."""

    @abc.abstractmethod
    def empty(self, shape: Sequence[int], dtype: DType) -> Any:
        """A new buffer, its contents unspecified."""

    def maker(self, shape: Sequence[int], dtype: DType) -> Callable[[], Any]:
        """`empty` for one shape and dtype, to be called again and again."""
        return functools.partial(self.empty, shape, dtype)

    @abc.abstractmethod
    def arena(self, size: int) -> Any:
        """`size` bytes of memory for temporaries."""

    @abc.abstractmethod
    def view(self, arena: Any, offset: int, shape: Sequence[int], dtype: DType) -> Any:
        """The buffer at byte `offset` of an arena."""

    @abc.abstractmethod
    def rows(self, buffer: Any, count: int, start: int = 0, stop: int | None = None) -> Any:
        """The elements [start, stop) of a buffer as `count` buffers of one size, in order."""

    @abc.abstractmethod
    def from_numpy(self, array: np.ndarray) -> Any:
        """A new buffer with a copy of `array`."""

    @abc.abstractmethod
    def to_numpy(self, buffer: Any) -> np.ndarray:
        """The contents as an array; on a host device the buffer's own memory, not a copy."""

    def part(self, buffer: Any, start: int, shape: Sequence[int]) -> Any:
        """The elements from `start` on that `shape` holds, in the memory of `buffer`."""
        return buffer.reshape(-1)[start : start + math.prod(shape)].reshape(shape)

    def copied(self, buffer: Any, source: Device) -> Any:
        """A new buffer with a copy of one of `source`'s."""
        return self.from_numpy(source.to_numpy(buffer))

    def overwrite(self, buffer: Any, source: Any) -> None:
        """Copy the elements of `source`, a buffer of this device, to another of its size."""
        raise NotImplementedError(f"{self.name} has no memory that stays in its place")

    def fetched(self, buffer: Any, source: Device) -> Any:
        """As `copied`, but the copy may still be under way: who reads it waits."""
        return self.copied(buffer, source)

    def sent(self, buffer: Any) -> tuple[np.ndarray, Arrival] | None:
        """A copy in host memory that is under way; None if a device can't do that."""
        return None

    @abc.abstractmethod
    def compile(self, kernel: Kernel | Bundle) -> Launch:
        """The kernel, ready to launch."""

    def compile_all(self, kernels: Sequence[Kernel | Bundle]) -> list[Launch]:
        """Several kernels, which a device may compile side by side."""
        return [self.compile(kernel) for kernel in kernels]

    def bind(self, emitted: Emitted) -> Launch:
        """A kernel that is written in Triton already, ready to launch."""
        raise NotImplementedError(f"{self.name} runs no kernels that are written in Triton")

    def runs(self, launches: Sequence[Bound]) -> dict[int, tuple[Run, int]]:
        """Where launches can be made many at once: (run, how many) by the place of the first."""
        return {}

    def hasten(self, run: Run) -> None:  # noqa: B027  (where nothing is put off)
        """Have `run` be what it is after some repeats from the next time on."""

    def repeated(self, launch: Launch, fixed: Sequence[bool]) -> tuple[Launch, Launch]:
        """A launch for the first time that it is made, and for the times after it. fixed: which of
        its buffers are the same each time."""
        return launch, launch

    def source(self, kernel: Kernel | Bundle) -> str:
        """The text generated for the kernel, for people to read."""
        raise NotImplementedError(f"{self.name} has no source to show")

    def choice(self, kernel: Kernel | Bundle) -> Choice | None:
        """Where the kernel's schedule is from, if it isn't the default one."""
        return None

    def synchronize(self) -> None:  # noqa: B027  (where launches end before they return)
        """Waits until everything launched has finished."""
