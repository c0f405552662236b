"""The state that the emitter's parts share: names, arguments, statements, the walk over the DAG."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tilewright.ir.dtype import FLOAT8, bfloat16

from ..kernel import Apply, Guard, Kernel, Value, data_values
from ..kernel.index import Axis
from .domain import Domain, Relation, has_data
from .program import Array, Program, Statement


@dataclass(frozen=True, eq=False)
class Context:
    """The place where a value is computed: a domain and a mask (None: everywhere).

    Outside of the mask a value may be anything, and no position is checked.
    """

    domain: Domain
    mask: Array | None = None


Compute = Callable[["Emission", Value, Context], Array]


class Emission:
    """One kernel while its text is written."""

    def __init__(self, kernel: Kernel, compute: Compute):
        self.kernel = kernel
        self.compute = compute
        self.program = Program()
        self.arguments: dict[str, Any] = {}
        self.prelude: list[str] = []
        self.buffers = {b: f"out{i}" for i, b in enumerate(kernel.outputs)}
        self.buffers |= {b: f"in{i}" for i, b in enumerate(kernel.inputs)}
        self.slots = {v.slot: i for i, v in enumerate(kernel.scalars)}
        # At least one dimension, so that no array is 0-d: NumPy turns 0-d results into scalars.
        axes = tuple(a for a in (*kernel.parallel, *kernel.reduction) if a.extent != 1)
        axes = axes or (Axis("one", 1),)
        self.root = Domain(axes, {a: i for i, a in enumerate(axes)})
        self.known: dict[Hashable, Array] = {}
        self.windows: dict[str, Any] = {}  # the sources of views of padded arrays, by name
        self._boxes: dict[Hashable, Domain] = {}
        self._shared: dict[Hashable, str] = {}
        self._counts: dict[str, int] = {}
        self._reads_data: dict[Value, bool] = {}

    # Names

    def fresh(self, stem: str) -> str:
        count = self._counts.get(stem, 0)
        self._counts[stem] = count + 1
        return f"{stem}{count}"

    def argument(self, stem: str, value: Any, key: Hashable = None) -> str:
        """The name of an argument of `make`; one name for each (stem, key)."""
        if key is None:
            key = value if isinstance(value, tuple) else object()
        name = self._shared.get((stem, key))
        if name is None:
            name = self._shared[stem, key] = self.fresh(stem)
            self.arguments[name] = value
        return name

    def box(
        self, domain: Domain, sides: tuple[tuple[dict[Axis, int], int, int, int], ...]
    ) -> Domain:
        """The part of a domain with these sides, each (direction, start, step, count); one object
        for equal sides."""
        key = domain, tuple((tuple(direction.items()), *rest) for direction, *rest in sides)
        found = self._boxes.get(key)
        if found is None:
            relations = (
                Relation(direction, Axis(self.fresh("_box"), count), start, step)
                for direction, start, step, count in sides
            )
            found = self._boxes[key] = domain.related(tuple(relations))
        return found

    def once(self, key: Hashable, make: Callable[[], Array]) -> Array:
        """The array kept under `key`, made on first use."""
        found = self.known.get(key)
        if found is None:
            found = self.known[key] = make()
        return found

    # Statements

    def let(
        self,
        call: str,
        dtype: Any,
        extent: tuple[int, ...],
        reads: Sequence[Array] = (),
        *,
        stem: str = "t",
        ufunc: bool = False,
        by_rows: bool = False,
        alias: Array | None = None,
    ) -> Array:
        """A new variable. alias: the array whose memory it is a view of. For ufunc and by_rows see
        `Statement`."""
        name = self.fresh(stem)
        root, owned = (alias.root, alias.owned) if alias else (name, bool(extent))
        strides = _like(reads, extent) if ufunc or by_rows else None
        array = Array(name, np.dtype(dtype), extent, root, owned, strides)
        ufunc = ufunc and bool(extent)
        self.program.add(Statement(call, array, tuple(reads), ufunc, ufunc or by_rows))
        return array

    def cast(self, array: Array, dtype: Any) -> Array:
        wanted = np.dtype(dtype)
        if array.dtype == wanted:
            return array
        if "f" in (array.dtype.kind, wanted.kind) or wanted.itemsize == 2:
            self.program.may_warn = True
        kind = np_name(wanted)
        if array.dtype == np.float64 and wanted == np.float16:  # as PyTorch, which rounds twice
            return self.cast(self.cast(array, np.float32), wanted)
        if array.dtype.kind == "c" and wanted.kind not in "cb":  # astype would warn
            real = np.empty(0, array.dtype).real.dtype
            part = self.let(
                f"special.real({array.name})", real, array.extent, (array,), by_rows=True
            )
            return self.cast(part, wanted)
        if wanted in _FLOAT8:  # ml_dtypes has other edge cases
            self.program.may_warn = True
            call = f"special.cast({array.name}, {kind})" + ("[()]" if array.is_scalar else "")
        elif array.is_scalar:
            call = f"np.asarray({array.name}).astype({kind})[()]"
        else:
            call = f"{array.name}.astype({kind})"
        return self.let(call, wanted, array.extent, (array,), by_rows=True)

    def broadcast(self, array: Array, extent: tuple[int, ...]) -> Array:
        if array.extent == extent:
            return array
        call = f"np.broadcast_to({array.name}, {self.argument('shape', extent)})"
        base = None if array.is_scalar else array
        out = self.let(call, array.dtype, extent, (array,), alias=base)
        return Array(out.name, out.dtype, extent, out.root, owned=False)

    # Values

    def of(self, value: Value, context: Context) -> Array:
        """The array of a value that was computed before."""
        return self.known[self.key(value, context)]

    def evaluate(self, root: Value, context: Context) -> Array:
        """The array of `root`, written after all its operands."""
        stack: list[tuple[Value, bool]] = [(root, False)]
        while stack:
            value, ready = stack.pop()
            key = self.key(value, context)
            if key in self.known:
                continue
            if ready:
                self.known[key] = self.compute(self, value, context)
                continue
            stack.append((value, True))
            stack.extend((v, False) for v in reversed(tuple(self.operands(value))))
        return self.of(root, context)

    def operands(self, value: Value) -> Iterator[Value]:
        """The values that are computed before `value`, in its context."""
        if isinstance(value, Guard):
            yield value.outside
        else:
            yield from value.operands()
        for index in value.indices():
            yield from data_values(index)

    def key(self, value: Value, context: Context) -> tuple[Hashable, ...]:
        masked = context.mask is not None and self.reads_data(value)
        mask = context.mask.name if masked and context.mask is not None else ""
        return value, context.domain, mask

    def reads_data(self, value: Value) -> bool:
        """Whether computing a value checks a divisor, or a position that is data."""
        found = self._reads_data.get(value)
        if found is None:
            found = any(has_data(i) for i in value.indices())
            found = found or (isinstance(value, Apply) and value.may_fail)
            found = found or any(self.reads_data(v) for v in value.operands())
            self._reads_data[value] = found
        return found


def _like(reads: Sequence[Array], extent: tuple[int, ...]) -> tuple[int, ...] | None:
    """The strides that NumPy gives a new result: dense, in the order of its operands. None if the
    operands have the order of the dimensions, or disagree."""
    order: list[int] | None = None
    for array in reads:
        if array.extent != extent or array.strides is None:
            continue
        strides = array.strides
        found = sorted(range(len(extent)), key=lambda d: -abs(strides[d]) if extent[d] != 1 else 0)
        if order is not None and found != order:
            return None
        order = found
    if order is None:
        return None
    out, step = [0] * len(extent), 1
    for d in reversed(order):
        if extent[d] != 1:
            out[d] = step
            step *= extent[d]
    return tuple(out)


def everything(root: Value) -> Iterator[Value]:
    """`root` and all values it is computed from."""
    seen: set[int] = set()
    stack = [root]
    while stack:
        value = stack.pop()
        if id(value) in seen:
            continue
        seen.add(id(value))
        yield value
        stack.extend(value.operands())
        for index in value.indices():
            stack.extend(data_values(index))


def common(arrays: Sequence[Array]) -> tuple[int, ...]:
    """The shape arrays broadcast to."""
    found: tuple[int, ...] = ()
    for array in arrays:
        if not found:
            found = array.extent
        elif array.extent:
            found = tuple(b if a == 1 else a for a, b in zip(found, array.extent))
    return found


def np_name(dtype: np.dtype) -> str:
    """The name of a dtype in emitted code."""
    return dtype.name if dtype in _FOREIGN else f"np.{dtype.name.replace('bool', 'bool_')}"


_FLOAT8 = {d.np for d in FLOAT8}
_FOREIGN = {bfloat16.np, *_FLOAT8}  # dtypes of ml_dtypes
