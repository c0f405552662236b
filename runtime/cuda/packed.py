"""Programs compiled ahead of time: one file has everything that a run needs.

The file is a ZIP archive, stored as it is:
    program.json   the chip, inputs and outputs, slots, steps, and each kernel's launch
    kernels/       the kernels' machine code
    tables/        arrays that kernels read, as .npy
    weights/       values of the leaves that aren't inputs, as .npy
"""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tilewright.codegen.kernel import Bundle, Kernel
from tilewright.codegen.kernel.index import Check
from tilewright.codegen.lower.external import External
from tilewright.codegen.lower.host import Routine
from tilewright.codegen.program import Loop, Program, Slot, Step, launched
from tilewright.codegen.schedule import Schedule, Usage, default_schedule, settled
from tilewright.codegen.target import gpu
from tilewright.codegen.triton import Argument, Emitted, emit
from tilewright.ir import dtype as dtypes
from tilewright.ir import ops
from tilewright.ir.dtype import DType, is_added
from tilewright.ir.node import intern
from tilewright.ir.shape import Size

from .. import files, offline
from ..run import run_segment
from ..segments import segment
from .image import Image, suited
from .kernels import Packed

if TYPE_CHECKING:
    from .device import Cuda
    from .memory import Buffer

FORMAT = 3
"""The number of the file's format. Files with another number are refused."""


class PackError(RuntimeError):
    """A program can't be packed, or a file isn't a packed program."""


@dataclass(frozen=True)
class Value:
    """An input or an output."""

    name: str
    shape: tuple[int, ...]
    dtype: DType


@dataclass(frozen=True, eq=False)
class Package:
    """A program with its kernels for one chip.

    inputs: in the order of their leaves' numbers; the leaves after them are `weights`. program: its
    kernels are `Packed`.
    """

    target: str
    inputs: tuple[Value, ...]
    outputs: tuple[Value, ...]
    weights: tuple[np.ndarray, ...]
    program: Program

    @property
    def kernels(self) -> tuple[Packed, ...]:
        found: Any = dict.fromkeys(launched(self.program))
        return tuple(found)


# ---- writing ---------------------------------------------------------------------------------


def pack(
    program: Program,
    target: str,
    inputs: Sequence[Value],
    outputs: Sequence[Value],
    weights: Mapping[int, np.ndarray],
    schedule: Callable[..., Schedule] = default_schedule,
) -> Package:
    """Compile a program's kernels for `target`. `weights` has the values of leaves that aren't
    inputs.

    PackError for a program that the GPU can't run alone.
    """
    if program.scalars:
        raise PackError(
            "the program reads numbers that the host draws for each run, such as the seed of a "
            "random op: call model.eval(), or make it a function of tensors"
        )
    kernels = []
    for kernel in dict.fromkeys(launched(program)):
        if isinstance(kernel, Routine):
            raise PackError(f"a library computes {kernel.name}: a GPU alone has no kernel for it")
        kernels.append(kernel)
    looped = {
        k
        for step in program.steps
        if isinstance(step.kernel, Loop)
        for k in launched(step.kernel.body)
        if not isinstance(k, Routine)
    }
    made = _compiled(kernels, looped, schedule, target)
    rest = [e.unaligned() for k, (e, _) in made.items() if k in looped]
    others = offline.compile_many([offline.request(e, target) for e in rest])
    unaligned = dict(zip((k for k in made if k in looped), map(Image.of, others), strict=True))
    packed = {k: Packed(e, image, unaligned.get(k)) for k, (e, image) in made.items()}
    order = {n: i for i, n in enumerate((*range(len(inputs)), *weights))}
    return Package(
        target,
        tuple(inputs),
        tuple(outputs),
        tuple(weights.values()),
        _renumbered(_with_kernels(program, packed), order),
    )


def _compiled(
    kernels: Sequence[Kernel | Bundle | External],
    looped: set[Any],
    schedule: Callable[..., Schedule],
    target: str,
) -> dict[Kernel | Bundle | External, tuple[Emitted, Image]]:
    """Each kernel in Triton and compiled; one that spills in its default schedule, in another."""
    machine = gpu(target)
    found: dict[Kernel | Bundle | External, tuple[Emitted, Image]] = {}

    def compiled(asked: Mapping[Any, Schedule | None]) -> dict[Any, Usage]:
        emitted = {k: _emitted(k, each, target) for k, each in asked.items()}
        # Rows that loops walk through may lie at any address, which rules descriptors out.
        emitted = {k: e.plain or e if k in looped else e for k, e in emitted.items()}
        made = offline.compile_many([offline.request(e, target) for e in emitted.values()])
        found.update({k: (e, Image.of(c)) for (k, e), c in zip(emitted.items(), made, strict=True)})
        return {k: found[k][1].usage for k in asked}

    settled(
        {k: schedule(k, machine) for k in kernels if not isinstance(k, External)}, machine, compiled
    )
    compiled({k: None for k in kernels if isinstance(k, External)})
    return {k: found[k] for k in kernels}


def _emitted(kernel: Kernel | Bundle | External, schedule: Schedule | None, target: str) -> Emitted:
    if isinstance(kernel, External):
        return kernel.emitted
    assert schedule is not None
    try:
        return suited(emit(kernel, schedule), target)
    except NotImplementedError as reason:
        raise PackError(f"{kernel.name} has no kernel on a GPU: {reason}") from reason


def _with_kernels(program: Program, packed: Mapping[Any, Any]) -> Program:
    steps = []
    for step in program.steps:
        kernel = step.kernel
        if isinstance(kernel, Loop):
            kernel = replace(kernel, body=_with_kernels(kernel.body, packed))
        else:
            kernel = packed[kernel]
        steps.append(replace(step, kernel=kernel))
    return replace(program, steps=tuple(steps))


def _renumbered(program: Program, order: Mapping[int, int]) -> Program:
    leaves = {_leaf(order[n.attrs[0]], program.slots[s]): s for n, s in program.leaves.items()}
    return replace(program, leaves=leaves)


def _leaf(number: int, slot: Slot) -> Any:
    return intern(ops.leaf, (), (number, Size(slot.shape), slot.dtype), None)


class _Writer:
    def __init__(self, package: Package):
        self.package = package
        self.files: dict[str, bytes] = {}
        self.kernels: dict[Packed, int] = {}

    def write(self, path: str | Path) -> None:
        package = self.package
        for i, array in enumerate(package.weights):
            self.array(f"weights/{i}.npy", array)
        about = {
            "format": FORMAT,
            "target": package.target,
            "inputs": [_value(v) for v in package.inputs],
            "outputs": [_value(v) for v in package.outputs],
            "weights": len(package.weights),
            "program": self.program(package.program),
        }
        about["kernels"] = [self.kernel(i, kernel) for kernel, i in self.kernels.items()]
        with files.whole(path) as file, zipfile.ZipFile(file, "w") as archive:
            archive.writestr("program.json", json.dumps(about, indent=1))
            for name, content in self.files.items():
                archive.writestr(name, content)

    def array(self, name: str, array: np.ndarray) -> str:
        # The file format doesn't know the dtypes of ml_dtypes, so their bits are stored.
        out = io.BytesIO()
        bits = array.view(f"u{array.dtype.itemsize}") if is_added(array.dtype) else array
        np.save(out, np.ascontiguousarray(bits).reshape(array.shape), allow_pickle=False)
        self.files[name] = out.getvalue()
        return name

    def program(self, program: Program) -> dict[str, Any]:
        return {
            "slots": [[list(s.shape), s.dtype.name] for s in program.slots],
            "leaves": [[leaf.attrs[0], slot] for leaf, slot in program.leaves.items()],
            "steps": [
                [self.launched(step.kernel), list(step.outputs), list(step.inputs)]
                for step in program.steps
            ],
            "results": list(program.results),
        }

    def launched(self, kernel: Any) -> Any:
        if isinstance(kernel, Packed):
            return self.kernels.setdefault(kernel, len(self.kernels))
        about = {f: getattr(kernel, f) for f in ("name", "count", "sequences", "states", "reverse")}
        return {**about, "shapes": list(kernel.shapes), "body": self.program(kernel.body)}

    def kernel(self, number: int, kernel: Packed) -> dict[str, Any]:
        emitted = kernel.emitted
        arguments = []
        for i, a in enumerate(emitted.arguments):
            value = a.value
            if a.role == "table":
                value = self.array(f"tables/{number}.{i}.npy", np.asarray(value))
            arguments.append([a.name, a.type, a.role, value])
        about: dict[str, Any] = {
            "name": emitted.name,
            "grid": emitted.grid,
            "arguments": arguments,
            "checks": [[c.size, c.axis, list(c.loc), c.failure] for c in emitted.checks],
        }
        for field in ("image", "unaligned"):
            image: Image | None = getattr(kernel, field)
            if image is not None:
                name = f"kernels/{number}.{emitted.name}.{field}"
                self.files[name] = image.binary
                about[field] = [name, image.numbers()]
        return about


def _value(value: Value) -> list[Any]:
    return [value.name, list(value.shape), value.dtype.name]


def write(package: Package, path: str | Path) -> None:
    """Write the package to a file, whole or not at all."""
    _Writer(package).write(path)


# ---- reading ---------------------------------------------------------------------------------


def read(path: str | Path) -> Package:
    """Read a package from a file; PackError if it holds none."""
    try:
        with zipfile.ZipFile(path) as archive:
            return _Reader(archive).package()
    except (zipfile.BadZipFile, KeyError, IndexError, TypeError, ValueError) as error:
        raise PackError(
            f"{path} is no program that `tilewright compile` wrote, or it is damaged: {error}"
        ) from error


class _Reader:
    def __init__(self, archive: zipfile.ZipFile):
        self.archive = archive
        self.about = json.loads(archive.read("program.json"))
        if self.about["format"] != FORMAT:
            raise PackError(
                f"{archive.filename} has format {self.about['format']}, this version of tilewright "
                f"reads {FORMAT}: compile it again"
            )
        self.kernels: list[Packed] = []

    def package(self) -> Package:
        about = self.about
        self.kernels = [self.kernel(each) for each in about["kernels"]]
        inputs, outputs = (tuple(map(_read_value, about[k])) for k in ("inputs", "outputs"))
        program = self.program(about["program"])
        dtype_of = {n.attrs[0]: n.dtype for n in program.leaves}
        weights = tuple(
            self.array(f"weights/{i}.npy", dtype_of.get(len(inputs) + i))
            for i in range(about["weights"])
        )
        return Package(about["target"], inputs, outputs, weights, program)

    def array(self, name: str, dtype: DType | None = None) -> np.ndarray:
        array = np.load(io.BytesIO(self.archive.read(name)), allow_pickle=False)
        return array if dtype is None else array.view(dtype.np)

    def program(self, about: dict[str, Any]) -> Program:
        slots = tuple(Slot(tuple(s), dtypes.named(d), None) for s, d in about["slots"])
        leaves = {_leaf(number, slots[slot]): slot for number, slot in about["leaves"]}
        steps = tuple(
            Step(self.launched(kernel), tuple(outputs), tuple(inputs))
            for kernel, outputs, inputs in about["steps"]
        )
        return Program(slots, leaves, (), steps, tuple(about["results"]))

    def launched(self, about: Any) -> Any:
        if isinstance(about, int):
            return self.kernels[about]
        shapes = tuple(map(tuple, about["shapes"]))
        return Loop(**{**about, "shapes": shapes, "body": self.program(about["body"])})

    def kernel(self, about: dict[str, Any]) -> Packed:
        arguments = []
        for name, kind, role, value in about["arguments"]:
            if role == "table":
                value = self.array(value)
            elif role == "pointers":
                value = tuple(value)
            arguments.append(Argument(name, kind, role, value))
        checks: Any = tuple(
            Check(size, axis, tuple(loc), failure) for size, axis, loc, failure in about["checks"]
        )
        emitted = Emitted(
            about["name"], "", (), "", tuple(arguments), {}, about["grid"], 0, 0, checks
        )
        return Packed(emitted, self.image(about["image"]), self.image(about.get("unaligned")))

    def image(self, about: Any) -> Any:
        if about is None:
            return None
        name, numbers = about
        return Image.read(self.archive.read(name), numbers)


def _read_value(about: Any) -> Value:
    name, shape, dtype = about
    return Value(name, tuple(shape), dtypes.named(dtype))


# ---- running ---------------------------------------------------------------------------------


class Loaded:
    """A package on a GPU, ready to run."""

    def __init__(self, package: Package, device: Cuda):
        _check_chip(package.target, device.kernels.target)
        self.package, self.device = package, device
        shapes = [v.shape for v in package.outputs]
        self.segment = segment(device, package.program, shapes)
        self.weights = [device.from_numpy(w) for w in package.weights]

    def run(self, inputs: Sequence[Buffer]) -> list[Buffer]:
        """Run on the inputs' buffers and return the outputs' buffers."""
        given = [b if b.pointer % 16 == 0 else self.device.copied(b, self.device) for b in inputs]
        failures: list[Exception] = []
        found = run_segment(self.segment, [*given, *self.weights], (), {}, (), failures)
        if failures:
            raise failures[0]
        return found


def _check_chip(wanted: str, present: str) -> None:
    """Raise PackError if machine code for `wanted` doesn't run on `present`. It runs on chips of
    the same major and the same or a higher minor number. From sm_90 on Triton compiles for one chip
    alone (sm_90a)."""
    major, minor = wanted[3:-1], wanted[-1]
    fits = present[3:-1] == major and present[-1] >= minor and int(major) < 9
    if present != wanted and not fits:
        raise PackError(
            f"the program was compiled for {wanted}, this GPU is {present}: compile it again with "
            f"--target {present}"
        )
