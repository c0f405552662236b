"""The CPU as a device: kernels as native code, those that it doesn't suit as NumPy programs."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from tilewright.codegen.kernel import Bundle, Kernel
from tilewright.codegen.llvm import DEFAULT, CannotLower, Emitted, Schedule, check_speed
from tilewright.codegen.target import LLVM

from .. import debug
from ..device import Bound, Launch, Run
from ..tuner import place
from .host import HostDevice
from .numpy import NumpyDevice

if TYPE_CHECKING:
    from ..tuner.choices import Choice


def tuned(kernel: Kernel | Bundle) -> Schedule:
    """What the tuner found for a kernel, or the default."""
    if not place.exist():
        return DEFAULT
    from ..tuner import engines

    return engines.named("cpu").chosen(kernel) or DEFAULT


class LlvmDevice(HostDevice):
    """Host memory, and the cores.

    force: whether also kernels are native that NumPy's libraries compute faster.
    schedule: how a kernel is cut.
    """

    name = "cpu"
    target = LLVM

    def __init__(
        self, force: bool = False, schedule: Callable[[Kernel | Bundle], Schedule] = tuned
    ) -> None:
        super().__init__()
        self._force = force
        self._schedule = schedule
        self._numpy = NumpyDevice()
        self.fallbacks: dict[str, str] = {}  # kernels that are not native, by name, and why

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
        """The launch of a kernel that was emitted, or is left to NumPy."""
        from ..native import launch

        return self._numpy.compile(kernel) if emitted is None else launch.bind(kernel, emitted)

    def runs(self, launches: Sequence[Bound]) -> dict[int, tuple[Run, int]]:
        from ..native import launch

        return launch.runs(launches)

    def repeated(self, launch: Launch, fixed: Sequence[bool]) -> tuple[Launch, Launch]:
        from ..native.launch import Native

        return launch.repeated(fixed) if isinstance(launch, Native) else (launch, launch)

    def emitted(self, kernel: Kernel | Bundle, schedule: Schedule) -> list[Emitted] | None:
        """The kernel as LLVM IR; None if NumPy takes it."""
        from ..native import launch

        try:
            self._check(kernel, schedule)
            return launch.emitted(kernel, schedule)
        except CannotLower as reason:
            self.fallbacks[kernel.name] = str(reason)
            if debug.level():
                print(f"tilewright: {kernel.name} runs on NumPy: {reason}", file=sys.stderr)
            return None

    def _check(self, kernel: Kernel | Bundle, schedule: Schedule) -> None:
        """CannotLower for what NumPy computes faster."""
        from ..native import host

        if self._force or schedule.native:
            return
        if schedule.native is False:
            raise CannotLower("the tuner found NumPy faster")
        check_speed(kernel, host.machine())

    def choice(self, kernel: Kernel | Bundle) -> Choice | None:
        from ..tuner import engines

        is_tuned = place.exist() and self._schedule is tuned
        return engines.named(self.name).choice(kernel) if is_tuned else None

    def source(self, kernel: Kernel | Bundle) -> str:
        from tilewright.codegen.llvm import emit

        from ..native import host

        member = kernel.members[0] if isinstance(kernel, Bundle) else kernel
        schedule = self._schedule(kernel)
        try:
            self._check(member, schedule)
            return emit(member, host.machine(), schedule=schedule).source
        except CannotLower as reason:
            return f"# NumPy, not native: {reason}\n{self._numpy.source(kernel)}"


def make(choice: str) -> Any:
    """The device `cpu`.

    choice: TW_CPU. `auto`: native code where it can be and pays; `llvm`: native code, or an error;
    `numpy`: NumPy programs. By default `auto` on the platforms where native code has been proven,
    else `numpy`.
    """
    if choice not in ("", "numpy", "auto", "llvm"):
        raise RuntimeError(f"TW_CPU: expected numpy, auto or llvm, got {choice!r}")
    from ..native import host

    if choice == "numpy" or (choice == "" and not host.is_proven()):
        return NumpyDevice()
    reason = host.reason_against()
    if reason is None:
        return LlvmDevice(force=choice == "llvm")
    if choice == "llvm":
        raise RuntimeError(f"TW_CPU=llvm: {reason}")
    if debug.level():
        print(f"tilewright: cpu runs on NumPy: {reason}", file=sys.stderr)
    return NumpyDevice()
