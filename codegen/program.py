"""Program: a graph as kernels over buffer slots, in the order of their launch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from weakref import WeakValueDictionary

from tilewright.ir import loop as loops
from tilewright.ir.dtype import DType
from tilewright.ir.node import Node, format_location, intern, reachable
from tilewright.ir.op import Kind
from tilewright.ir.ops.external import outcomes, updated
from tilewright.ir.ops.generate import scalar
from tilewright.ir.ops.host import has_kernel, results_of
from tilewright.ir.passes.pipeline import lower_graph

from .fusion import Group, Partition
from .fusion.anchors import is_buffer, memory
from .fusion.bundles import bundles
from .fusion.precedents import fuse
from .kernel import Bundle, Kernel, Load, Scalar
from .kernel.canonical import Note
from .legalize import legalize
from .lower.external import External, launch_of
from .lower.host import Routine, routine_of
from .ops import initial
from .target import Target


@dataclass(frozen=True)
class Step:
    """One launch: the slots of its kernel's outputs and inputs, in the kernel's order.

    nodes: all that it computes, as the compiler sees them; several launches may compute one node.
    cost: the cost in fusion's model, in bytes that could be moved in its time.
    """

    kernel: Kernel | Bundle | Loop | External | Routine
    outputs: tuple[int, ...]
    inputs: tuple[int, ...]
    nodes: tuple[Node, ...] = ()
    cost: float = 0.0


@dataclass(frozen=True, eq=False)
class Loop:
    """The launches of one step of a loop node, which run for each place of its sequences.

    body: the step. Its leaves are numbered as the loop's operands: the first `sequences` of them
        are walked through, the next `states` are the initial states.
    shapes: the shapes of its results, which lie in the loop's output one after another, each
        [count, *shape].
    """

    name: str
    body: Program
    count: int
    sequences: int
    states: int
    reverse: bool
    shapes: tuple[tuple[int, ...], ...]

    @property
    def scalars(self) -> tuple[Scalar, ...]:
        """None: all that a step reads are operands."""
        return ()

    @property
    def kernels(self) -> tuple[Kernel | Bundle | External | Routine, ...]:
        """The kernels of one step, including those of loops in it."""
        return launched(self.body)


@dataclass(frozen=True)
class Slot:
    """Memory for one value. node: the node that it holds, as the compiler sees it."""

    shape: tuple[int, ...]
    dtype: DType
    node: Node | None


@dataclass(frozen=True)
class Program:
    """A compiled graph.

    slots: all memory it needs.
    leaves: the slot in which the value of each leaf is expected.
    scalars: the scalar leaves its kernels read, by index.
    steps: the launches in order. A slot that is the output of two steps is written by the first
        and updated in place by the second.
    results: the slot of each root. It may have another shape with the elements in the same order.
    report: text for people: what each step computes, and why it isn't fused with those it reads.
    """

    slots: tuple[Slot, ...]
    leaves: dict[Node, int]
    scalars: tuple[Node, ...]
    steps: tuple[Step, ...]
    results: tuple[int, ...]
    report: tuple[str, ...] = field(default=())


def launched(program: Program) -> tuple[Kernel | Bundle | External | Routine, ...]:
    """The kernels of a program in the order of launch; those of a loop's step count once."""
    found: list[Kernel | Bundle | External | Routine] = []
    for step in program.steps:
        found += step.kernel.kernels if isinstance(step.kernel, Loop) else (step.kernel,)
    return tuple(found)


def compile_graph(roots: Sequence[Node], target: Target) -> Program:
    """Kernels that compute `roots`, a graph of primitives, on `target`."""
    legal = legalize(roots, target)
    nodes = reachable(legal)
    leaves = [n for n in nodes if is_buffer(n)]
    partition = fuse(legal, leaves, target)
    batches = bundles(partition)
    return _Assembly(partition, leaves).program(batches, [memory(r) for r in legal], nodes)


def body_of(node: Node, target: Target) -> Program:
    """The step of a loop node, compiled. It doesn't depend on the number of steps."""
    _, results = loops.body(node.op, node.operands, node.attrs)
    roots = lower_graph(results)
    # Each result has memory of its own.
    roots = [
        intern(initial, (r,), (i,)) if is_buffer(memory(r)) or r in roots[:i] else r
        for i, r in enumerate(roots)
    ]
    return compile_graph(roots, target)


def loop_of(node: Node, body: Program) -> Loop:
    """The loop of a node over its compiled step."""
    sequences, states, reverse = node.attrs[:3]
    _, results = loops.body(node.op, node.operands, node.attrs)
    shapes = tuple(tuple(r.shape) for r in results)
    count = node.operands[0].shape[0]
    return Loop(node.op.name, body, count, sequences, states, reverse, shapes)


class _Assembly:
    """Gives slots to nodes and turns groups into steps."""

    def __init__(self, partition: Partition, leaves: Sequence[Node]):
        self.partition = partition
        self.slots: list[Slot] = []
        self.slot_of: dict[Node, int] = {}
        self.leaves = {leaf: self._slot(leaf) for leaf in leaves}

    def program(
        self, batches: Sequence[list[Group]], results: Sequence[Node], nodes: Sequence[Node]
    ) -> Program:
        steps: list[Step] = []
        report: list[str] = []
        step_of: dict[Node, int] = {}
        for batch in batches:
            if len(batch) == 1 and self._takes_over(batch[0], step_of):
                continue
            made = [self._member(group) for group in batch]
            for group in batch:
                report += self._explain(group, len(steps), step_of)
                step_of.update(dict.fromkeys(group.anchors, len(steps)))
            outputs = tuple(s for step in made for s in step.outputs)
            inputs = tuple(s for step in made for s in step.inputs)
            kernel = made[0].kernel
            if len(made) > 1:
                kernel = _bundle(tuple(s.kernel for s in made if isinstance(s.kernel, Kernel)))
            computed = tuple(dict.fromkeys(n for group in batch for n in group.nodes))
            steps.append(Step(kernel, outputs, inputs, computed, sum(g.cost for g in batch)))
            if isinstance(kernel, Loop):
                report += [f"  {line}" for line in kernel.body.report]
        found = tuple(self._slot(r) for r in results)
        return Program(
            tuple(self.slots),
            self.leaves,
            self._scalars(steps, nodes),
            tuple(steps),
            found,
            tuple(report),
        )

    def _takes_over(self, group: Group, step_of: dict[Node, int]) -> bool:
        """Whether a group only copies memory that nothing needs after the updates of the copy. Then
        these write to that memory, and the copy is left out. step_of: the launches so far."""
        copy = group.anchors[0]
        if len(group.anchors) > 1 or copy.op is not initial:
            return False
        base, partition = memory(copy.operands[0]), self.partition
        if base not in step_of or base in partition.results:
            return False
        updates = partition.readers.get(copy, ())
        groups = {partition.group_of[u] for u in updates}
        if len(groups) != 1 or any(g.kind != "update" or _reads_elsewhere(g, base) for g in groups):
            return False
        after = (copy, *updates)
        if any(r not in step_of and r not in after for r in partition.readers[base]):
            return False
        self.slot_of[copy] = self._slot(base)
        return True

    def _slot(self, node: Node) -> int:
        found = self.slot_of.get(node)
        if found is None:
            base = updated(node)
            if base.op is initial and base in self.slot_of:
                # The update happens in place, in the memory that the initial copy wrote.
                found = self.slot_of[base]
                self.slots[found] = Slot(tuple(node.shape), node.dtype, node)
            else:
                found = len(self.slots)
                self.slots.append(Slot(tuple(node.shape), node.dtype, node))
            self.slot_of[node] = found
        return found

    def _member(self, group: Group) -> Step:
        if group.kind == "loop":
            return self._loop(group.anchors[0])
        if group.kind == "external":
            return self._external(group.anchors[0])
        if group.kind == "host":
            return self._host(group.anchors[0])
        notes = notes_of(group.nodes)
        kernel, buffers = group.template.canonical(_name(group), notes)
        node_of = {group.form.buffer(n): n for n in (*group.outputs, *group.form.loaded)}
        outputs = tuple(self._slot(node_of[buffers[b]]) for b in kernel.outputs)
        inputs = tuple(self._slot(node_of[buffers[b]]) for b in kernel.inputs)
        return Step(kernel, outputs, inputs)

    def _loop(self, node: Node) -> Step:
        loop = loop_of(node, body_of(node, self.partition.target))
        inputs = tuple(self._slot(memory(o)) for o in node.operands)
        return Step(loop, (self._slot(node),), inputs)

    def _external(self, node: Node) -> Step:
        _, tensors, written, _ = node.attrs
        # All outcomes, also those that nothing reads.
        outputs = tuple(self._slot(each) for each in outcomes(node))
        read = [o for i, o in enumerate(node.operands[:tensors]) if i not in written]
        return Step(launch_of(node), outputs, tuple(self._slot(memory(o)) for o in read))

    def _host(self, node: Node) -> Step:
        # All results, also those that nothing reads.
        outputs = tuple(self._slot(each) for each in results_of(node))
        inputs = tuple(self._slot(memory(o)) for o in node.operands)
        if has_kernel(node.op, node.operands):
            from .triton.matrices import kernel_of

            return Step(kernel_of(node), outputs, inputs)
        return Step(routine_of(node), outputs, inputs)

    def _scalars(self, steps: Sequence[Step], nodes: Sequence[Node]) -> tuple[Node, ...]:
        used = {s.slot for step in steps for s in step.kernel.scalars}
        found = {n.attrs[0]: n for n in nodes if n.op is scalar and n.attrs[0] in used}
        return tuple(found[i] for i in sorted(found))

    def _explain(self, group: Group, number: int, step_of: dict[Node, int]) -> list[str]:
        notes = notes_of(group.nodes)
        listed = ", ".join(f"{op} ({format_location((f, n))})" for op, f, n in notes)
        lines = [f"step {number} {_name(group)}: {listed}"]
        told = set()
        for anchor in group.anchors:
            for read in self.partition.reads[anchor]:
                reason = self.partition.reasons.get((read, anchor))
                if read in step_of and reason and (read, reason) not in told:
                    told.add((read, reason))
                    lines.append(
                        f"  reads {read.op.name} of step {step_of[read]}, not fused: {reason}"
                    )
        return lines


def _reads_elsewhere(update: Group, base: Node) -> bool:
    """Whether an update reads `base` at a place that it doesn't write, or that it may have written
    before. Points may meet along reduction axes."""
    if base not in update.form.loaded:
        return False
    buffer = update.form.buffer(base)
    kernel = update.template.kernel
    if kernel.reduction:
        return True
    offsets = {s.offset for s in kernel.stores}
    loads = (v for v in kernel.values if isinstance(v, Load) and v.buffer == buffer)
    return any({v.offset} != offsets for v in loads)


_bundles: WeakValueDictionary[tuple[Kernel, ...], Bundle] = WeakValueDictionary()


def _bundle(members: tuple[Kernel, ...]) -> Bundle:
    """One object for equal members, so that a bundle is compiled once."""
    found = _bundles.get(members)
    if found is None:
        found = _bundles[members] = Bundle(members)
    return found


_SILENT = (Kind.LEAF, Kind.CONSTANT, Kind.GENERATE, Kind.MOVEMENT)


def notes_of(nodes: Sequence[Node]) -> tuple[Note, ...]:
    """Notes for people: the ops that a kernel computes, each with the user's line."""
    nodes = sorted(nodes, key=lambda n: n.seq)
    shown = [n for n in nodes if n.op.kind not in _SILENT and n.op is not initial] or nodes
    return tuple(dict.fromkeys((n.op.name, *n.loc) for n in shown))


def _name(group: Group) -> str:
    """The group's main ops, in order, and its kind."""
    if group.kind == "external":
        return launch_of(group.anchors[0]).name
    nodes = sorted(group.nodes, key=lambda n: n.seq)
    names = [n.op.name for n in nodes if n.op.kind not in _SILENT and n.op is not initial]
    if not names:
        moved = [n.op.name for n in nodes if n.op.kind is not Kind.CONSTANT]
        return "_".join([*dict.fromkeys(moved[-2:]), "copy" if moved else "fill"])
    distinct = list(dict.fromkeys(names))
    anchors = list(dict.fromkeys(a.op.name for a in group.anchors if a.op is not initial))
    heavy = [name for name in anchors if name in distinct][:3]
    chosen = set(heavy)
    for name in distinct[::-1]:
        if len(chosen) >= 4:
            break
        chosen.add(name)
    return "_".join([n for n in distinct if n in chosen] + [group.kind])
