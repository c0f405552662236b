"""Chains: elementwise steps over large tensors, run tile by tile.

A step alone reads its operands from memory and writes its result there. A chain's steps do that for
some elements at a time, so that what is between them stays in the nearest cache. Each step is the
pack's kernel of its op, so the bits are the same, and nothing is compiled.
"""

from __future__ import annotations

import functools
import math
import operator
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from tilewright.codegen.llvm import chains as code
from tilewright.codegen.llvm import spread, tile_folds
from tilewright.ir import ops
from tilewright.ir.dtype import HALVES, DType, complex128, float32, float64
from tilewright.ir.node import Node
from tilewright.ir.op import Kind, Op

from . import copies, linking, maps, views
from . import folds as row_folds

if TYPE_CHECKING:
    from ..native.calls import Flat

Form = Callable[..., Any]
Step = tuple[Form, tuple[int, ...], int, tuple[int, ...]]

FROM = 1 << 18
"""Elements from which a chain is faster than its steps: those of a tensor that fills the nearer
caches."""

_TILE = 512
"""Elements of a tile: the operands and results of a kernel fit the nearest cache."""

_REGISTER = 8 * _TILE + 192
"""Bytes from one register to the next. No two begin at the same place of a page, as a load would
wait for a store to the other one."""

_MOST = 48
"""The kernels of a chain, at most."""

_SHORT = 1 << 12
"""Elements of a row from which NumPy is as fast as a chain of one step."""

_PARALLEL_FROM = 1 << 16
"""Elements from which a chain runs on all cores."""

_SHARED_FROM = 1 << 20
"""Elements from which a fold that is all of a chain does."""


class Spread(NamedTuple):
    """What spreads a small operand over a tile; see `codegen/llvm/spread.py`."""

    itemsize: int
    middle: int
    inner: int


class Fold(NamedTuple):
    """What folds the rows of a tensor; see `codegen/llvm/tile_folds.py`."""

    dtype: DType
    op: str
    length: int

    @property
    def made(self) -> DType:
        """The dtype of the parts."""
        return complex128 if self.dtype.is_complex else float64

    def parts(self, size: int) -> int:
        """The number of parts of a tensor of so many elements."""
        return size // self.length + -(-size // _TILE) - 1

    def whole(self, node: Node) -> Form:
        """From the parts to the folds, as a tensor like `node`: of a fold over other axes, too."""
        (x,), shape, np_dtype = node.operands, tuple(node.shape), node.dtype.np
        first = x.rank - _trailing(x, node.attrs[0])
        outer, others = tuple(x.shape[:first]), tuple([a for a in node.attrs[0] if a < first])
        rows = np.arange(math.prod(outer))
        firsts = rows + rows * self.length // _TILE
        ends = rows + ((rows + 1) * self.length - 1) // _TILE + 1
        bounds = np.stack([firsts, ends], 1).ravel()[:-1]
        ufunc = _UFUNCS[self.op]

        def whole(parts: Any) -> Any:
            folded = ufunc.reduceat(parts, bounds)[::2]
            if others:
                folded = ufunc.reduce(folded.reshape(outer), others)
            return folded.astype(np_dtype).reshape(shape)

        return whole


@dataclass(eq=False)
class _Value:
    """What a chain computes with. slot: of an operand. is_tile: whether one tile or a small tensor
    is read in the place of a tensor of the chain's shape."""

    dtype: DType
    slot: int | None = None
    is_tile: bool = False


_Call = tuple["Flat | Spread | Fold", list[_Value], _Value]
"""What computes, the values that it reads, and the value that it makes."""


@dataclass(eq=False)
class _Open:
    """A chain that more steps may join.

    operands: slot -> its value. made: slot -> (value, the slot's dtype, which may be another name
    of the same bits). used: how often the chain itself reads a slot. spread: the values of operands
    that are spread. folds: slot -> the fold whose parts the chain makes. decided: a mask -> the
    comparison that makes it, and what that reads. steps: those that joined.
    """

    shape: tuple[int, ...]
    operands: dict[int, _Value] = field(default_factory=dict)
    made: dict[int, tuple[_Value, DType]] = field(default_factory=dict)
    used: Counter[int] = field(default_factory=Counter)
    spread: dict[Any, _Value] = field(default_factory=dict)
    folds: dict[int, tuple[Fold, _Value, Node]] = field(default_factory=dict)
    decided: dict[_Value, tuple[Op, list[_Value]]] = field(default_factory=dict)
    calls: list[_Call] = field(default_factory=list)
    steps: list[Step] = field(default_factory=list)

    def call(self, kernel: Flat | Spread | Fold, values: list[_Value], dtype: DType) -> _Value:
        made = _Value(dtype)
        self.calls.append((kernel, values, made))
        return made

    def operand(self, slot: int, shape: Sequence[int], dtype: DType) -> _Value:
        """The value of what another step made."""
        block = _block(shape, self.shape)
        assert block is not None
        middle, inner = block
        is_tile = middle != math.prod(self.shape)
        value = self.operands.setdefault(slot, _Value(dtype, slot, is_tile))
        if middle == 1 or not is_tile:
            return value
        kernel = Spread(dtype.np.itemsize, middle, inner)
        found = self.spread.get((slot, kernel))
        if found is None:
            found = self.spread[slot, kernel] = self.call(kernel, [value], dtype)
        return found


def _block(shape: Sequence[int], whole: Sequence[int]) -> tuple[int, int] | None:
    """(middle, inner) of a shape that broadcasts to `whole`: how many elements it has, and how
    often each follows itself. None if its axes aren't side by side."""
    missing = len(whole) - len(shape)
    axes = [i for i in range(len(shape)) if shape[i] != 1]
    if not axes:
        return 1, 1
    first, last = axes[0], axes[-1]
    if any(shape[i] != whole[missing + i] for i in range(first, last + 1)):
        return None
    return math.prod(shape[first : last + 1]), math.prod(whole[missing + last + 1 :])


def joined(
    steps: Sequence[Step], nodes: Mapping[int, Node], kept: Collection[int], size: int
) -> tuple[list[Step], int]:
    """(steps, the number of slots) with chains in the place of the steps that they hold.

    nodes: slot -> the node that a step computes. kept: slots that are read from outside.
    """
    joining = _Joining(steps, nodes, kept, size)
    return joining.out, joining.size


class _Joining:
    """The walk over the steps.

    open: shape -> the chain that steps of this shape join. made: slot -> the open chain that makes
    it. expanded: slot -> (the slot, the shape) of what it repeats. waiting: the steps of these
    slots, which are written when a step reads them that is in no chain.
    """

    def __init__(
        self, steps: Sequence[Step], nodes: Mapping[int, Node], kept: Collection[int], size: int
    ):
        self.nodes, self.kept, self.size = nodes, kept, size
        self.out: list[Step] = []
        self.open: dict[tuple[int, ...], _Open] = {}
        self.made: dict[int, _Open] = {}
        self.expanded: dict[int, tuple[int, Sequence[int]]] = {}
        self.waiting: dict[int, Step] = {}
        self.reads = Counter([slot for _, operands, _, _ in steps for slot in operands])
        for step in steps:
            if not self._waits(step) and not self._joins(step) and not self._folds(step):
                self._write(step)
        for slot in [s for s in self.waiting if s in kept]:
            self._write(self.waiting.pop(slot))
        for chain in list(self.open.values()):
            self._close(chain)

    def _waits(self, step: Step) -> bool:
        _, operands, slot, _ = step
        node = self.nodes.get(slot)
        if node is None or node.op is not ops.expand_op:
            return False
        source = (operands[0], node.operands[0].shape)
        self.expanded[slot] = self.expanded.get(operands[0], source)
        self.waiting[slot] = step
        return True

    def _write(self, step: Step) -> None:
        """Write a step that is in no chain, after what it reads."""
        for slot in step[1]:
            if slot in self.waiting:
                self._write(self.waiting.pop(slot))
            if slot in self.made:
                self._close(self.made[slot])
        self.out.append(step)

    def _joins(self, step: Step) -> bool:
        _, operands, slot, _ = step
        node = self.nodes.get(slot)
        kernels = None if node is None else _kernels(node)
        if node is None or kernels is None:
            return False
        shape = tuple(node.shape)
        sources = [
            self.expanded.get(each, (each, operand.shape))
            for each, operand in zip(operands, node.operands, strict=True)
        ]
        if any(_block(of, shape) is None for _, of in sources):
            return False
        for each, of in sources:
            if each in self.made and tuple(of) != shape:
                self._close(self.made[each])
        chain = self._of(shape)
        widen, kernel, narrow = kernels
        values = []
        for (each, of), operand, wide in zip(sources, node.operands, widen, strict=True):
            if each in chain.made:
                value = chain.made[each][0]
            else:
                value = chain.operand(each, of, operand.dtype)
            values.append(value if wide is None else chain.call(wide, [value], float32))
            chain.used[each] += 1
        dtype = node.dtype if narrow is None else float32
        if node.op is ops.where and sources[0][0] == operands[0] and self._is_inner(operands[0]):
            kernel, values = _decided(chain, kernel, values, dtype)
        if kernel is None:  # other names of the same bits
            (value,) = values
        else:
            value = chain.call(kernel, values, dtype)
            if len(values) < 3 and values[0].dtype in (float32, float64):
                chain.decided[value] = node.op, values
        if narrow is not None:
            value = chain.call(narrow, [value], node.dtype)
        chain.made[slot] = value, node.dtype
        chain.steps.append(step)
        self.made[slot] = chain
        return True

    def _is_inner(self, slot: int) -> bool:
        """Whether a single step reads a slot."""
        return self.reads[slot] == 1 and slot not in self.kept

    def _of(self, shape: tuple[int, ...]) -> _Open:
        """The chain that a step of this shape joins."""
        chain = self.open.get(shape)
        if chain is not None and len(chain.calls) >= _MOST:
            self._close(chain)
            chain = None
        if chain is None:
            chain = self.open[shape] = _Open(shape)
        return chain

    def _folds(self, step: Step) -> bool:
        """Let a fold of rows join the chain that makes them."""
        _, operands, slot, _ = step
        node = self.nodes.get(slot)
        fold = None if node is None else _fold(node)
        if node is None or fold is None or operands[0] in self.expanded:
            return False
        (source,), x = operands, node.operands[0]
        widen = None
        if x.dtype is not fold.dtype:
            widen = _cast(x.dtype, fold.dtype)
            if widen is None:
                return False  # before a chain is begun for it
        chain = self._of(tuple(x.shape))
        if source in chain.made:
            value = chain.made[source][0]
        else:
            value = chain.operand(source, x.shape, x.dtype)
        if widen is not None:
            value = chain.call(widen, [value], fold.dtype)
        elif fold.op == "sum" and self._is_inner(source):
            fold, value = _numbers(chain, fold, value, x)
        chain.used[source] += 1
        chain.folds[slot] = fold, chain.call(fold, [value], fold.made), node
        chain.steps.append(step)
        self.made[slot] = chain
        return True

    def _is_slow(self, chain: _Open) -> bool:
        """Whether a single step is slow by itself: of halves, a choice by a spread mask, or of
        short rows with what is spread, which NumPy walks row by row."""
        node = self.nodes[chain.steps[0][2]]
        calls = len(chain.calls)
        return calls > 2 or (calls > 1 and (node.op is ops.where or node.shape[-1] < _SHORT))

    def _close(self, chain: _Open) -> None:
        """Write a chain's steps, as one if they are several."""
        del self.open[chain.shape]
        for slot in (*chain.made, *chain.folds):
            del self.made[slot]
        for slot in chain.operands:  # what a chain reads isn't written later
            if slot in self.made:
                self._close(self.made[slot])
        is_better_alone = _is_small_fold(chain) if chain.folds else not self._is_slow(chain)
        if len(chain.steps) < 2 and is_better_alone:
            for step in chain.steps:
                self._write(step)
            return
        wanted = [s for s in chain.made if s in self.kept or self.reads[s] > chain.used[s]]
        operands = tuple(chain.operands)
        form = _form(chain, wanted)
        if len(wanted) == 1 and not chain.folds:
            self.out.append((form, operands, wanted[0], ()))
            return
        whole, self.size = self.size, self.size + 1
        self.out.append((form, operands, whole, ()))
        for i, slot in enumerate(wanted):
            self.out.append((operator.itemgetter(i), (whole,), slot, ()))
        for i, (slot, (fold, _, node)) in enumerate(chain.folds.items(), len(wanted)):
            parts, self.size = self.size, self.size + 1
            self.out.append((operator.itemgetter(i), (whole,), parts, ()))
            self.out.append((fold.whole(node), (parts,), slot, ()))


def _is_small_fold(chain: _Open) -> bool:
    """Whether a chain is one fold of rows alone, which is a call of its code without tiles, and not
    so large that the cores should share it."""
    if len(chain.calls) > 1 or math.prod(chain.shape) >= _SHARED_FROM:
        return False
    ((fold, _, node),) = chain.folds.values()
    return row_folds.has_code(node.operands[0], node.attrs[0], fold.op)


_Kernels = tuple[Sequence["Flat | None"], "Flat | None", "Flat | None"]
"""What widens each operand, the kernel, and what rounds its result. Without a kernel the bits
stay."""


def _kernels(node: Node) -> _Kernels | None:
    """The kernels of a node that a chain may have."""
    if node.shape.numel() < FROM:
        return None
    memo = node.instruction.memo
    found: Any = memo.get("tile", memo)
    if found is memo:
        found = memo["tile"] = _found(node)
    return found  # type: ignore[no-any-return]


def folds(x: Node, axes: Collection[int]) -> bool:
    """Whether sums of floats `x` over these axes may join a chain."""
    length = math.prod(x.shape[x.rank - _trailing(x, axes) :])
    has_code = x.dtype in (float32, float64) and row_folds.code(x.dtype, "sum") is not None
    return x.shape.numel() >= FROM and length >= _ROW and has_code


def _fold(node: Node) -> Fold | None:
    """The fold of a sum or product of long rows; None for other nodes."""
    op = _FOLDS.get(node.op)
    if op is None:
        return None
    x = node.operands[0]
    length = math.prod(x.shape[x.rank - _trailing(x, node.attrs[0]) :])
    if x.shape.numel() < FROM or length < _ROW:
        return None
    dtype = float32 if x.dtype in HALVES else x.dtype
    if (dtype, op) not in tile_folds.KINDS or row_folds.code(dtype, op) is None:
        return None
    return Fold(dtype, op, length)


def _trailing(x: Node, axes: Collection[int]) -> int:
    """The number of these axes that are the last ones of `x`."""
    count = 0
    while x.rank - 1 - count in axes:
        count += 1
    return count


_FOLDS = {ops.sum_op: "sum", ops.prod_op: "product", ops.max_op: "max", ops.min_op: "min"}
_UFUNCS: dict[str, Any] = {
    "sum": np.add, "numbers": np.add, "product": np.multiply, "max": np.maximum,
    "min": np.minimum,
}  # fmt: skip
_ROW = 64
"""Elements of a row from which tiles are folded."""


def _found(node: Node) -> _Kernels | None:
    op = node.op
    if not (op.kind is Kind.ELEMENTWISE or op.pointwise):
        return None
    dtypes, dtype = tuple([o.dtype for o in node.operands]), node.dtype
    if op is ops.bitcast:
        return ((None,), None, None) if dtypes[0].itemsize == dtype.itemsize else None
    if op in (ops.cast, ops.widened) or not any(d in HALVES for d in (*dtypes, dtype)):
        kernel = maps.tile(op, node.attrs, dtypes, dtype)
        return None if kernel is None else ((None,) * len(dtypes), kernel, None)
    wide = [float32 if d in HALVES else d for d in (*dtypes, dtype)]
    kernel = maps.tile(op, node.attrs, tuple(wide[:-1]), wide[-1])
    widen = [_cast(d, float32) if d in HALVES else None for d in dtypes]
    narrow = _cast(float32, dtype) if dtype in HALVES else None
    return None if kernel is None else (widen, kernel, narrow)


def _decided(
    chain: _Open, kernel: Flat | None, values: list[_Value], dtype: DType
) -> tuple[Flat | None, list[_Value]]:
    """(kernel, values) of a choice together with the comparison that decides it, if the chain makes
    that; else of the choice alone."""
    op, read = chain.decided.get(values[0], (None, []))
    if op is ops.ne and read[0] is read[1]:
        op, read = ops.isnan, read[:1]
    joint = maps.choice_by(op, dtype) if op is not None and read[0].dtype is dtype else None
    if joint is None:
        return kernel, values
    chain.calls = [call for call in chain.calls if call[2] is not values[0]]
    return joint, [*read, *values[1:]]


def _numbers(chain: _Open, fold: Fold, value: _Value, node: Node) -> tuple[Fold, _Value]:
    """(fold, value) of a sum whose operand is another tensor with zeros in the place of NaN: the
    fold passes NaN over by itself."""
    choice = maps.choice_by(ops.isnan, fold.dtype)
    for call in chain.calls:
        kernel, read, made = call
        if (
            made is value
            and kernel is choice
            and read[0] is read[2]
            and views.is_zero(node.operands[1])
        ):
            chain.calls.remove(call)
            return fold._replace(op="numbers"), read[0]
    return fold, value


def _cast(source: DType, target: DType) -> Flat | None:
    return maps.tile(ops.cast, (), (source,), target)


def _form(chain: _Open, wanted: Sequence[int]) -> Form:
    """The form of a closed chain, from its operands to the results `wanted`."""
    operands = list(chain.operands.values())
    values = [*operands, *[made for *_, made in chain.calls]]
    number = {value: i for i, value in enumerate(values)}
    calls = tuple(
        [(k, tuple([number[v] for v in read]), number[made]) for k, read, made in chain.calls]
    )
    results = [(number[v], d.np) for v, d in map(chain.made.__getitem__, wanted)]
    parts = {number[value]: fold for fold, value, _ in chain.folds.values()}
    results += [(n, fold.made.np) for n, fold in parts.items()]
    first = len(operands)
    written = tuple(dict.fromkeys([n for n, _ in results if n >= first]))
    sizes = tuple([value.dtype.np.itemsize for value in values])
    still = tuple([i for i, value in enumerate(operands) if value.is_tile])
    run = _native(calls, sizes, still, written)
    shape, size = chain.shape, math.prod(chain.shape)
    kinds = [
        (values[n].dtype.np, (parts[n].parts(size),) if n in parts else shape) for n in written
    ]

    several = len(results) > 1 or bool(parts)

    def form(*arrays: Any) -> Any:
        given = [copies.in_order(np.asarray(a)) for a in arrays]
        for i in still:
            if given[i].size == 1:
                tile = np.empty(_TILE, given[i].dtype)
                tile[...] = given[i].reshape(())
                given[i] = tile
        outs = [np.empty(each, np_dtype) for np_dtype, each in kinds]
        if outs:
            run((*given, *outs), size)
        held = dict(zip(written, outs, strict=True))
        found = []
        for n, np_dtype in results:
            value = held[n] if n in held else given[n].reshape(shape)
            found.append(value if value.dtype == np_dtype else value.view(np_dtype))
        return found if several else found[0]

    return form


class _Native:
    """A chain as native code: (operands and results, size) -> None.

    calls: (what computes, the values that it reads, the value that it makes). The first values are
    the operands. sizes: the bytes of an element of each value. still: operands that are read from
    the beginning for each tile. written: values that are results.
    """

    def __init__(
        self,
        calls: Sequence[tuple[Flat | Spread | Fold, tuple[int, ...], int]],
        sizes: Sequence[int],
        still: Collection[int],
        written: Sequence[int],
    ):
        from ..native.calls import bound
        from ..native.pool import num_threads

        first = len(sizes) - len(calls)
        arrays = {value: value for value in range(first)}
        arrays.update({value: first + i for i, value in enumerate(written)})
        tables: dict[str, list[int]] = {name: [] for name in code.TABLES}
        registers, count = _registers(calls, arrays)
        self.code: list[Any] = []
        for kernel, read, made in calls:
            begin = len(tables["template"])
            places, inputs = self._begin(kernel, tables)
            for value, place in zip((made, *[read[i] for i in inputs]), places, strict=True):
                if value in arrays:
                    is_still = value in still or (value == made and isinstance(kernel, Fold))
                    step = 0 if is_still else sizes[value]
                    tables["moving"] += [begin + place, arrays[value], step]
                else:
                    tables["registers"] += [begin + place, registers[value]]
        start = -(-8 * len(tables["template"]) // 64) * 64
        tables["registers"][1::2] = [start + _REGISTER * r for r in tables["registers"][1::2]]
        self.tables = {name: np.array(table or [0], np.int64) for name, table in tables.items()}
        said = {name: table.ctypes.data for name, table in self.tables.items()}
        for name, table in tables.items():
            said[f"{name}.n"] = len(table) // code.WIDTHS.get(name, 1)
        said.update({"tile": _TILE, "bytes": start + _REGISTER * count})
        words = [said.get(word, 0) for word in code.WORDS]
        template = np.array(words + [0] * (first + len(written)), np.int64)
        buffers = np.arange(len(words), len(template))
        moves = np.array([0, code.WORDS.index("size"), 2, 1, code.WORDS.index("each"), 2])
        linked, self.parts = linking.linked(_NAME, code.text), 2 * num_threads()
        assert linked is not None
        self.serial = bound(linked, template, buffers, moves, 1, False)
        self.parallel = bound(linked, template, buffers, moves, self.parts, True)

    def _begin(
        self, kernel: Flat | Spread | Fold, tables: dict[str, list[int]]
    ) -> tuple[Sequence[int], Sequence[int]]:
        """Write a call to the tables: (the places of its buffers, the order of its inputs)."""
        template = tables["template"]
        begin = len(template)
        if isinstance(kernel, Spread):
            linked = _spreader(kernel.itemsize)
            self.code.append(linked)
            template += [0, 0, 0, 0, kernel.middle, kernel.inner]
            tables["sizes"].append(begin + spread.WORDS.index("count"))
            tables["starts"].append(begin + spread.WORDS.index("start"))
            tables["calls"] += [linked.addresses["kernel"], begin]
            return (0, 1), (0,)
        if isinstance(kernel, Fold):
            linked = row_folds.code(kernel.dtype, kernel.op)
            self.code.append(linked)
            template += [0, 0, 0, 0, kernel.length, _TILE]
            tables["sizes"].append(begin + tile_folds.WORDS.index("count"))
            tables["starts"].append(begin + tile_folds.WORDS.index("start"))
            tables["calls"] += [linked.addresses["kernel"], begin]
            return (0, 1), (0,)
        self.code.append(kernel)
        layout = kernel.layout
        template += [0] * layout.words
        total, chunks, each = [begin + place for place in layout.sizes]
        template[chunks] = 1
        tables["sizes"] += [total, each]
        tables["calls"] += [kernel.address, begin]
        return layout.buffers, kernel.order

    def __call__(self, arrays: Sequence[Any], size: int) -> None:
        if size < _PARALLEL_FROM:
            self.serial(arrays, (size, size))
            return
        from ..native.pool import pool

        pool().start()
        tiles = -(-size // _TILE)
        self.parallel(arrays, (size, -(-tiles // self.parts) * _TILE))


_native = functools.lru_cache(1024)(_Native)
"""Layers that are alike have equal chains, whose tables take longer to write than to run."""

_NAME = "chain of tiles"


@functools.cache
def _spreader(itemsize: int) -> Any:
    return linking.linked(_spread_name(itemsize), lambda: spread.text(itemsize))


def _spread_name(itemsize: int) -> str:
    return f"spread of {itemsize} bytes"


def all_code() -> Iterator[tuple[str, str]]:
    """(name, LLVM IR) of every piece of code, for the pack."""
    yield _NAME, code.text()
    for itemsize in (1, 2, 4, 8):
        yield _spread_name(itemsize), spread.text(itemsize)


def _registers(
    calls: Sequence[tuple[Any, tuple[int, ...], int]], arrays: Collection[int]
) -> tuple[dict[int, int], int]:
    """(value -> register, the number of registers). A register is free after the last read."""
    last = {value: i for i, (_, read, _) in enumerate(calls) for value in read}
    free: list[int] = []
    found: dict[int, int] = {}
    count = 0
    for i, (_, read, made) in enumerate(calls):
        if made not in arrays:
            if not free:
                free.append(count)
                count += 1
            found[made] = free.pop()
        for value in {*read, made}:
            if value in found and last.get(value, i) == i:
                free.append(found[value])
    return found, count
