"""wrap_triton: a launch of a user's Triton kernel, recorded as nodes of the graph.

What the kernel writes to gets a new value, as by any in-place op. A tensor is passed as memory with
the strides that it reports: one that is contiguous as itself, a view with gaps as the whole of what
it looks into, from its first element on.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tilewright.codegen.external import register
from tilewright.ir import dtype as dtypes
from tilewright.ir import ops
from tilewright.ir.location import at_user_line, user_location
from tilewright.ir.node import Node, format_location
from tilewright.ir.op import Kind
from tilewright.ir.ops.external import external
from tilewright.runtime import modules

from .. import recording, shaping, views
from ..recording import Handle
from .configs import settled
from .stores import stored

# What our own kernels take as bytes.
_KINDS = {
    dtypes.bool_: "*i1",
    dtypes.float8_e4m3fn: "*fp8e4nv",
    dtypes.float8_e5m2: "*fp8e5",
}
_OPTIONS: dict[str, Any] = {"num_warps": 4, "num_stages": 3}
"""What a launch may be given beside the kernel's parameters, with Triton's defaults."""
_FIXED: dict[str, Any] = {"num_ctas": 1, "maxnreg": None, "ir_override": None}
"""What it may be given if it is this."""
_PATIENCE = 3  # other values of a number until it is an input of the run


class TritonKernel:
    """A Triton kernel whose launches are recorded: `wrap_triton(kernel)[grid](*args, **kwargs)`."""

    def __init__(self, kernel: Any):
        self.kernel = kernel

    def __getitem__(self, grid: Any) -> Callable[..., None]:
        return lambda *args, **kwargs: _launch(self.kernel, grid, args, kwargs)

    def __call__(self, *args: Any, **kwargs: Any) -> None:
        raise RuntimeError(f"a kernel is launched over a grid: kernel[grid](...){at_user_line()}")


def wrap_triton(triton_kernel: Any, /) -> TritonKernel:
    """A kernel of @triton.jit, @triton.autotune or @triton.heuristics, to be launched on tensors.

    On a GPU it is compiled, on the CPU Triton's interpreter runs it. Gradients don't flow through
    a launch: `triton_op` and `register_autograd` say how.
    """
    if isinstance(triton_kernel, TritonKernel):
        return triton_kernel
    if not (hasattr(triton_kernel, "fn") and hasattr(triton_kernel, "arg_names")):
        raise RuntimeError(
            "wrap_triton only works on functions annotated with triton.jit or triton.autotune, got "
            f"{type(triton_kernel).__name__}{at_user_line()}"
        )
    return TritonKernel(triton_kernel)


def _launch(kernel: Any, grid: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> None:
    function, given = settled(kernel, args, kwargs)
    options = _options(function, given)
    values = _bound(function, args, given)
    programs = _grid(grid, values)
    if 0 in programs:
        return
    with recording.hold():
        _Recorder(function, values).record(programs, options)
    recording.settle()


def _options(function: Any, given: dict[str, Any]) -> tuple[int, ...]:
    """Takes the options out of the keyword arguments; ValueError for one that can't be had."""
    for name, only in _FIXED.items():
        found = given.pop(name, only) if name not in function.arg_names else only
        if found != only:
            raise ValueError(
                f"{function.__name__}: {name}={found} is not supported, kernels are launched with "
                f"{name}={only}{at_user_line()}"
            )
    return tuple(
        usual if name in function.arg_names else operator.index(given.pop(name, usual))
        for name, usual in _OPTIONS.items()
    )


def _bound(function: Any, args: Sequence[Any], given: dict[str, Any]) -> dict[str, Any]:
    """The value of each parameter, in their order."""
    try:
        bound = function.signature.bind(*args, **given)
    except TypeError as error:
        raise TypeError(f"{function.__name__}: {error}{at_user_line()}") from None
    bound.apply_defaults()
    return dict(bound.arguments)


def _grid(grid: Any, values: dict[str, Any]) -> tuple[int, int, int]:
    found = grid(values) if callable(grid) else grid
    sizes = (found,) if isinstance(found, (int, np.integer)) else found
    try:
        counts = [operator.index(size) for size in sizes]
    except TypeError:
        counts = []
    if not 0 < len(counts) < 4 or min(counts) < 0:
        raise ValueError(
            f"a grid is one to three numbers of programs, got {found!r}{at_user_line()}"
        )
    x, y, z, *_ = (*counts, 1, 1)
    return x, y, z


@dataclass
class _Operand:
    """Memory that is passed to a kernel. state: a tensor that sees all of it."""

    state: Any
    node: Node
    written: bool = False


@dataclass
class _Recorder:
    """One launch: from the values of a kernel's parameters to nodes."""

    function: Any
    values: dict[str, Any]
    operands: dict[Any, _Operand] = field(default_factory=dict)
    numbers: list[Node] = field(default_factory=list)

    def record(self, programs: tuple[int, int, int], options: tuple[int, ...]) -> None:
        tensors = {n: v for n, v in self.values.items() if isinstance(v, Handle)}
        self._check_devices(tensors)
        self.written = stored(self.function)
        self.shapes = tuple(tuple(t.shape) for t in tensors.values())
        # Of tensors that share memory one may be written to, and the others read what is there.
        self.shared = self._shared(tensors)
        passed = tuple([self._passed(p, self.values[p.name]) for p in self.function.params])
        places = list(self.operands.values())
        written = tuple(i for i, o in enumerate(places) if o.written)
        if not written:
            return  # nothing that could be seen of it
        key = self.function, passed, written, len(places), programs, options
        name = register(key, lambda: self._emitted(passed, written, programs, options))
        nodes = [*(o.node for o in places), *self.numbers]
        with recording.grad_mode(False):
            after = [external(*nodes, name, len(places), written, i) for i in range(len(written))]
            for i, value in zip(written, after, strict=True):
                _overwrite(places[i], value)

    def _check_devices(self, tensors: dict[str, Any]) -> None:
        where = {n: str(t.device) for n, t in tensors.items()}
        if len(set(where.values())) > 1:
            found = ", ".join(f"{n} on {d}" for n, d in where.items())
            raise RuntimeError(
                f"{self.function.__name__}: Expected all tensors to be on the same device, got "
                f"{found}{at_user_line()}"
            )

    def _shared(self, tensors: dict[str, Any]) -> set[int]:
        """The storages that several views are passed of, one of which is written to."""
        views_of: dict[int, list[str]] = {}
        for name, t in tensors.items():
            if t._storage is not None:
                views_of.setdefault(id(t._storage), []).append(name)
        return {s for s, names in views_of.items() if len(names) > 1 and self.written & {*names}}

    # Each parameter is passed as a tuple of what it is; equal tuples are one compiled launch.

    def _passed(self, param: Any, value: Any) -> tuple[Any, ...]:
        if isinstance(value, np.generic):
            value = value.item()
        if param.is_constexpr or value is None:
            return self._constant(param.name, value)
        if isinstance(value, Handle):
            return self._tensor(param.name, value)
        if type(value).__name__ == "constexpr":
            value = value.value
        if isinstance(value, (bool, int, float)):
            return self._number(param, value)
        raise TypeError(
            f"{self.function.__name__}: argument {param.name!r} must be a Tensor, a number or None"
            f", got {type(value).__name__}{at_user_line()}"
        )

    def _constant(self, name: str, value: Any) -> tuple[Any, ...]:
        value = getattr(value, "value", value) if type(value).__name__ == "constexpr" else value
        if isinstance(value, Handle):
            raise TypeError(
                f"{self.function.__name__}: {name!r} is a constexpr, which no Tensor can be"
                f"{at_user_line()}"
            )
        try:
            hash(value)
        except TypeError:
            raise TypeError(
                f"{self.function.__name__}: {name!r} is a constexpr, got a {type(value).__name__}, "
                f"which can't be hashed{at_user_line()}"
            ) from None
        # Numbers of different types may be equal, and zeros of different signs.
        return "constexpr", type(value), repr(value) if isinstance(value, float) else value

    def _tensor(self, name: str, t: Any) -> tuple[Any, ...]:
        from tilewright.codegen.triton.emitted import POINTER

        dtype = t.dtype
        kind = _KINDS.get(dtype) or POINTER[dtype.name]
        shape, strides, start = shaping.layout_of(t)
        if 0 in shape:
            return "nothing", kind
        storage = t._storage
        if views.is_contiguous(shape, strides) and id(storage) not in self.shared:
            key, state, start = id(t), t, 0
        else:
            key, state = id(storage), _whole(t)
        operand = self.operands.get(key)
        if operand is None:
            operand = self.operands[key] = _Operand(state, recording.resolve(state))
        operand.written |= name in self.written
        return "tensor", kind, list(self.operands).index(key), start * dtype.itemsize

    def _number(self, param: Any, value: Any) -> tuple[Any, ...]:
        if isinstance(value, bool):
            return "number", "i1", value
        if isinstance(value, float):
            with np.errstate(over="ignore"):
                value = float(np.float32(value))  # as which a kernel takes it
            dtype, kind = dtypes.float32, "fp32"
        elif -(1 << 31) <= value < 1 << 31:
            dtype, kind = dtypes.int32, "i32"
        elif -(1 << 63) <= value < 1 << 63:
            dtype, kind = dtypes.int64, "i64"
        elif value < 1 << 64:
            return "number", "u64", value
        else:
            raise OverflowError(f"{param.name}={value} has more than 64 bits{at_user_line()}")
        site = self.function, param.name, self.shapes
        node = recording.number(site, value, dtype, _PATIENCE)
        if node.op is ops.scalar:
            self.numbers.append(node)
            return "scalar", kind, len(self.numbers) - 1
        if kind == "fp32":
            return "number", kind, repr(value)
        if param.do_not_specialize:
            return "number", kind, value
        return ("constexpr", int, 1) if value == 1 else ("size", kind, value)

    def _emitted(
        self,
        passed: tuple[tuple[Any, ...], ...],
        written: tuple[int, ...],
        programs: tuple[int, int, int],
        options: tuple[int, ...],
    ) -> Any:
        """The launch, for the compiler and the launchers."""
        from tilewright.codegen.triton.emitted import Argument, Emitted

        function = self.function
        order = [*written, *(i for i in range(len(self.operands)) if i not in written)]
        constexprs: dict[str, Any] = {}
        arguments = []
        for param, (role, kind, *rest) in zip(function.params, passed, strict=True):
            value: Any = rest[0] if rest else 0
            if role == "constexpr":
                constexprs[param.name] = float(value) if kind is float else value
                continue
            if role == "tensor":
                buffer, offset = order.index(value), rest[1]
                role, value = ("place", (buffer, offset)) if offset else ("buffer", buffer)
            elif role == "nothing":
                role = "number"  # a null pointer
            elif kind == "fp32" and role == "number":
                value = float(value)
            arguments.append(Argument(param.name, kind, role, value))
        modules.adopt(function.cache_key, function)
        return Emitted(
            name=function.__name__,
            body=function.src.rstrip() + "\n",
            lines=(),
            header=f"# launched at {format_location(user_location())}\n",
            arguments=tuple(arguments),
            constexprs=constexprs,
            grid=programs,
            num_warps=options[0],
            num_stages=options[1],
            function=function,
        )


def _whole(t: Any) -> Any:
    """A tensor that sees all the memory which `t` looks into."""
    base = object.__new__(recording.tensor_type)
    base._storage, base._chain = t._storage, None
    base._aval = t._storage._aval
    return base


def _overwrite(operand: _Operand, value: Node) -> None:
    known = operand.node in recording.mutated
    recording.assign(operand.state, value, force=True)
    if not known and _is_filled(operand.node):
        # What a new tensor is filled with is one node for all of them, in a backward pass too.
        recording.mutated.discard(operand.node)


def _is_filled(node: Node) -> bool:
    """Whether a node is one number everywhere, as `torch.empty` gives it."""
    while node.op.kind is Kind.MOVEMENT:
        node = node.operands[0]
    return node.op.kind is Kind.CONSTANT
