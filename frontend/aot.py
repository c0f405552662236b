"""Ahead of time: compile models for a GPU that needn't be there, and run them without a compiler.

torch.aot.compile(model, (torch.randn(8, 3, 224, 224),), "model.tw", target="sm_90")
model = torch.aot.load("model.tw")     # on the machine with the GPU; without Triton
y = model(x)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tilewright.ir.location import at_user_line
from tilewright.runtime import devices as runtime_devices

from . import devices, recording
from .exchange import arrays
from .functions import from_data
from .recording.reading import value_of
from .recording.states import Handle

if TYPE_CHECKING:
    from tilewright.codegen.schedule import Schedule
    from tilewright.runtime.cuda.packed import Loaded, Package

    from .types import DeviceLike

__all__ = ["CompiledModel", "compile", "load"]


def compile(
    model: Callable[..., Any],
    args: Any,
    path: str | Path,
    *,
    kwargs: Mapping[str, Any] | None = None,
    target: str = "sm_90",
    schedule: Callable[..., Schedule] | None = None,
) -> Package:
    """Compile a call of a module (in eval mode) or function, and write it to one file.

    args, kwargs: the call's arguments. Their tensors are the inputs, of fixed shapes and dtypes.
    All other values that the call reads are written to the file. target: the chip, such as sm_80,
    sm_90 or sm_100. schedule: a function of a kernel and the target that says how to cut it.

    RuntimeError if the call looks at a value while it is recorded, draws random numbers, or has a
    kernel that a GPU can't run.
    """
    from tilewright.codegen.program import compile_graph
    from tilewright.codegen.schedule import default_schedule
    from tilewright.codegen.target import gpu
    from tilewright.ir.passes.pipeline import lower_graph
    from tilewright.runtime.cuda import packed

    from .inspection.tracing import Call

    if not target.startswith("sm_"):
        raise ValueError(f"expected an NVIDIA target such as sm_90, got {target!r}{at_user_line()}")
    call = Call(model, args, kwargs)
    found = call.record()
    roots = list(found.outputs.values())
    program = compile_graph(lower_graph(roots), runtime_devices.switched(gpu(target)))
    # The inputs are resolved first, so they are the first leaves.
    used = sorted(leaf.attrs[0] for leaf in program.leaves)
    package = packed.pack(
        program,
        target,
        [
            packed.Value(name, tuple(t.shape), t.dtype)
            for name, t in zip(call.names, call.inputs, strict=True)
        ],
        [packed.Value(name, tuple(n.shape), n.dtype) for name, n in found.outputs.items()],
        {number: found.values[number] for number in used if number >= len(call.inputs)},
        schedule or default_schedule,
    )
    packed.write(package, path)
    return package


def load(path: str | Path, device: DeviceLike | None = None) -> CompiledModel:
    """Load a model that `compile` wrote, onto a GPU (the current one if none is named).

    RuntimeError if there is no GPU of the kind it was compiled for, or the file is damaged.
    """
    from tilewright.runtime.cuda import packed

    where = devices.device("cuda" if device is None else device)
    if where.type != "cuda":
        raise RuntimeError(f"compiled models run on a GPU, not on {where}{at_user_line()}")
    number = devices.current_cuda() if where.index is None else where.index
    return CompiledModel(packed.Loaded(packed.read(path), runtime_devices.driven(number)))


class CompiledModel:
    """A compiled model on a GPU: called with tensors of the shapes and dtypes it was compiled for.

    inputs, outputs: each with name, shape and dtype.
    """

    def __init__(self, loaded: Loaded):
        self._loaded = loaded
        self.inputs, self.outputs = loaded.package.inputs, loaded.package.outputs

    def __call__(self, *tensors: Any) -> Any:
        """The outputs: a tensor, or a tuple of tensors. They are on the GPU if any input is there
        or if there are no inputs, and on the CPU otherwise."""
        self._check(tensors)
        device = self._loaded.device
        found = self._loaded.run([self._buffer(t) for t in tensors])
        there = not tensors or any(t.device.type == "cuda" for t in tensors)
        results = []
        for value, buffer in zip(self.outputs, found, strict=True):
            if there:
                results.append(from_data.from_buffer(buffer, value.dtype, device.name))
            else:
                array = np.array(device.to_numpy(buffer))
                results.append(from_data.from_buffer(array, value.dtype))
        return results[0] if len(results) == 1 else tuple(results)

    def _check(self, tensors: Sequence[Any]) -> None:
        if len(tensors) != len(self.inputs):
            names = ", ".join(v.name for v in self.inputs)
            raise TypeError(
                f"expected {len(self.inputs)} inputs ({names}), got {len(tensors)}{at_user_line()}"
            )
        for value, t in zip(self.inputs, tensors, strict=True):
            if not isinstance(t, Handle):
                raise TypeError(
                    f"{value.name}: expected a Tensor, got {type(t).__name__}{at_user_line()}"
                )
            if tuple(t.shape) != value.shape or t.dtype is not value.dtype:
                raise RuntimeError(
                    f"{value.name}: expected {value.dtype} of shape {list(value.shape)}, got "
                    f"{t.dtype} of shape {list(t.shape)}; sizes are fixed when a model is compiled"
                    f"{at_user_line()}"
                )

    def _buffer(self, t: Any) -> Any:
        device = self._loaded.device
        if t.device.type == "cuda":
            name = t._typed()[2]
            buffer = value_of(recording.resolve(t))
            return (
                device.copied(buffer, runtime_devices.get(name)) if name != device.name else buffer
            )
        return device.from_numpy(np.asarray(arrays.array_of(t.detach())).reshape(t.shape))

    def __repr__(self) -> str:
        def shown(values: Sequence[Any]) -> str:
            return ", ".join(f"{v.name}: {v.dtype}{list(v.shape)}" for v in values)

        return (
            f"CompiledModel({self._loaded.package.target}, {shown(self.inputs)} -> "
            f"{shown(self.outputs)})"
        )
