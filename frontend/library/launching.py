"""wrap_triton: a launch of a user's Triton kernel, recorded as nodes of the graph.

Tensors that the kernel writes to get new values, as by any in-place op. A tensor is passed as
memory with the strides that it reports. A contiguous tensor is passed as itself. A view with gaps
is passed as the memory that it shows, from its first element on.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tilewright.codegen.kernel import Buffer
from tilewright.codegen.lower.external import Autotuned, Config, Registered, register
from tilewright.ir import dtype as dtypes
from tilewright.ir import ops
from tilewright.ir.location import at_user_line, user_location
from tilewright.ir.node import Node, format_location, intern
from tilewright.ir.op import Kind
from tilewright.ir.ops.external import external
from tilewright.runtime.interpret import modules

from .. import recording
from ..functions import shapes
from ..recording import Handle, views
from .configs import Decision, plain, settled
from .kernel import Kernel, grid_of

_PLAIN = (int, bool, float, str, type(None))
# Types that generated kernels take as bytes.
_KINDS = {
    dtypes.bool_: "*i1",
    dtypes.float8_e4m3fn: "*fp8e4nv",
    dtypes.float8_e5m2: "*fp8e5",
}
_PATIENCE = 3  # different values of a number before it becomes an input

_Launch = tuple[dict[str, Any], tuple[int, int, int], tuple[int, ...]]
"""A launch: the values of the kernel's parameters, its grid, and its options."""


class TritonKernel:
    """A Triton kernel whose launches are recorded: `wrap_triton(kernel)[grid](*args, **kwargs)`."""

    def __init__(self, kernel: Any):
        self.kernel = kernel

    def __getitem__(self, grid: Any) -> Callable[..., None]:
        return lambda *args, **kwargs: _launch(self.kernel, grid, args, kwargs)

    def __call__(self, *args: Any, **kwargs: Any) -> None:
        raise RuntimeError(f"a kernel is launched over a grid: kernel[grid](...){at_user_line()}")


def wrap_triton(triton_kernel: Any, /) -> TritonKernel:
    """Wrap a kernel of @triton.jit, @triton.autotune or @triton.heuristics for launches on tensors.

    On a GPU it is compiled; on the CPU Triton's interpreter runs it. Gradients don't flow through a
    launch; `triton_op` and `register_autograd` define them.
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
    function, given, decision = settled(kernel, args, kwargs)
    known = _kernels.get(function.fn)
    if known is None:
        known = _kernels[function.fn] = Kernel(function)

    def launch(given: dict[str, Any]) -> _Launch:
        options = known.options(given)
        values = known.bound(args, given)
        return values, grid_of(grid, values), options

    def others() -> Iterator[tuple[Config, _Launch]]:
        for config in decision.candidates if decision else ():
            try:
                _, given, _ = settled(kernel, args, kwargs, config)
                made = launch(given)
            except Exception:  # the user's functions, or unsupported options
                continue
            yield plain(config), made

    values, programs, options = launch(given)
    if 0 in programs:
        return
    with recording.hold():
        _Recorder(known, values, decision, others).record(programs, options)
    recording.settle()


_kernels: dict[Callable[..., Any], Kernel] = {}


@dataclass(eq=False)
class _Operand:
    """Memory that is passed to a kernel. name: the first parameter that gets it. state: a tensor of
    the whole memory."""

    name: str
    state: Any
    node: Node
    written: bool = False

    @property
    def is_new(self) -> bool:
        """Whether its contents before the launch don't matter, as it comes from `torch.empty`."""
        return self.written and self.node.op is ops.empty


@dataclass
class _Recorder:
    """Records one launch: turns the values of a kernel's parameters into nodes.

    decision: the choice of config for an autotuned kernel; others: yields the launch with each
        config.
    """

    kernel: Kernel
    values: dict[str, Any]
    decision: Decision | None
    others: Callable[[], Iterator[tuple[Config, _Launch]]]
    operands: dict[Any, _Operand] = field(default_factory=dict)
    numbers: list[Node] = field(default_factory=list)

    def record(self, programs: tuple[int, int, int], options: tuple[int, ...]) -> None:
        key = self._key(programs, options)
        found = None if key is None else recording.lookup(key)
        if found is None:
            made = self._nodes(programs, options)
            if key is not None and not self.numbers:
                recording.remember(key, tuple([(o.name, node) for o, node in made]))
            for operand, node in made:
                _overwrite(operand.state, operand.node, node)
        else:
            for name, node in found:
                t = self.values[name]
                _overwrite(t, t._node, node)

    def _key(self, programs: tuple[int, ...], options: tuple[int, ...]) -> Any:
        """A key by which a repeated step finds the nodes of a launch. None unless all arguments are
        simple."""
        key: list[Any] = [self.kernel, programs, options, self.decision]
        met: dict[int, int] = {}
        for value in self.values.values():
            kind = type(value)
            if isinstance(value, Handle):
                if value._node is None or value._storage is not None or value._shared is not None:
                    return None
                key += value._node, met.setdefault(id(value), len(met))
            elif kind in _PLAIN:
                key += kind, repr(value) if kind is float else value
            else:
                return None
        return tuple(key)

    def _nodes(
        self, programs: tuple[int, int, int], options: tuple[int, ...]
    ) -> list[tuple[_Operand, Node]]:
        """The operands that the kernel writes to, with their new values."""
        tensors = {n: v for n, v in self.values.items() if isinstance(v, Handle)}
        self._check_devices(tensors)
        self.shapes = tuple([t.shape for t in tensors.values()])
        # If the kernel writes to one of several tensors that share memory, the others see that.
        self.shared = self._shared(tensors)
        passed = tuple([self._passed(name, value) for name, value in self.values.items()])
        memory = list(self.operands.values())
        changed = [o for o in memory if o.written]
        if not changed:
            return []  # the launch has no visible effect
        order = tuple([memory.index(o) for o in (*changed, *(o for o in memory if not o.written))])
        key = self.kernel, passed, order, programs, options, self.decision
        name = register(key, lambda: self._registered(passed, order, programs, options))
        held = [o for o in memory if not o.is_new]
        written = tuple(
            [(tuple(o.node.shape), o.node.dtype) if o.is_new else held.index(o) for o in changed]
        )
        nodes = (*(o.node for o in held), *self.numbers)
        with recording.grad_mode(False):
            return [
                (o, intern(external, nodes, (name, len(held), written, i), o.node.device))
                for i, o in enumerate(changed)
            ]

    def _check_devices(self, tensors: dict[str, Any]) -> None:
        if len({t._typed()[2] for t in tensors.values()}) > 1:
            found = ", ".join(f"{n} on {t.device}" for n, t in tensors.items())
            raise RuntimeError(
                f"{self.kernel.name}: Expected all tensors to be on the same device, got "
                f"{found}{at_user_line()}"
            )

    def _shared(self, tensors: dict[str, Any]) -> set[int]:
        """The storages of which several views are passed, and one is written to."""
        views_of: dict[int, list[str]] = {}
        for name, t in tensors.items():
            if t._storage is not None:
                views_of.setdefault(id(t._storage), []).append(name)
        return {
            s for s, names in views_of.items() if len(names) > 1 and self.kernel.written & {*names}
        }

    # A tuple describes each parameter. Launches with equal tuples are compiled once.

    def _passed(self, name: str, value: Any) -> tuple[Any, ...]:
        if isinstance(value, Handle) and name not in self.kernel.constexprs:
            return self._tensor(name, value)
        if isinstance(value, np.generic):
            value = value.item()
        elif type(value).__name__ == "constexpr":
            value = value.value
        if name in self.kernel.constexprs or value is None:
            return self._constant(name, value)
        if isinstance(value, (bool, int, float)):
            return self._number(name, value)
        raise TypeError(
            f"{self.kernel.name}: argument {name!r} must be a Tensor, a number or None"
            f", got {type(value).__name__}{at_user_line()}"
        )

    def _constant(self, name: str, value: Any) -> tuple[Any, ...]:
        if isinstance(value, Handle):
            raise TypeError(
                f"{self.kernel.name}: {name!r} is a constexpr, which no Tensor can be"
                f"{at_user_line()}"
            )
        try:
            hash(value)
        except TypeError:
            raise TypeError(
                f"{self.kernel.name}: {name!r} is a constexpr, got a {type(value).__name__}, "
                f"which can't be hashed{at_user_line()}"
            ) from None
        # Numbers of different types may be equal, and zeros of different signs.
        return "constexpr", type(value), repr(value) if isinstance(value, float) else value

    def _tensor(self, name: str, t: Any) -> tuple[Any, ...]:
        from tilewright.codegen.triton.emitted import POINTER

        dtype = t.dtype
        kind = _KINDS.get(dtype) or POINTER[dtype.name]
        shape, strides, start = shapes.layout_of(t)
        if 0 in shape:
            return "nothing", kind
        storage = t._storage
        if views.is_contiguous(shape, strides) and id(storage) not in self.shared:
            key, state, start = id(t), t, 0
        else:
            key, state = id(storage), _whole(t)
        operand = self.operands.get(key)
        if operand is None:
            operand = self.operands[key] = _Operand(name, state, recording.resolve(state))
        operand.written |= name in self.kernel.written
        return "tensor", kind, list(self.operands).index(key), start * dtype.itemsize

    def _number(self, name: str, value: Any) -> tuple[Any, ...]:
        if isinstance(value, bool):
            return "number", "i1", value
        if isinstance(value, float):
            with np.errstate(over="ignore"):
                value = float(np.float32(value))  # a kernel takes it as float32
            dtype, kind = dtypes.float32, "fp32"
        elif -(1 << 31) <= value < 1 << 31:
            dtype, kind = dtypes.int32, "i32"
        elif -(1 << 63) <= value < 1 << 63:
            dtype, kind = dtypes.int64, "i64"
        elif value < 1 << 64:
            return "number", "u64", value
        else:
            raise OverflowError(f"{name}={value} has more than 64 bits{at_user_line()}")
        site = self.kernel, name, self.shapes
        node = recording.number(site, value, dtype, _PATIENCE)
        if node.op is ops.scalar:
            self.numbers.append(node)
            return "scalar", kind, len(self.numbers) - 1
        if kind == "fp32":
            return "number", kind, repr(value)
        if name in self.kernel.unspecialized:
            return "number", kind, value
        return ("constexpr", int, 1) if value == 1 else ("size", kind, value)

    def _registered(
        self,
        passed: tuple[tuple[Any, ...], ...],
        order: tuple[int, ...],
        programs: tuple[int, int, int],
        options: tuple[int, ...],
    ) -> Registered:
        emitted = self._emitted(passed, order, programs, options)
        if self.decision is None:
            return Registered(emitted)
        return Registered(emitted, self.decision.origin, self._autotuned(passed, order))

    def _autotuned(self, passed: tuple[tuple[Any, ...], ...], order: tuple[int, ...]) -> Autotuned:
        """The launch with each of the configs; without any where nothing is tuned."""
        assert self.decision is not None
        site, launches = self.decision.site, {}
        if site is not None:
            for config, (values, programs, options) in self.others():
                if 0 in programs or not self._alike(values):
                    continue
                own = tuple(
                    self._passed(name, values[name]) if name in self.kernel.constexprs else each
                    for name, each in zip(self.values, passed)
                )
                launches[config] = self._emitted(own, order, programs, options)
        first = plain(self.decision.candidates[0])
        if first not in launches:
            launches = {}  # no reference to compare with
        memory = list(self.operands.values())
        buffers = [
            Buffer(memory[i].name, memory[i].node.dtype, math.prod(memory[i].node.shape))
            for i in order
        ]
        outputs = sum(o.written for o in memory)
        numbers = {
            rest[0]: self.values[name]
            for name, (role, _, *rest) in zip(self.values, passed)
            if role == "scalar"
        }
        return Autotuned(
            structure=site.structure if site else self.kernel.name,
            sizes=site.sizes if site else (),
            name=self.kernel.name,
            outputs=tuple(buffers[:outputs]),
            inputs=tuple(buffers[outputs:]),
            scalars=tuple(numbers[i] for i in sorted(numbers)),
            launches=launches,
        )

    def _alike(self, values: dict[str, Any]) -> bool:
        """Whether `values` differ from this launch's in constexprs alone."""
        return all(
            value is self.values[name]
            or name in self.kernel.constexprs
            or (type(value) in _PLAIN and repr(value) == repr(self.values[name]))
            for name, value in values.items()
        )

    def _emitted(
        self,
        passed: tuple[tuple[Any, ...], ...],
        order: tuple[int, ...],
        programs: tuple[int, int, int],
        options: tuple[int, ...],
    ) -> Any:
        """The launch for the compiler and the launchers. order: the operands' order as buffers."""
        from tilewright.codegen.triton.emitted import Argument, Emitted

        function = self.kernel.function
        constexprs: dict[str, Any] = {}
        arguments = []
        for name, (role, kind, *rest) in zip(self.values, passed, strict=True):
            value: Any = rest[0] if rest else 0
            if role == "constexpr":
                constexprs[name] = float(value) if kind is float else value
                continue
            if role == "tensor":
                buffer, offset = order.index(value), rest[1]
                role, value = ("place", (buffer, offset)) if offset else ("buffer", buffer)
            elif role == "nothing":
                role = "number"  # a null pointer
            elif kind == "fp32" and role == "number":
                value = float(value)
            arguments.append(Argument(name, kind, role, value))
        modules.adopt(function.cache_key, function)
        return Emitted(
            name=self.kernel.name,
            body=function.src.rstrip() + "\n",
            lines=(),
            header=f"# launched at {format_location(user_location())}\n",
            arguments=tuple(arguments),
            constexprs=constexprs,
            grid=programs,
            num_warps=options[0],
            num_stages=options[1],
            function=function,
            contracts=True,
        )


def _whole(t: Any) -> Any:
    """A tensor of the whole storage that `t` is a view of."""
    base = recording.blank()
    base._storage, base._chain = t._storage, None
    base._aval = t._storage._aval
    return base


def _overwrite(t: Any, before: Node, after: Node) -> None:
    known = before in recording.mutated
    with recording.grad_mode(False):
        recording.assign(t, after, force=True)
    if not known and _is_filled(before):
        # All new tensors share the node of their filling, in a backward pass too.
        recording.mutated.discard(before)


def _is_filled(node: Node) -> bool:
    """Whether all elements of a node are one constant."""
    while node.op.kind is Kind.MOVEMENT or node.op is ops.empty:
        node = node.operands[0]
    return node.op.kind is Kind.CONSTANT
