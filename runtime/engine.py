"""What can be chosen on a device, and how candidates are compiled there."""

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

    def case(self, device: Any, kernel: Any) -> Case | None:
        """What a kernel that was read is given in a worker; None if that follows from it."""
        return None

    # What is kept: loaded where there is anything.

    def prior_key(self, kernel: Kernel | Bundle | Site) -> Key:
        """What predictions for a kernel are kept under."""
        from .results import key as keys

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

    def choice(self, kernel: Kernel | Bundle | Site) -> Choice | None:
        """What is known to be best for a kernel here."""
        from .results import choices

        return choices.find(kernel, self.identity, self.versions)

    def chosen(self, kernel: Kernel | Bundle) -> S | None:
        """The same as a schedule."""
        choice = self.choice(kernel)
        return None if choice is None else self.schedule(choice.options)
