"""Programs: a recorded graph as a list of steps over slots, run op by op."""

from __future__ import annotations

import math
import operator
from collections import Counter
from collections.abc import Callable, Container, Sequence
from sys import getrefcount
from typing import Any

import numpy as np

from tilewright.ir import loop, ops, recurrence
from tilewright.ir.dtype import BOOL, SIGNED, UNSIGNED, float32, float64
from tilewright.ir.interruption import pass_on
from tilewright.ir.node import Node
from tilewright.ir.op import REGISTRY, Kind, Op
from tilewright.ir.ops.generate import constant, constant_value, leaf
from tilewright.ir.ops.marker import LEAK, MARKERS, example
from tilewright.ir.passes.autodiff import decomposed
from tilewright.ir.passes.legalize import widen_long_sums
from tilewright.ir.passes.writes import Write, write_of

from . import (
    chains,
    composites,
    convolutions,
    copies,
    kernels,
    loops,
    recurrences,
    rows,
    scans,
    shortcuts,
    sorting,
    views,
)
from .forms import Form, form_of, has_form
from .quiet import quietly
from .writes import Overwrite, reader

Step = tuple[Form, tuple[int, ...], int, tuple[int, ...]]
"""A form, the slots of its operands, the slot of its result, and the slots that nothing reads
afterwards."""

_Call = tuple[Form, Callable[..., Any], int, tuple[int, ...]]
"""A step with a function of all values in the place of its operands' slots: it takes a third of the
time that a list of them takes."""


_FREED_FROM = 1 << 20
"""Bytes from which memory is freed as soon as nothing reads it."""


_CHAINED_FROM = 1 << 18
"""Bytes that a program writes from which its steps may be joined."""


_MOST_WINDOWS = 1 << 26
"""Elements of all windows of a convolution up to which the reference writes them to memory."""


MOST_SCORES = 1 << 24
"""Elements of the scores of attention up to which they are written to memory."""


_MOST_HELD = 1 << 14
"""Bytes of a constant that a program computes once."""


_LOOKED_AT = {ops.where, ops.argsort_op, ops.scatter, ops.slice_op}
"""Ops whose steps depend on what stands around them."""


_SKIPPING = {ops.slice_op, ops.add, *shortcuts.OPS}
"""Ops whose nodes may be other nodes, or be computed without their operands."""


class CannotRun(Exception):
    """A graph has a node that only a compiled plan computes."""


_COMPUTED = {
    Kind.GENERATE, Kind.ELEMENTWISE, Kind.MOVEMENT, Kind.REDUCE, Kind.CONTRACTION, Kind.GATHER,
    Kind.SCATTER, Kind.CHECK, Kind.SCAN,
}  # fmt: skip


_PRODUCTS = {
    *(op for op in REGISTRY.values() if op.kind in (Kind.CONTRACTION, Kind.ATTENTION)),
    ops.linear, ops.linear_input_grad, ops.linear_weight_grad,
}  # fmt: skip


class Program:
    """The steps that compute `roots` and, before them, all nodes `fallible`.

    leaves: (slot, number of the buffer); scalars: (slot, number, dtype of NumPy).
    results: the slots of the roots.
    structure: a hash of the ops in order, the same for other sizes.
    mean_bytes: the bytes that a step writes on average. products: the number of products.
    """

    def __init__(self, roots: Sequence[Node], fallible: Sequence[Node] = ()):
        self.leaves: list[tuple[int, int]] = []
        self.scalars: list[tuple[int, int, Any]] = []
        self.steps: list[Step] = []
        self.size = 0
        self._constants: list[tuple[int, Any]] = []
        self._slots: dict[Node, int] = {}
        self._shared: dict[Any, int] = {}
        self._bytes = 0
        self._ops: list[Op] = []
        self._writes = self._skips = self._is_large = self.is_settled = False
        self._sorts: list[Node] = []
        self._scatters: list[rows.Scaled] = []
        self._attended: list[tuple[Node, int]] = []
        self._add((*fallible, *roots))
        self.structure = hash(tuple(self._ops))
        self.results = [self._slots[n] for n in roots]
        if self._sorts:
            self._shorten_sorts()
        if self._attended:
            self._drop_weights()
        if self._scatters and not self._writes:
            self._scale_rows({self._slots[n] for n in fallible})
        if self._writes or self._skips:
            self._drop_unread({self._slots[n] for n in fallible})
        if self._writes:
            self._views = {slot for node, slot in self._slots.items() if _is_view(node)}
        self.products = sum([op in _PRODUCTS for op in self._ops])
        self.mean_bytes = self._bytes / max(len(self.steps), 1)
        if (self._bytes >= _CHAINED_FROM or self._is_large) and not self._writes:
            self._join(fallible)
        if self._writes or self._bytes > _FREED_FROM:
            self._free()
        self._calls: list[_Call] | None = None  # made when it runs again
        self._short: Callable[..., list[Any]] | None = None
        del self._slots, self._shared, self._ops, self._sorts, self._scatters
        del self._attended

    def _add(self, roots: Sequence[Node]) -> None:
        """Add what `roots` need, operands first. A node that stands for another one (a marker, a
        composite) shares its slot."""
        slots, steps, met, looked_at = self._slots, self.steps, self._ops, _LOOKED_AT
        for node in _in_order(roots, slots):
            op = node.op
            place = MARKERS.get(op)
            if place is not None:
                slots[node] = slots[node.operands[place]]
                continue
            ready = node.instruction.memo.get("baseline")
            if ready is None or op in looked_at:
                slots[node] = self._first(node)
                continue
            met.append(op)
            form, size = ready
            self._bytes += size
            slots[node] = slot = self.size
            self.size = slot + 1
            steps.append((form, tuple([slots[o] for o in node.operands]), slot, ()))

    def _first(self, node: Node) -> int:
        """The slot of a node that isn't known to be a step of its own."""
        kind = node.op.kind
        if kind is Kind.MARKER:
            return self._slots[_marked(node)]
        if kind is Kind.LEAF:
            return self._leaf(node)
        if kind is Kind.CONSTANT:
            self._constants.append((self.size, constant_value(node)))
            self.size += 1
            return self.size - 1
        return self._computed(node)

    def _leaf(self, node: Node) -> int:
        slot = self.size
        self.size += 1
        if node.op is ops.scalar:
            self.scalars.append((slot, node.attrs[0], node.dtype.np))
        else:
            self.leaves.append((slot, node.attrs[0]))
            if math.prod(node.shape) >= chains.FROM:
                self._is_large = True
        return slot

    def _computed(self, node: Node) -> int:
        op, memo = node.op, node.instruction.memo
        self._ops.append(op)
        if op is ops.where and node.operands[0].op.kind is Kind.MOVEMENT:
            write = write_of(node)
            if write is not None:
                return self._written(write)
        if op in _SKIPPING:
            other = views.same(node)
            if other is not None:
                self._skips = True
                return self._slots[other]
            found = shortcuts.of(node)
            if found is not None:
                self._skips = True
                self._bytes += _size(node)
                return self._step(found[1], [self._slots[n] for n in found[0]])
        if op is ops.argsort_op:
            self._sorts.append(node)
        if op is ops.scatter and (product := rows.scaled(node)) is not None:
            self._scatters.append(product)
        operands = [self._slots[o] for o in node.operands]
        if op.kind is Kind.ATTENTION and scores_of(node) > MOST_SCORES:
            raise CannotRun("the scores of attention take too much memory")
        wider = widen_long_sums(node) if op.wide and not scans.has_form(node) else None
        if wider is not None:
            return self._inner(wider)
        parts, form = memo.get("parts"), None
        if parts is None and op.kind is Kind.HOST:
            parts = memo["parts"] = routine_of(op, node.attrs, len(operands))
        if parts is None and op in CELLS and node.dtype in (float32, float64):
            parts = memo["parts"] = cell_of(node)
        if parts is None and op.decompose is not None:
            form = composites.form_of(node)
            if form is None:
                parts = memo["parts"] = composites.parts_of(node)
        if parts is not None:
            self._bytes += _size(node)
            slot = self._staged(parts, operands)
            if op.kind is Kind.ATTENTION:
                self._attended.append((node, slot))
            return slot
        if form is None and op.decompose is not None and not has_form(op):
            return self._inner(decomposed(node))
        form, size = form or _form(node), _size(node)
        if op is ops.sum_op and (bags := rows.bags(node)) is not None:
            self._scatters.append(bags)  # and the next one is looked at, too
        elif not (op in _SKIPPING and _is_looked_at(node)):
            memo["baseline"] = form, size
        self._bytes += size
        return self._step(form, operands)

    def _written(self, write: Write) -> int:
        """The slot of a tensor whose part is written."""
        self._writes = True
        self._bytes += _size(write.value)
        operands = [self._inner(write.base), self._inner(write.value)]
        return self._step(Overwrite(write), operands)

    def _staged(self, parts: composites.Parts, operands: Sequence[int]) -> int:
        """The slot of a record that shares stages with others."""
        stages, last = parts
        for key, places, stage in stages:
            whole = (key, *[operands[i] for i in places])
            shared = self._shared.get(whole)
            if shared is None:
                shared = self._shared[whole] = self._step(stage, operands)
            operands = [*operands, shared]
        return self._step(last, operands)

    def _inner(self, node: Node) -> int:
        """The slot of the node that another one stands for."""
        if node not in self._slots:
            self._add((node,))
        return self._slots[node]

    def _step(self, form: Form, operands: Sequence[int]) -> int:
        slot = self.size
        self.size = slot + 1
        self.steps.append((form, tuple(operands), slot, ()))
        return slot

    def _drop_unread(self, wanted: set[int]) -> None:
        """Drop steps that neither the results nor the slots `wanted` need: the masks of writes, and
        what views leave out."""
        wanted.update(self.results)
        kept = []
        for step in reversed(self.steps):
            if step[2] in wanted:
                wanted.update(step[1])
                kept.append(step)
        self.steps = kept[::-1]

    def _shorten_sorts(self) -> None:
        """Let a sort whose result is read at its beginning alone find no more than that."""
        slots, kept = self._slots, {*self.results}
        readers: dict[int, set[int]] = {slots[node]: set() for node in self._sorts}
        places: dict[int, int] = {}
        for place, (_, operands, made, _) in enumerate(self.steps):
            places[made] = place
            for slot in operands:
                if slot in readers:
                    readers[slot].add(made)
        cuts: dict[Node, list[Node]] = {node: [] for node in self._sorts}
        for node in slots:
            if node.op is ops.slice_op and node.operands[0] in cuts:
                cuts[node.operands[0]].append(node)
        for node, own in cuts.items():
            slot, axis = slots[node], node.attrs[0]
            if slot in kept or readers[slot] != {slots[cut] for cut in own}:
                continue
            count = max((cut.attrs[1][axis] for cut in own), default=node.shape[axis])
            if count * sorting.FEW <= node.shape[axis]:
                place = places[slot]
                self.steps[place] = (sorting.leading(node, count), *self.steps[place][1:])

    def _drop_weights(self) -> None:
        """Let attention whose weights nobody else reads hold those of one matrix at a time."""
        reads = Counter([slot for _, operands, _, _ in self.steps for slot in operands])
        places = {made: place for place, (_, _, made, _) in enumerate(self.steps)}
        for node, slot in self._attended:
            *operands, weights = self.steps[places[slot]][1]
            form = composites.alone(node) if reads[weights] == 1 else None
            if form is not None:
                self.steps[places[slot]] = (form, tuple(operands), slot, ())
                self._skips = True  # the weights aren't read

    def _scale_rows(self, kept: set[int]) -> None:
        """Let scatters of rows by factors read the rows where they are, if nothing else reads the
        products."""
        slots = self._slots
        kept = kept.union(self.results)
        reads = Counter([slot for _, operands, _, _ in self.steps for slot in operands])
        reads.update(kept)
        for each in self._scatters:
            slot, product, gather = (slots[n] for n in (each.result, each.product, each.gather))
            if reads[product] > 1 or reads[gather] > 1:
                continue
            form = each.form()
            operands = tuple([slots[n] for n in each.operands])
            self._skips = True  # indices may be read before they are widened
            self.steps = [
                (form, operands, slot, ()) if step[2] == slot else step
                for step in self.steps
                if step[2] not in (product, gather)
            ]

    def _join(self, fallible: Sequence[Node]) -> None:
        """Let elementwise steps over large tensors run together."""
        slots, nodes = self._slots, {}
        reads = {slot: operands for _, operands, slot, _ in self.steps}
        for node, slot in slots.items():
            if slot in nodes and node.op.kind is not Kind.ELEMENTWISE:
                continue
            # Nodes may share a slot, and a step may read others than its node's operands.
            if reads.get(slot) == tuple([slots.get(o) for o in node.operands]):
                nodes[slot] = node
        kept = {*self.results, *[self._slots[n] for n in fallible]}
        self.steps, self.size = chains.joined(self.steps, nodes, kept, self.size)

    def _free(self) -> None:
        """Note after which step a slot isn't read any more. A write whose old tensor isn't read
        afterwards may happen in its memory."""
        seen = set(self.results)
        for i in range(len(self.steps) - 1, -1, -1):
            form, operands, slot, _ = self.steps[i]
            dead = [s for s in {*operands, slot} if s not in seen]
            if dead:
                seen.update(dead)
                self.steps[i] = form, operands, slot, tuple(dead)
            if type(form) is Overwrite:
                form.is_last = operands[0] in dead

    def settle(self) -> None:
        """Prepare a program that runs again: compute once what depends on nothing but constants,
        and make the readers of operands. A program that runs once does without them: where sizes
        change at each step there are thousands, and the garbage collector walks what they hold."""
        fixed, kept = dict(self._constants), []
        for step in self.steps:
            form, operands, slot, _ = step
            value = None
            if type(form) is not Overwrite and all([i in fixed for i in operands]):
                value = _constant(form, [fixed[i] for i in operands])
            if value is None:
                kept.append(step)
            else:
                fixed[slot] = value
        read = {i for _, operands, _, _ in kept for i in operands}.union(self.results)
        self.steps, self._constants = kept, [each for each in fixed.items() if each[0] in read]
        self._calls = [(form, reader(operands), slot, dead) for form, operands, slot, dead in kept]
        self._blank, self.is_settled = self._fixed(), True
        self._short = self._shortened()

    def _shortened(self) -> Callable[..., list[Any]] | None:
        """`compute` for a step of one leaf or two and steps that follow it in a line, which takes
        less than half the time; None for other programs."""
        if not self.steps or self.scalars or self._writes:
            return None
        (first, operands, made, _), *others = self.steps
        number = dict(self.leaves)
        if not 1 <= len(operands) <= 2 or not all([each in number for each in operands]):
            return None
        for _, read, slot, _ in others:
            if read != (made,):
                return None
            made = slot
        if self.results != [made]:
            return None
        places, forms = [number[each] for each in operands], [form for form, *_ in others]
        a, b = places[0], places[-1]
        if not forms and len(places) == 1:
            return lambda buffers, numbers: [first(buffers[a])]
        if not forms:
            return lambda buffers, numbers: [first(buffers[a], buffers[b])]
        is_one = len(places) == 1

        def line(buffers: Sequence[Any], numbers: Sequence[Any]) -> list[Any]:
            value = first(buffers[a]) if is_one else first(buffers[a], buffers[b])
            for form in forms:
                value = form(value)
            return [value]

        return line

    def run(
        self,
        buffers: Sequence[Any],
        numbers: Sequence[Any],
        donated: Sequence[tuple[int, int]] = (),
    ) -> list[Any]:
        """The values of the roots, each in contiguous memory of its own.

        donated: (root, leaf) for leaves that nobody reads again once the root has its value. If the
        root is the leaf with parts written, and nothing can fail after the first write, the leaf's
        memory becomes the root's.
        """
        given = [(n, w) for root, n in donated if (w := self._in_place(root, n))] if donated else []
        if not given:
            found = quietly(self._short or self.compute, buffers, numbers)
            read = [buffers[number] for _, number in self.leaves]
            return found if len(found) == 1 and _is_made(found[0], read) else _owned(found, read)
        for number, writes in given:
            spare = getrefcount(buffers[number]) - 1
            for each in writes:
                each.spare = spare
        try:
            found = quietly(self.compute, buffers, numbers)
        finally:
            for _, writes in given:
                for each in writes:
                    each.spare = 0
        own = {number for number, _ in given}
        return _owned(found, [buffers[number] for _, number in self.leaves if number not in own])

    def _in_place(self, root: int, number: int) -> list[Overwrite]:
        """The writes that make a root from a leaf, if they may happen in the leaf's memory."""
        if not self._writes:
            return []
        leaf = next((slot for slot, n in self.leaves if n == number), None)
        slot, chain = self.results[root], []
        for form, operands, made, _ in reversed(self.steps):
            if made == slot and type(form) is Overwrite and form.is_last:
                chain.append(form)
                slot = operands[0]
                if slot == leaf:
                    return chain
            elif type(form) is not Overwrite and made not in self._views:
                return []  # it might fail
        return []

    def compute(self, buffers: Sequence[Any], numbers: Sequence[Any] = ()) -> list[Any]:
        """The values of the roots. They may be views of each other and of `buffers`."""
        values = self._begun(buffers, numbers)
        if self._calls is None:
            value_in = values.__getitem__
            for form, operands, slot, dead in self.steps:
                values[slot] = form(*map(value_in, operands))
                for i in dead:
                    values[i] = None
            return [values[i] for i in self.results]
        for form, operands_in, slot, dead in self._calls:
            values[slot] = form(*operands_in(values))
            if dead:
                for i in dead:
                    values[i] = None
        return [values[i] for i in self.results]

    def _begun(self, buffers: Sequence[Any], numbers: Sequence[Any]) -> list[Any]:
        """All slots, with the values that are there before the first step."""
        if self.is_settled:
            values = self._blank.copy()
        else:
            values = self._fixed()
        for slot, number in self.leaves:
            values[slot] = buffers[number]
        if self.scalars:
            for slot, number, np_dtype in self.scalars:
                values[slot] = np.asarray(numbers[number]).astype(np_dtype)[()]
        return values

    def _fixed(self) -> list[Any]:
        """All slots, with the constants."""
        values: list[Any] = [None] * self.size
        for slot, value in self._constants:
            values[slot] = value
        return values


def _constant(form: Form, operands: Sequence[Any]) -> Any:
    """The value of a form for good, in memory that nobody may write to; None if it refuses its
    operands or has much to hold."""
    try:
        (value,) = quietly(lambda: [np.asarray(form(*operands))])
    except Exception as error:  # raised where it is due
        pass_on(error)
        return None
    if value.nbytes > _MOST_HELD:
        return None
    value = value.view()
    value.flags.writeable = False
    return value


def _form(node: Node) -> Form:
    """The form of a primitive, or of a composite by its reference."""
    op, kind = node.op, node.op.kind
    if kind is Kind.LOOP:
        return loop_of(node)
    if op.convolution and _windows(node) > _MOST_WINDOWS and not convolutions.has_form(node):
        raise CannotRun("the windows of a convolution take too much memory")
    if op is ops.integer_matmul and 0 not in (*node.shape, node.operands[0].shape[-1]):
        return kernels.product(node)
    if kind in _COMPUTED or (kind is Kind.COMPOSITE and op.numpy is not None):
        return form_of(node)
    raise CannotRun(f"{op.name} needs a compiled plan")


def _is_looked_at(node: Node) -> bool:
    """Whether another node of this type may be no step of its own."""
    if node.op is ops.sum_op:  # over the taps of a sampled image
        return node.operands[0].rank - 1 not in node.attrs[0]
    return node.dtype.category in (UNSIGNED, SIGNED, BOOL) and node.op is not ops.gather


def _is_view(node: Node) -> bool:
    """Whether a form returns a view of its operand, so that it needs no memory."""
    if node.op is ops.reshape_op:
        before, after = [[n for n in x.shape if n != 1] for x in (node.operands[0], node)]
        return before == after
    return node.op is ops.slice_op or node.op is ops.permute_op


def routine_of(op: Op, attrs: Sequence[Any], count: int) -> composites.Parts:
    """The parts of a result of a library's routine of `count` operands, which is called once for
    all its results."""
    (*given, index), function = attrs, op.routine
    assert function is not None

    def call(*arrays: Any) -> Any:
        return function(*map(np.asarray, arrays), *given)

    places = tuple(range(count))
    return [((op, tuple(given)), places, call)], lambda *values: values[-1][index]


def _size(node: Node) -> int:
    """The bytes that the form of a node writes."""
    moves = node.op.kind is Kind.MOVEMENT
    return 0 if moves else math.prod(node.shape) * node.dtype.itemsize


def _in_order(roots: Sequence[Node], known: Container[Node]) -> list[Node]:
    """What `roots` need beyond the nodes `known`, operands first."""
    marker = Kind.MARKER
    seen: set[Node] = set()
    stack = [r for r in roots if r not in known]
    while stack:
        node = stack.pop()
        if node not in seen:
            seen.add(node)
            for each in (_marked(node),) if node.op.kind is marker else node.operands:
                if each not in seen and each not in known:
                    stack.append(each)
    return sorted(seen, key=_SEQ)


_SEQ = operator.attrgetter("seq")


def _marked(node: Node) -> Node:
    """The node whose value a marker has."""
    if node.op is example:
        raise RuntimeError(LEAK)
    place = MARKERS.get(node.op)
    if place is None:  # nothing reads it, as its users have a place
        return constant(0, node.dtype)
    return node.operands[place]


def scores_of(node: Node) -> int:
    """The elements of the scores of a record of attention."""
    q, k = node.operands[:2]
    return math.prod(q.shape[:-1]) * k.shape[-2]


def _windows(node: Node) -> int:
    """The elements of all windows of a convolution, or of its gradient."""
    x, w = node.operands
    if node.op is ops.conv:
        return math.prod(node.shape[:1]) * math.prod(node.shape[2:]) * math.prod(w.shape[1:])
    windows = math.prod(x.shape[:1]) * math.prod(x.shape[2:])  # x is the output's cotangent
    inner = w.shape if node.op is ops.conv_input_grad else node.shape
    return windows * math.prod(inner[1:])


def _memory(value: Any) -> Any:
    """The object that has the memory of an array."""
    while (base := getattr(value, "base", None)) is not None:
        value = base
    return value


def _whole_memory(value: Any) -> Any:
    """The array that has the memory of a contiguous array which fills it; None for others."""
    if value.__class__ is not np.ndarray or not value.flags.carray:
        return None
    memory = value.base
    if memory is None:
        return value
    is_whole = memory.__class__ is np.ndarray and memory.base is None
    return memory if is_whole and memory.nbytes == value.nbytes else None


def _is_made(value: Any, others: Sequence[Any]) -> bool:
    """Whether an array is contiguous, and alone has memory that is that of none of `others`."""
    memory = _whole_memory(value)
    shared = memory is None or [each for each in others if each is memory or each.base is memory]
    return not shared


def _owned(values: list[Any], others: Sequence[Any]) -> list[Any]:
    """`values` as contiguous arrays that share memory neither with each other nor with `others`."""
    taken = set(map(id, others))
    taken.update([id(each.base) for each in others if each.base is not None])
    for i, value in enumerate(values):
        if value.__class__ is not np.ndarray:  # a NumPy scalar: a whole sum, or a function of one
            values[i] = np.asarray(value)
            continue
        memory = _whole_memory(value)
        if memory is None or id(memory) in taken:
            break
        taken.add(id(memory))
    else:  # as usual, forms made the arrays
        return values
    taken = set(map(id, map(_memory, others)))
    return [_alone(value, taken) for value in values]


def _alone(value: Any, taken: set[int]) -> Any:
    """`value` as a contiguous array whose memory nobody else has. taken: the memory that others
    have, to which it is added."""
    if isinstance(value, np.ndarray) and value.flags.carray:
        memory = _memory(value)
        if id(memory) not in taken and getattr(memory, "nbytes", -1) == value.nbytes:
            taken.add(id(memory))
            return value
    return copies.copied(np.asarray(value))


CELLS = {recurrence.cell_state, recurrence.cell_grad}


def cell_of(node: Node) -> composites.Parts:
    """The parts of a new state of a cell, or of one of its cotangents: a program makes all of
    them."""
    native = recurrences.parts_of(node)
    if native is not None:
        return native
    op, (*attrs, number) = node.op, node.attrs
    key = (op, tuple(attrs), tuple([o.type for o in node.operands]))
    found = _bodies.get(key)
    if found is None:
        inner = [leaf(i, o.shape, o.dtype) for i, o in enumerate(node.operands)]
        roots: Sequence[Node]
        if op is recurrence.cell_state:
            roots = recurrence.CELLS[attrs[0]].step(*inner)[0]
        else:
            roots = recurrence.cell_cotangents(inner[0], inner[1:], *attrs)
        found = _bodies[key] = Program(roots)
        found.settle()
    return [(key, tuple(range(len(node.operands))), lambda *a: found.compute(a))], (
        lambda *values: values[-1][number]
    )


_bodies: dict[Any, Program] = {}
"""What cells compute, by the types of their operands."""
_steps: dict[Any, loops.Steps] = {}
"""The steps of loops, which don't depend on the number of steps."""


def clear() -> None:
    """Forget the steps of loops and cells, and kernels compiled alone."""
    _bodies.clear()
    _steps.clear()
    kernels.clear()


def loop_of(node: Node) -> Form:
    """The form of a loop."""
    native = recurrences.form_of(node)
    if native is not None:
        return native
    op, sequences = node.op, node.attrs[0]
    shapes = [o.shape[1:] if i < sequences else o.shape for i, o in enumerate(node.operands)]
    key = (op, node.attrs, *[(tuple(s), o.dtype) for s, o in zip(shapes, node.operands)])
    step = _steps.get(key)
    if step is None:
        body = Program(loop.body(op, node.operands, node.attrs)[1])
        step = _steps[key] = loops.Steps(node, body)
    return step.form_of(node)
