"""The CPU as a device: native kernels, and NumPy programs where those are faster or needed."""

from __future__ import annotations

import functools
import importlib
import platform
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tilewright.codegen.llvm.machine import CannotLower
from tilewright.codegen.llvm.schedule import DEFAULT, Schedule
from tilewright.codegen.target import LLVM
from tilewright.ir.interruption import pass_on
from tilewright.ir.numeric import elimination as eliminations
from tilewright.ir.numeric import fourier as transforms
from tilewright.ir.numeric import lapack, products

from .. import debug
from ..device import Bound, Launch, Run, Walk
from ..engine import FORMAT, Engine
from ..host import HostDevice
from ..results import place
from .numpy import NumpyDevice

if TYPE_CHECKING:
    from tilewright.codegen.kernel import Bundle, Kernel
    from tilewright.codegen.llvm import Emitted
    from tilewright.codegen.schedule.space import Space
    from tilewright.codegen.triton import Emitted as Triton

    from ..results.choices import Choice


def tuned(kernel: Kernel | Bundle) -> Schedule:
    """The tuner's schedule of a kernel, or the default."""
    if not place.exist():
        return DEFAULT
    return ENGINE.chosen(kernel) or DEFAULT


class _Late:
    """A module of the runtime that is imported when something of it is used, or called."""

    def __init__(self, module: str, function: str | None = None):
        self._module, self._function = module, function

    def __getattr__(self, name: str) -> Any:
        found = getattr(importlib.import_module(f"tilewright.runtime.{self._module}"), name)
        self.__dict__[name] = found  # to import it again takes as long as a small factorization
        return found

    def __call__(self, *args: Any) -> Any:
        assert self._function is not None
        return getattr(self, self._function)(*args)


class LlvmDevice(HostDevice):
    """Host memory, and the cores.

    force: compile every kernel natively, even where NumPy's libraries are faster.
    schedule: returns the schedule of a kernel.
    """

    name = "cpu"
    target = LLVM

    def __init__(
        self, force: bool = False, schedule: Callable[[Kernel | Bundle], Schedule] = tuned
    ) -> None:
        super().__init__()
        self.engine = ENGINE
        transforms.native = _Late("native.fourier")
        eliminations.native = _Late("native.elimination")
        lapack.repeat = _Late("native.routines", "repeat")
        lapack.copied = _Late("baseline.copies", "copied")
        products.running = _Late("native.routines", "running")
        products.total = _Late("native.routines", "total")
        self._force = force
        self._schedule = schedule
        self._numpy = NumpyDevice()
        self.fallbacks: dict[str, str] = {}  # kernel name -> why it isn't native

    def compile(self, kernel: Kernel | Bundle) -> Launch:
        return self.compile_all([kernel])[0]

    def compile_all(self, kernels: Sequence[Kernel | Bundle]) -> list[Launch]:
        from ..native import jit

        emitted = [self.emitted(kernel, self._schedule(kernel)) for kernel in kernels]
        linked = jit.link_all([e.code for found in emitted for e in found or ()], "kernel")
        launches = [self.linked(kernel, found) for kernel, found in zip(kernels, emitted)]
        del linked  # kept until each launch had its part
        return launches

    def linked(self, kernel: Kernel | Bundle, emitted: Sequence[Emitted] | None) -> Launch:
        """The launch of a kernel: native if it was emitted, else NumPy's."""
        from ..native import launch

        return self._numpy.compile(kernel) if emitted is None else launch.bind(kernel, emitted)

    def bind(self, emitted: Triton) -> Launch:
        return self._numpy.bind(emitted)

    def runs(self, launches: Sequence[Bound]) -> dict[int, tuple[Run, int]]:
        from ..native import launch

        return launch.runs(launches)

    def repeated(self, launch: Launch, fixed: Sequence[bool]) -> tuple[Launch, Launch]:
        from ..native.launch import Native

        return launch.repeated(fixed) if isinstance(launch, Native) else (launch, launch)

    def loop(
        self, launches: Sequence[tuple[Launch, Launch, tuple[int, ...]]], slots: int
    ) -> Walk | None:
        from ..native import launch

        return launch.steps_of_loop(launches, slots)

    def emitted(self, kernel: Kernel | Bundle, schedule: Schedule) -> list[Emitted] | None:
        """The kernel as LLVM IR; None if NumPy computes it."""
        from ..native import launch

        try:
            self._check(kernel, schedule)
            return launch.emitted(kernel, schedule)
        except CannotLower as reason:
            self.fallbacks[kernel.name] = str(reason)
            debug.say(f"{kernel.name} runs on NumPy: {reason}")
            return None

    def _check(self, kernel: Kernel | Bundle, schedule: Schedule) -> None:
        """Raise CannotLower for a kernel that NumPy computes faster."""
        from tilewright.codegen.llvm import check_speed

        from ..native import host

        if self._force or schedule.native:
            return
        if schedule.native is False:
            raise CannotLower("the tuner found NumPy faster")
        if not host.compiles():
            raise CannotLower("llvmlite can't be loaded")
        check_speed(kernel, host.machine())

    def choice(self, kernel: Kernel | Bundle) -> Choice | None:
        is_tuned = place.exist() and self._schedule is tuned
        return ENGINE.choice(kernel) if is_tuned else None

    def source(self, kernel: Kernel | Bundle) -> str:
        from tilewright.codegen.kernel import Bundle
        from tilewright.codegen.llvm import emit

        from ..native import host

        member = kernel.members[0] if isinstance(kernel, Bundle) else kernel
        schedule = self._schedule(kernel)
        try:
            self._check(member, schedule)
            return emit(member, host.machine(), schedule=schedule).source
        except CannotLower as reason:
            return f"# NumPy, not native: {reason}\n{self._numpy.source(kernel)}"


class Cpu(Engine[Schedule]):
    """Native kernels, or NumPy programs in their place."""

    name = "cpu"
    kind = Schedule

    @property
    def identity(self) -> str:
        from ..native import host
        from ..native.pool import num_threads

        machine = host.machine()
        threads = num_threads()
        return f"{platform.machine()} {machine.cpu}, {threads} thread{'s' * (threads > 1)}"

    @property
    def versions(self) -> str:
        return _cpu_versions()

    def device(self) -> Any:
        return LlvmDevice(schedule=lambda kernel: DEFAULT)

    def space(self, kernel: Kernel | Bundle) -> Space[Schedule]:
        from tilewright.codegen.llvm.space import space

        from ..native import host
        from ..native.pool import num_threads

        return space(kernel, host.machine(), num_threads())

    def compile(
        self, device: Any, kernel: Kernel | Bundle, schedules: Sequence[Schedule]
    ) -> list[Launch | Exception]:
        from ..native import jit

        emitted: list[Any] = []
        for schedule in schedules:
            try:
                emitted.append(device.emitted(kernel, schedule))
            except Exception as error:
                pass_on(error)
                emitted.append(error)
        codes = [e.code for found in emitted if isinstance(found, list) for e in found]
        linked = jit.link_all(codes, "kernel")
        out = [
            found if isinstance(found, Exception) else device.linked(kernel, found)
            for found in emitted
        ]
        del linked  # kept until each launch had its part
        return out


@functools.cache
def _cpu_versions() -> str:
    from ..native import host

    number = ".".join(map(str, host.binding().llvm_version_info))
    return f"schedules {FORMAT}, llvm {number}, numpy {np.__version__}"


ENGINE = Cpu()
"""The engine of native kernels, whichever device runs them."""


def make(choice: str) -> Any:
    """The device `cpu`.

    choice: TW_CPU. `auto`: native code where it is possible and faster; `llvm`: native code, or an
    error; `numpy`: NumPy programs. The default is `auto` on platforms where native code has been
    proven, else `numpy`.
    """
    if choice not in ("", "numpy", "auto", "llvm"):
        raise RuntimeError(f"TW_CPU: expected numpy, auto or llvm, got {choice!r}")
    from ..native import host, pack

    if choice == "numpy" or (choice == "" and not host.is_proven()):
        return NumpyDevice()
    reason = host.reason_against()
    if reason is None and not (pack.is_here() or host.compiles()):
        reason = "llvmlite can't be loaded"
    if reason is None:
        return LlvmDevice(force=choice == "llvm")
    if choice == "llvm":
        raise RuntimeError(f"TW_CPU=llvm: {reason}")
    debug.say(f"cpu runs on NumPy: {reason}")
    return NumpyDevice()
