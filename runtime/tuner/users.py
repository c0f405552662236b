"""The configs of autotuned kernels of the user's.

The process that has the kernel compiles the configs, and sends machine code to a worker. The worker
needs neither the user's module nor Triton. The first config's results are the reference.
"""

from __future__ import annotations

import base64
import functools
import pickle
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from tilewright.codegen.kernel import Buffer
from tilewright.codegen.lower.external import Autotuned, Config
from tilewright.codegen.schedule.space import Space
from tilewright.codegen.triton import Emitted
from tilewright.ir.dtype import FLOAT

from .. import devices
from ..cuda.kernels import Packed
from ..device import Launch
from ..engine import Engine
from ..results.record import CannotTune, Options
from .operands import Case, operand

USERS = "users@"
"""The prefix of a device's name for the engine of the user's kernels there."""


@dataclass(frozen=True)
class Sample:
    """An autotuned kernel as a worker gets it. reference: its first config."""

    outputs: tuple[Buffer, ...]
    inputs: tuple[Buffer, ...]
    scalars: tuple[float, ...]
    reference: Packed


class Users(Engine[Config]):
    """The engine of the user's kernels on a device."""

    def __init__(self, name: str):
        self.name = name

    @property
    def _gpu(self) -> Engine[Any]:
        engine = self.device().engine
        assert engine is not None, f"nothing can be chosen on {self.name}"
        return engine

    @property
    def address(self) -> str:
        return f"{USERS}{self.name}"

    @functools.cached_property
    def identity(self) -> str:  # type: ignore[override]  # asked for at each launch
        return self._gpu.identity

    @property
    def versions(self) -> str:
        return self._gpu.versions

    def device(self) -> Any:
        return devices.get(self.name)

    def schedule(self, options: Options) -> Config:
        return tuple(sorted(options.items()))

    def options(self, schedule: Config) -> dict[str, Any]:
        return dict(schedule)

    def space(self, kernel: Any) -> Space[Config]:
        """The configs, with an axis for each of their keywords. CannotTune where nothing is
        compiled."""
        if not self.name.startswith("cuda"):
            raise CannotTune(
                f"configs of @triton.autotune are tuned on cuda: on {self.name} Triton's "
                "interpreter runs the kernel"
            )
        if not kernel.launches:
            raise CannotTune("its first config can't be launched")
        configs = tuple(kernel.launches)
        axes: dict[str, list[Any]] = {}
        for config in configs:
            for name, value in config:
                axes.setdefault(name, []).append(value)
        for name, values in axes.items():
            axes[name] = list(dict.fromkeys(values))
            if all(isinstance(v, (int, float)) for v in values):
                axes[name].sort()
        places = {
            config: tuple(
                values.index(dict(config)[name]) if name in dict(config) else -1
                for name, values in axes.items()
            )
            for config in configs
        }
        return Space(configs, places, {})

    def compile(
        self, device: Any, kernel: Any, schedules: Sequence[Config]
    ) -> list[Launch | Exception]:
        return self.launches(device, kernel, self.candidates(kernel, schedules))

    def written(self, kernel: Autotuned) -> str:
        first = next(iter(kernel.launches.values()))
        try:
            reference = self._packed(first)
        except Exception as error:
            raise CannotTune(f"its first config doesn't compile: {_said(error)}") from error
        return _text(Sample(kernel.outputs, kernel.inputs, kernel.scalars, reference))

    def read(self, text: str) -> Sample:
        sample: Sample = _object(text)
        return sample

    def candidates(self, kernel: Autotuned, schedules: Sequence[Config]) -> list[Any]:
        """Machine code of each config, or the reason why there is none."""
        found = []
        for schedule in schedules:
            try:
                found.append({"code": _text(self._packed(kernel.launches[schedule]))})
            except Exception as error:
                found.append({"error": _said(error)})
        return found

    def launches(
        self, device: Any, kernel: Any, candidates: Sequence[Any]
    ) -> list[Launch | Exception]:
        found: list[Launch | Exception] = []
        for each in candidates:
            try:
                if "error" in each:
                    raise RuntimeError(each["error"])
                found += device.compile_all([_object(each["code"])])
            except Exception as error:
                found.append(error)
        return found

    def case(self, device: Any, kernel: Sample) -> Case:
        """Operands. Outputs are filled with numbers too, since some kernels update them. Integers
        are zeros, the one safe value for positions, lengths and locks."""
        random = np.random.default_rng(0)
        before, inputs = (
            [
                operand(b.dtype, b.size, None, random)
                if b.dtype.category == FLOAT
                else np.zeros(b.size, b.dtype.np)
                for b in buffers
            ]
            for buffers in (kernel.outputs, kernel.inputs)
        )
        (launch,) = device.compile_all([kernel.reference])
        outputs = [*map(device.from_numpy, before)]
        launch([*outputs, *map(device.from_numpy, inputs)], kernel.scalars)
        device.synchronize()
        return Case(before, inputs, kernel.scalars, [*map(device.to_numpy, outputs)])

    def _packed(self, emitted: Emitted) -> Packed:
        (image,) = self.device().kernels.images([emitted])
        # A launch needs the arguments and the grid alone.
        bare = replace(emitted, body="", constexprs={}, function=None)
        return Packed(bare, image, None)


def _said(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"


def _text(what: Any) -> str:
    return base64.b64encode(pickle.dumps(what)).decode()


def _object(text: str) -> Any:
    return pickle.loads(base64.b64decode(text))
