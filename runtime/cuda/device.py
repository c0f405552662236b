"""The `cuda` devices: they compile Triton kernels for the GPU at hand and launch them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

import numpy as np

from tilewright.codegen.kernel import Bundle, Kernel
from tilewright.codegen.schedule import Schedule, Usage, default_schedule, settled
from tilewright.codegen.target import Target, card
from tilewright.codegen.triton import Emitted, emit
from tilewright.ir.dtype import DType, from_numpy
from tilewright.ir.node import Node
from tilewright.ir.op import Op

from .. import debug
from ..arena import Arena
from ..device import Arrival, Bound, Device, Launch, Run
from ..results import place
from . import beside
from .checks import Checks, Words
from .context import BorrowedStream, Context, Event, Stream
from .copies import Download, Upload
from .fallback import HostLaunch
from .graphs import Replay, replays
from .image import Image, suited
from .kernels import Function, Kernels, Packed
from .launch import Launcher, Provisional
from .memory import Buffer, Memory, Pool
from .pinned import Pinned
from .solver import LibraryLaunch, Solver, solver_of
from .tuning import Gpu

if TYPE_CHECKING:
    from tilewright.codegen.lower.host import Routine

    from ..results.choices import Choice


class Cuda(Device):
    """A GPU: NVIDIA's, or AMD's through HIP, which PyTorch calls CUDA too.

    schedule: returns the schedule of a kernel for a target. None: the tuner's best, or the default.
    blocking: whether to wait for each launch, so that its error is raised in place.
    """

    def __init__(
        self,
        number: int,
        schedule: Callable[..., Schedule] | None = None,
        blocking: bool = False,
    ):
        self.name = f"cuda:{number}"
        self.blocking = blocking
        self._schedule = schedule or self._tuned
        self.engine: Gpu = Gpu(self)
        self.context = Context(number)
        self.driver = self.context.driver
        self.pool = Pool(self.context)
        self.pool.spare = lambda: Arena.release_all(self)
        self.upload = Upload(self.context)
        self.download = Download(self.context)
        self.pinned = Pinned(self.context)
        self.checks = Checks(self)
        self.kernels = Kernels(self.context)
        self.target = card(
            self.kernels.target,
            multiprocessors=self.context.attribute("multi_processor_count"),
            bandwidth=(bandwidth := self.driver.bandwidth(self.context.device)),
            # A driver that doesn't tell of the memory knows no cache ahead of it either.
            cache=self.context.attribute("L2_cache_size") if bandwidth else 0,
        )
        self.fallbacks: dict[str, str] = {}  # kernel on the host -> why
        self.refused: dict[str, str] = {}  # kernel without tensor maps -> why

    # -- streams

    def switch(self, stream: Stream | BorrowedStream | None) -> None:
        """Give further work of this thread to `stream`; None is the default one."""
        self.context.switch(stream)
        self.concurrent = self.context.order.several
        self.lane = f"{self.name}, {self.context.stream:#x}" if self.context.stream else None

    def resume(self) -> None:
        """Return to this thread's stream, if another thread switched to its own."""
        self.switch(getattr(self.context.chosen, "stream", None))

    def meet(self, read: Sequence[Any], written: Sequence[Any]) -> None:
        order = self.context.order
        for buffers, note in ((read, order.read), (written, order.write)):
            for buffer in buffers:
                if isinstance(buffer, Buffer):  # not an error in its place
                    note(buffer.memory.pointer)

    # -- memory

    def empty(self, shape: Sequence[int], dtype: DType) -> Buffer:
        return self.pool.empty(shape, dtype)

    def maker(self, shape: Sequence[int], dtype: DType) -> Callable[[], Buffer]:
        return self.pool.maker(shape, dtype)

    def arena(self, size: int) -> Memory:
        return self.pool.allocate(size, "temporaries")

    def view(self, arena: Any, offset: int, shape: Sequence[int], dtype: DType) -> Buffer:
        return Buffer(arena, arena.pointer + offset, tuple(shape), dtype)

    def rows(
        self, buffer: Buffer, count: int, start: int = 0, stop: int | None = None
    ) -> list[Buffer]:
        length = ((buffer.size if stop is None else stop) - start) // count
        return [buffer.part(start + i * length, (length,)) for i in range(count)]

    def part(self, buffer: Buffer, start: int, shape: Sequence[int]) -> Buffer:
        return buffer.part(start, shape)

    def fill(self, memory: Memory, byte: int) -> None:
        """Set every byte to `byte`."""
        self.context.use()
        self.driver.cuMemsetD8Async(memory.pointer, byte, memory.size, self.context.stream)

    # -- copies

    def from_numpy(self, array: np.ndarray) -> Buffer:
        array = np.ascontiguousarray(array, from_numpy(array.dtype).np).reshape(array.shape)
        buffer = self.empty(array.shape, from_numpy(array.dtype))
        self.write(buffer, array)
        return buffer

    def write(self, buffer: Buffer, array: np.ndarray) -> None:
        """Copy the elements of a C-contiguous array to a buffer of its size."""
        if self.concurrent:
            self.meet((), [buffer])
        self.upload.copy(array, buffer.pointer)

    def to_numpy(self, buffer: Buffer) -> np.ndarray:
        """A copy, made when all launches are done. IndexError for a position out of range in
        them."""
        array = np.empty(buffer.shape, buffer.dtype.np)
        self.checks.make()
        if self.concurrent:
            self.meet([buffer], ())
        self.download.copy(buffer.pointer, array)
        return array

    def sent(self, buffer: Buffer) -> tuple[np.ndarray, Arrival]:
        array = self.pinned.empty(buffer.shape, buffer.dtype)
        if self.concurrent:
            self.meet([buffer], ())
        self.download.enqueue(buffer.pointer, array)
        return array, Sent(self, self.context.event().record())

    def copied(self, buffer: Any, source: Device) -> Buffer:
        if not isinstance(source, Cuda):
            return super().copied(buffer, source)
        out = self.empty(buffer.shape, buffer.dtype)
        if source.concurrent:
            source.meet([buffer], ())
        if not buffer.nbytes:
            return out
        here, there, stream = self.context, source.context, self.context.stream
        if source is self:
            here.use()
            self.driver.cuMemcpyDtoDAsync_v2(out.pointer, buffer.pointer, buffer.nbytes, stream)
            return out
        source.pool.open_to(here.number)
        here.wait_for(there)
        self.driver.cuMemcpyPeerAsync(
            out.pointer, here.handle, buffer.pointer, there.handle, buffer.nbytes, stream
        )
        there.wait_for(here)  # before the source's memory is reused
        return out

    def overwrite(self, buffer: Buffer, source: Buffer) -> None:
        if self.concurrent:
            self.meet([source], [buffer])
        self.context.use()
        self.driver.cuMemcpyDtoDAsync_v2(
            buffer.pointer, source.pointer, source.nbytes, self.context.stream
        )

    # -- kernels

    def source(self, kernel: Kernel | Bundle) -> str:
        return emit(kernel, self._schedule(kernel, self.target)).source

    def _tuned(self, kernel: Kernel | Bundle, target: Target) -> Schedule:
        if not place.exist():
            return default_schedule(kernel, target)
        return self.engine.chosen(kernel) or default_schedule(kernel, target)

    def choice(self, kernel: Kernel | Bundle) -> Choice | None:
        is_tuned = place.exist() and self._schedule == self._tuned
        return self.engine.choice(kernel) if is_tuned else None

    def compile(self, kernel: Kernel | Bundle) -> Launch:
        return self.compile_all([kernel])[0]

    def compile_with(
        self, kernel: Kernel | Bundle, schedules: Sequence[Schedule]
    ) -> list[Launcher | None]:
        """The kernel compiled by each schedule; None where it needs too much shared memory."""
        emitted = [emit(kernel, schedule) for schedule in schedules]
        functions = self.kernels.load_all(emitted)
        return [
            None
            if f is None
            else Launcher(self, e, f, partial(self._unaligned, e), outputs=len(kernel.outputs))
            for e, f in zip(emitted, functions)
        ]

    def compile_all(self, kernels: Sequence[Kernel | Bundle | Packed]) -> list[Launch]:
        made: dict[Kernel | Bundle | Packed, Launch] = {}
        todo: dict[Kernel | Bundle, Schedule] = {}
        for kernel in kernels:
            if isinstance(kernel, Packed):
                made[kernel] = self._packed(kernel)
            else:
                todo[kernel] = self._schedule(kernel, self.target)
        emitted: dict[Any, Emitted | None] = {}
        functions: dict[Any, Function | None] = {}
        limit = self.kernels.shared_limit

        def compiled(asked: dict[Any, Schedule]) -> dict[Any, Usage]:
            made = {k: self._emitted(k, schedule) for k, schedule in asked.items()}
            native = {k: each for k, each in made.items() if each is not None}
            loaded = dict(zip(native, self.kernels.load_all([*native.values()], exact=False)))
            emitted.update(made)
            functions.update(loaded)
            return {k: Usage(0, limit + 1) if f is None else f.usage for k, f in loaded.items()}

        settled(todo, self.target, compiled, limit)
        for k, each in emitted.items():
            function = functions.get(k)
            if each is None or function is None:
                made[k] = HostLaunch(self, k)
            else:
                unaligned = partial(self._unaligned, each)
                is_exact = function.promised == each.divisible
                kind = Launcher if is_exact else Provisional
                made[k] = kind(self, each, function, unaligned, outputs=len(k.outputs))
        return [made[k] for k in kernels]

    def bind(self, emitted: Emitted) -> Launcher:
        (function,) = self.kernels.load_all([emitted])
        if function is None:
            raise RuntimeError(
                f"kernel {emitted.name} needs more shared memory than this GPU has: launch it with "
                "smaller blocks or fewer stages"
            )
        return Launcher(self, emitted, function, partial(self._unaligned, emitted))

    def _unaligned(self, emitted: Emitted, words: Words | None) -> Launcher:
        other = emitted.unaligned()
        (function,) = self.kernels.load_all([other], exact=False)
        assert function is not None, "the aligned one had enough shared memory"
        return Launcher(self, other, function, words=words)

    def _packed(self, kernel: Packed) -> Launcher:
        def load(image: Image) -> Function:
            function = self.kernels.load(kernel.name, image)
            if function is None:
                raise RuntimeError(
                    f"kernel {kernel.name} was compiled to use {image.shared} bytes of shared "
                    f"memory, this GPU has {self.kernels.shared_limit}: compile it again for it"
                )
            return function

        def unaligned(words: Words | None) -> Launcher:
            if kernel.unaligned is None:  # only rows of loops lie at any address
                raise RuntimeError(
                    f"kernel {kernel.name} was compiled for memory at multiples of 16 bytes, and "
                    "for matrices of which the driver makes tensor maps: compile the program again"
                )
            return Launcher(self, kernel.emitted, load(kernel.unaligned), words=words)

        return Launcher(self, kernel.emitted, load(kernel.image), unaligned)

    def _emitted(self, kernel: Kernel | Bundle, schedule: Schedule) -> Emitted | None:
        """The kernel in Triton; None if it has no form there."""
        try:
            return suited(emit(kernel, schedule), self.kernels.target)
        except NotImplementedError as reason:
            self.fallbacks[kernel.name] = str(reason)
            debug.say(f"{kernel.name} runs on the host: {reason}")
            return None

    def call(self, routine: Routine) -> Launch:
        """The launch of a routine of a library, or of one that GPUs do beside their other work,
        such as a collective."""
        work = beside.WORK.get(routine.op)
        if work is not None:
            return beside.Beside(self, work(routine))
        if self.solver is not None and self.solver.has(routine.op):
            return LibraryLaunch(self.solver, routine)
        return super().call(routine)

    def offers(self, op: Op, operands: Sequence[Node]) -> bool:
        return self.solver is not None and self.solver.serves(op, operands)

    @cached_property
    def solver(self) -> Solver | None:
        """The libraries of linear algebra, if this machine has them."""
        return solver_of(self)

    @cached_property
    def beside(self) -> Stream:
        """The stream for such work. It comes first, as other processes wait for it."""
        return Stream(self.context, priority=-1)

    def ordered(self, launches: Sequence[Bound]) -> list[Bound]:
        return beside.ordered(self, launches)

    def runs(self, launches: Sequence[Bound]) -> dict[int, tuple[Run, int]]:
        if self.blocking:
            return {}
        has_work = any(isinstance(launch, beside.Ordered) for launch, _, _ in launches)
        return beside.runs(self, launches) if has_work else replays(self, launches)

    def hasten(self, run: Run) -> None:
        if isinstance(run, beside.Piece):
            run = run.replay
        if isinstance(run, Replay):
            run.hasten()

    def settle(self) -> None:
        self.checks.make()

    def synchronize(self) -> None:
        """Wait for all work. IndexError for a position out of range in it."""
        self.context.synchronize()
        self.checks.make()


class Sent:
    """A copy to the host that is complete when an event happens."""

    def __init__(self, device: Cuda, event: Event):
        self.device, self.event = device, event
        self._error: Exception | None = None

    def done(self) -> bool:
        return self._error is None and self.event.query()

    def wait(self) -> None:
        if self._error is not None:
            raise self._error
        self.event.synchronize()
        try:
            self.device.checks.make()
        except Exception as error:
            self._error = error
            raise
