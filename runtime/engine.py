"""Engine: a device as the tuner sees it, with its space of schedules and its compiler."""

from __future__ import annotations

import abc
from collections.abc import Sequence
from dataclasses import asdict, fields
from typing import TYPE_CHECKING, Any, Generic, TypeVar

if TYPE_CHECKING:
    from tilewright.codegen.kernel import Bundle, Kernel
    from tilewright.codegen.lower.external import Site
    from tilewright.codegen.schedule.space import Space

    from .device import Device, Launch
    from .results.choices import Choice
    from .results.key import Key
    from .results.record import Options
    from .tuner.operands import Case

S = TypeVar("S")

FORMAT = 2
"""Increased when the meaning of schedules changes, so that older measurements aren't used."""


class Engine(abc.ABC, Generic[S]):
    """The schedules of a device's kernels. name: the device's, as in `devices.get`."""

    name: str
    kind: type[S]

    @property
    def address(self) -> str:
        """The name by which `named` finds it, in a worker too."""
        return self.name

    @property
    @abc.abstractmethod
    def identity(self) -> str:
        """The name of the machine in stored results."""

    @property
    @abc.abstractmethod
    def versions(self) -> str:
        """The versions of software that measurements depend on."""

    @abc.abstractmethod
    def device(self) -> Device:
        """The device itself. For `cpu` it is the native one."""

    @abc.abstractmethod
    def space(self, kernel: Any) -> Space[S]:
        """The schedules that a kernel can have."""

    @abc.abstractmethod
    def compile(self, device: Any, kernel: Any, schedules: Sequence[S]) -> list[Launch | Exception]:
        """A launch or an error for each schedule; several are compiled side by side."""

    # Messages to a worker, and the worker's reading of them.

    def written(self, kernel: Any) -> str:
        """A kernel as text."""
        from tilewright.codegen.kernel.mlir_printer import print_kernel

        return print_kernel(kernel)

    def read(self, text: str) -> Any:
        """The inverse of `written`."""
        from tilewright.codegen.kernel.mlir_parser import parse_kernel

        return parse_kernel(text)

    def candidates(self, kernel: Any, schedules: Sequence[S]) -> list[Any]:
        """The schedules as JSON for a worker: the options of each."""
        return [self.options(s) for s in schedules]

    def launches(
        self, device: Any, kernel: Any, candidates: Sequence[Any]
    ) -> list[Launch | Exception]:
        """A launch or an error for each candidate, in a worker."""
        return self.compile(device, kernel, [self.schedule(each) for each in candidates])

    def case(self, device: Any, kernel: Any) -> Case | None:
        """The operands of a kernel in a worker; None if they follow from the kernel."""
        return None

    # Stored results. Their modules are imported only where there are any.

    def prior_key(self, kernel: Kernel | Bundle | Site) -> Key:
        """The key of a kernel's predictions."""
        from .results import key as keys

        return keys.of(kernel, f"{self.identity}, predicted", self.versions)

    def schedule(self, options: Options) -> S:
        """The schedule with these stored options. JSON's lists are tuples again."""
        known = {f.name for f in fields(self.kind)}  # type: ignore[arg-type]
        given = {k: tuple(v) if isinstance(v, list) else v for k, v in options.items()}
        return self.kind(**{k: v for k, v in given.items() if k in known})

    def options(self, schedule: S) -> dict[str, Any]:
        """The options to store: all that differ from the type's defaults."""
        default = asdict(self.kind())  # type: ignore[call-overload]
        return {k: v for k, v in asdict(schedule).items() if v != default[k]}  # type: ignore[call-overload]

    def choice(self, kernel: Kernel | Bundle | Site) -> Choice | None:
        """The best known options for a kernel on this machine."""
        from .results import choices

        return choices.find(kernel, self.identity, self.versions)

    def chosen(self, kernel: Kernel | Bundle) -> S | None:
        """The schedule of `choice`."""
        choice = self.choice(kernel)
        return None if choice is None else self.schedule(choice.options)
