"""What can be chosen on a device, and how candidates are compiled there."""

from __future__ import annotations

import abc
import functools
import importlib
import platform
from collections.abc import Sequence
from dataclasses import asdict, fields
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import numpy as np

from tilewright.codegen import llvm
from tilewright.codegen.kernel import Bundle, Kernel
from tilewright.codegen.lower.external import Site
from tilewright.codegen.schedule.space import Space

from ..device import Device, Launch
from . import choices
from . import key as keys
from .record import Options

if TYPE_CHECKING:
    from .operands import Case

S = TypeVar("S")

FORMAT = 1
"""Counted up when schedules come to mean something else: then what was measured is not used."""


class Engine(abc.ABC, Generic[S]):
    """name: of the device, as `devices.get` knows it."""

    name: str
    kind: type[S]

    @property
    def address(self) -> str:
        """What `named` finds it by, in a worker too."""
        return self.name

    @property
    @abc.abstractmethod
    def identity(self) -> str:
        """The machine as results are kept for it."""

    @property
    @abc.abstractmethod
    def versions(self) -> str:
        """What measurements depend on besides."""

    @abc.abstractmethod
    def device(self) -> Device:
        """The device; its `cpu` is the native one."""

    @abc.abstractmethod
    def space(self, kernel: Any) -> Space[S]:
        """What a kernel can have."""

    @abc.abstractmethod
    def compile(self, device: Any, kernel: Any, schedules: Sequence[S]) -> list[Launch | Exception]:
        """A launch for each schedule, or what went wrong; several are compiled side by side."""

    # What a worker is sent, and what it makes of that.

    def written(self, kernel: Any) -> str:
        """A kernel as text."""
        from tilewright.codegen.kernel.mlir_printer import print_kernel

        return print_kernel(kernel)

    def read(self, text: str) -> Any:
        """The kernel that was written."""
        from tilewright.codegen.kernel.mlir_parser import parse_kernel

        return parse_kernel(text)

    def candidates(self, kernel: Any, schedules: Sequence[S]) -> list[Any]:
        """Each schedule for a worker, as JSON: its options."""
        return [self.options(s) for s in schedules]

    def launches(
        self, device: Any, kernel: Any, candidates: Sequence[Any]
    ) -> list[Launch | Exception]:
        """What came of each candidate, in a worker."""
        return self.compile(device, kernel, [self.schedule(each) for each in candidates])

    def case(self, device: Any, kernel: Any) -> Case:
        """What a kernel that was read is given in a worker."""
        from .operands import case_of

        return case_of(kernel)

    # What is kept

    def prior_key(self, kernel: Kernel | Bundle | Site) -> keys.Key:
        """What predictions for a kernel are kept under."""
        return keys.of(kernel, f"{self.identity}, predicted", self.versions)

    def schedule(self, options: Options) -> S:
        """Of options that were kept. Lists are tuples in JSON's clothes."""
        known = {f.name for f in fields(self.kind)}  # type: ignore[arg-type]
        given = {k: tuple(v) if isinstance(v, list) else v for k, v in options.items()}
        return self.kind(**{k: v for k, v in given.items() if k in known})

    def options(self, schedule: S) -> dict[str, Any]:
        """What is to be kept: all that differs from the type's defaults."""
        default = asdict(self.kind())  # type: ignore[call-overload]
        return {k: v for k, v in asdict(schedule).items() if v != default[k]}  # type: ignore[call-overload]

    def choice(self, kernel: Kernel | Bundle | Site) -> choices.Choice | None:
        """What is known to be best for a kernel here."""
        return choices.find(kernel, self.identity, self.versions)

    def chosen(self, kernel: Kernel | Bundle) -> S | None:
        """The same as a schedule."""
        choice = self.choice(kernel)
        return None if choice is None else self.schedule(choice.options)


class Cpu(Engine[llvm.Schedule]):
    """Native kernels, or NumPy programs in their place."""

    name = "cpu"
    kind = llvm.Schedule

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
        from ..cpu.native import LlvmDevice

        return LlvmDevice(schedule=lambda kernel: llvm.DEFAULT)

    def space(self, kernel: Kernel | Bundle) -> Space[llvm.Schedule]:
        from tilewright.codegen.llvm.space import space

        from ..native import host
        from ..native.pool import num_threads

        return space(kernel, host.machine(), num_threads())

    def compile(
        self, device: Any, kernel: Kernel | Bundle, schedules: Sequence[llvm.Schedule]
    ) -> list[Launch | Exception]:
        from ..native import jit

        emitted: list[Any] = []
        for schedule in schedules:
            try:
                emitted.append(device.emitted(kernel, schedule))
            except Exception as error:
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


USERS = "users@"
_ENGINES: dict[str, type[Engine[Any]]] = {"cpu": Cpu}


def known(device: str) -> bool:
    """Whether there is something to choose on a device."""
    return device in _ENGINES or device.startswith("cuda")


@functools.cache
def named(name: str) -> Engine[Any]:
    """The engine of a device, that of the user's kernels there (`users@cuda:0`), or one that is
    written out as `module:Class`. ValueError if nothing can be chosen there."""
    if name in _ENGINES:
        return _ENGINES[name]()
    if name.startswith(USERS):
        from .users import Users

        return Users(name.removeprefix(USERS))
    module, _, what = name.partition(":")
    if what and not what.isdigit():
        made: Engine[Any] = getattr(importlib.import_module(module), what)()
        return made
    if module == "cuda":
        from .gpu import Gpu

        return Gpu(name)
    raise ValueError(f"there is nothing to tune on {name!r}: expected cpu or cuda")
