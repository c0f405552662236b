"""Device: the one interface to a target."""

from __future__ import annotations

import abc
import functools
import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from tilewright.ir.dtype import DType
from tilewright.ir.interruption import pass_on

if TYPE_CHECKING:
    from tilewright.codegen.kernel import Bundle, Kernel
    from tilewright.codegen.lower.host import Routine
    from tilewright.codegen.target import Target
    from tilewright.codegen.triton import Emitted
    from tilewright.ir.node import Node
    from tilewright.ir.op import Op

    from .engine import Engine
    from .results.choices import Choice

Launch = Callable[[Sequence[Any], Sequence[Any]], None]
"""launch(buffers, scalars): buffers are the kernel's outputs, then its inputs; scalars are Python
numbers in the order of `kernel.scalars`."""

Bound = tuple[Launch, tuple[int, ...], tuple[int, ...]]
"""A launch, the slots of its buffers, and the numbers of its scalars."""

Run = Callable[[list[Any], Sequence[Any]], int]
"""run(slots, scalars): makes several bound launches in one call and returns how many succeeded. The
caller makes the failed one again by itself, which raises its error."""


Walk = Callable[[Sequence[Any], np.ndarray, int], None]
"""walk(buffers, rows, count): makes so many steps of a loop. rows: int64 [slots, 5], the place of
each slot: (number of a buffer, bytes into it) in the first step, the same in the second step, and
the bytes by which it moves from then on."""


class OutOfMemoryError(RuntimeError, MemoryError):
    """A device has no memory left for a buffer."""


def told(error: Exception) -> Exception:
    """The error to raise for a failed launch or allocation. Any lack of memory becomes PyTorch's
    OutOfMemoryError, also if NumPy or Python raised it. An interruption is raised at once."""
    pass_on(error)
    if isinstance(error, MemoryError) and not isinstance(error, OutOfMemoryError):
        return OutOfMemoryError(f"DefaultCPUAllocator: can't allocate memory: {error}")
    return error


class Arrival(Protocol):
    """A copy to host memory that is under way. wait: raises errors of the work before it."""

    def done(self) -> bool: ...

    def wait(self) -> None: ...


class Device(abc.ABC):
    """Where buffers live and kernels run. A buffer is contiguous memory of one dtype and shape."""

    name: str
    target: Target
    engine: Engine[Any] | None = None
    """The tuner's interface to its kernels, if they can be tuned."""
    lane: str | None = None
    """The name of a stream of work that runs beside the device's other work, with temporaries of
    its own."""
    concurrent = False
    """Whether work may run beside other work. If so, callers tell `meet` which buffers a run
    uses."""

    def meet(self, read: Sequence[Any], written: Sequence[Any]) -> None:  # noqa: B027  (one lane)
        """Make further work wait for work of other lanes on these buffers."""

    @abc.abstractmethod
    def empty(self, shape: Sequence[int], dtype: DType) -> Any:
        """A new buffer with unspecified contents."""

    def maker(self, shape: Sequence[int], dtype: DType) -> Callable[[], Any]:
        """`empty` for one shape and dtype, as a function for repeated calls."""
        return functools.partial(self.empty, shape, dtype)

    def recycles(self, memory: Any) -> bool:
        """Whether the device itself refers to `memory`, to use it again when nobody else does."""
        return False

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
        """The contents as an array. A host device returns the buffer itself, not a copy."""

    def part(self, buffer: Any, start: int, shape: Sequence[int]) -> Any:
        """A buffer of shape `shape` within `buffer`, from element `start` on."""
        return buffer.reshape(-1)[start : start + math.prod(shape)].reshape(shape)

    def copied(self, buffer: Any, source: Device) -> Any:
        """A copy, on this device, of a buffer of device `source`."""
        return self.from_numpy(source.to_numpy(buffer))

    def overwrite(self, buffer: Any, source: Any) -> None:
        """Copy the elements of `source` to `buffer`, both of this device and of one size."""
        raise NotImplementedError(f"{self.name} has no memory that stays in its place")

    def fetched(self, buffer: Any, source: Device) -> Any:
        """As `copied`, but the copy may still be under way: its reader waits for it."""
        return self.copied(buffer, source)

    def sent(self, buffer: Any) -> tuple[np.ndarray, Arrival] | None:
        """A copy to host memory that is under way; None if a device can't copy beside its work."""
        return None

    @abc.abstractmethod
    def compile(self, kernel: Kernel | Bundle) -> Launch:
        """The kernel, ready to launch."""

    def compile_all(self, kernels: Sequence[Kernel | Bundle]) -> list[Launch]:
        """The launches of several kernels, which a device may compile side by side."""
        return [self.compile(kernel) for kernel in kernels]

    def bind(self, emitted: Emitted) -> Launch:
        """The launch of a kernel that the user wrote in Triton."""
        raise NotImplementedError(f"{self.name} runs no kernels that are written in Triton")

    def call(self, routine: Routine) -> Launch:
        """The launch of a library's routine."""
        raise NotImplementedError(f"{self.name} runs no routines of the host: {routine.name}")

    def offers(self, op: Op, operands: Sequence[Node]) -> bool:
        """Whether a library of the device computes a routine of operands: the host does
        otherwise."""
        return False

    def ordered(self, launches: Sequence[Bound]) -> Sequence[Bound]:
        """The launches of a segment, made to wait for each other where one call doesn't end the
        work of the one before it."""
        return launches

    def runs(self, launches: Sequence[Bound]) -> dict[int, tuple[Run, int]]:
        """Sequences of launches that one call can make: place of the first -> (run, how many)."""
        return {}

    def hasten(self, run: Run) -> None:  # noqa: B027  (nothing to do without a warm-up)
        """Skip the warm-up of `run`: from the next call on it is in the form that it takes after
        some repeats."""

    def repeated(self, launch: Launch, fixed: Sequence[bool]) -> tuple[Launch, Launch]:
        """One launch for the first call of a loop, and one for the calls after it. fixed: which
        buffers are the same in every call."""
        return launch, launch

    def loop(
        self, launches: Sequence[tuple[Launch, Launch, tuple[int, ...]]], slots: int
    ) -> Walk | None:
        """One call that makes the launches of all steps of a loop, if a device has it. launches:
        that of the first step, that of later ones, and the slots of its buffers."""
        return None

    def source(self, kernel: Kernel | Bundle) -> str:
        """The generated text of the kernel, for people to read."""
        raise NotImplementedError(f"{self.name} has no source to show")

    def choice(self, kernel: Kernel | Bundle) -> Choice | None:
        """The origin of the kernel's schedule, if it isn't the default one."""
        return None

    def settle(self) -> None:  # noqa: B027  (where launches end before they return)
        """Wait for the launches that can fail, and raise their first error."""

    def synchronize(self) -> None:  # noqa: B027  (where launches end before they return)
        """Wait until all launches have finished."""
