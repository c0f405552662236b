"""networkx graphs of recorded work, for the user's own analysis and for drawing.

`graph_of(step, x)` shows the recorded ops, `kernels_of(step, x)` the launches that they are fused
to, and `plan_of(step, x)` the launches with the memory between them. `formats.write` writes each to
a file. All graphs are acyclic. Names of nodes are texts, and attributes are plain Python values.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from tilewright.codegen.kernel import Bundle, Kernel
from tilewright.codegen.program import Loop, Slot, Step, notes_of
from tilewright.codegen.schedule import default_schedule, predict
from tilewright.codegen.target import Target
from tilewright.ir.dtype import DType
from tilewright.ir.mlir.graph import node_names
from tilewright.ir.node import Node, format_location
from tilewright.ir.op import Kind
from tilewright.ir.ops.generate import constant_value
from tilewright.runtime.placement import place
from tilewright.runtime.plan import launch_count
from tilewright.runtime.segment import CROSSING
from tilewright.runtime.segments import temporaries

from .explanation import slot_bytes
from .parts import Part, kernels_of_nodes, parts_of, report_on, title_of

if TYPE_CHECKING:
    import networkx


def graph_of(
    work: Any = None, *args: Any, target: str | None = None, **kwargs: Any
) -> networkx.MultiDiGraph:
    """The graph of recorded ops, with edges to the ops that read them.

    work: a function to call with the arguments, as `predict` does (it computes nothing;
        RuntimeError if the function reads a value); or tensors; a report of `explain` or `predict`;
        a traced call. By default all pending work.
    target: show the kernels for this GPU (sm_90) instead of those for the plan's devices. This is
        the one keyword that the function doesn't get.

    Nodes are named as in the plan's MLIR (`%3`, `%arg0`). Their attributes: op, kind, shape, dtype,
    device, bytes, line (file:line of the user's code), attrs (a text), result (whether the work
    asks for it), and kernels (the nodes of `kernels_of` that compute it or a part of it; the first
    one stores it). An edge has the number of the operand, also as its key.
    """
    report = report_on(work, args, kwargs)
    kernels = kernels_of_nodes(report, target)
    roots = set(report.plan.recorded)
    graph = _empty("graph", title_of(report, target), "kernels")
    names = {n: f"%{name}" for n, name in node_names(list(kernels)).items()}
    for node, found in kernels.items():
        graph.add_node(
            names[node],
            op=node.op.name,
            kind=node.op.kind.value,
            **_value(node.shape, node.dtype),
            device=node.device or "any",
            line=format_location(node.loc),
            attrs=_attrs(node),
            result=node in roots,
            kernels=found,
        )
        for i, operand in enumerate(node.operands):
            graph.add_edge(names[operand], names[node], key=i, operand=i)
    return graph


def kernels_of(
    work: Any = None, *args: Any, target: str | None = None, **kwargs: Any
) -> networkx.MultiDiGraph:
    """The graph of launches, with edges to the launches that read their results.

    work, target: as in `graph_of`. work may also be a result of `torch.aot.compile`.

    Attributes of nodes: name, order, segment, device, ops and lines (tuples), launches (several for
    a loop), bytes_read and bytes_written (each buffer once), and cost (fusion's estimate, in bytes
    that could be moved in its time). With a target also seconds, predicted from the kernel alone.
    An edge is a value that goes through memory, with shape, dtype, bytes, and crosses (whether it
    goes to another device).
    """
    title, parts = parts_of(work, args, kwargs, target)
    graph = _empty("kernels", title, "segment")
    writer: dict[tuple[int, int], str] = {}
    sent: dict[int, tuple[str, Slot]] = {}
    for part in parts:
        slots = part.program.slots
        for name, step in part.steps:
            graph.add_node(name, **_described(part, name, step))
            for slot in dict.fromkeys((*step.inputs, *step.outputs)):
                value, source = slots[slot], writer.get((part.number, slot))
                crosses = part.arriving.get(slot) in sent
                if crosses:
                    source, value = sent[part.arriving[slot]]
                if source is not None:
                    graph.add_edge(source, name, **_of_slot(value), crosses=crosses)
            writer.update(dict.fromkeys(((part.number, s) for s in step.outputs), name))
        for number, slot in part.leaving.items():
            if (part.number, slot) in writer:
                sent[number] = writer[part.number, slot], slots[slot]
    return graph


def plan_of(
    work: Any = None, *args: Any, target: str | None = None, **kwargs: Any
) -> networkx.MultiDiGraph:
    """The graph of a plan: launches and buffers, with an edge for each buffer that a launch reads
    or writes.

    work, target: as in `kernels_of`.

    Launches are the nodes of `kernels_of`, with type "launch". Buffers have type "buffer", segment,
    device, slot, shape, dtype, bytes and role. Roles are input (with the leaf's number, or from
    another device), temporary (with its offset in the arena), sent (to another device) and result
    (with the numbers of the results, and as donors the numbers of the leaves whose memory it may
    take). A buffer that is updated in place has a node for each of its contents.
    """
    title, parts = parts_of(work, args, kwargs, target)
    graph = _empty("plan", title, "segment")
    sent: dict[int, str] = {}
    for part in parts:
        buffers = _Buffers(graph, part)
        for slot in part.program.leaves.values():
            node = buffers.current(slot)
            if part.arriving.get(slot) in sent:
                graph.add_edge(sent[part.arriving[slot]], node, access="copy")
        for name, step in part.steps:
            graph.add_node(name, type="launch", **_described(part, name, step))
            for i, slot in enumerate(step.inputs):
                graph.add_edge(buffers.current(slot), name, access="read", operand=i)
            for slot in dict.fromkeys(step.outputs):
                if slot in buffers.names:
                    graph.add_edge(buffers.current(slot), name, access="update")
            for i, slot in enumerate(step.outputs):
                graph.add_edge(name, buffers.written(slot), access="write", operand=i)
        for number, slot in part.leaving.items():
            sent[number] = buffers.current(slot)
        buffers.finish()
    return graph


class _Buffers:
    """The nodes of a part's slots. names: slot -> the node of its present contents."""

    def __init__(self, graph: networkx.MultiDiGraph, part: Part):
        self.graph, self.part = graph, part
        self.names: dict[int, str] = {}
        self.versions: dict[int, int] = {}
        self.leaves = {slot: leaf.attrs[0] for leaf, slot in part.program.leaves.items()}
        self.offsets, _ = place(part.program, temporaries(part.program))

    def current(self, slot: int) -> str:
        return self.names[slot] if slot in self.names else self.written(slot)

    def written(self, slot: int) -> str:
        """A node for new contents of a slot."""
        version = self.versions.get(slot, -1) + 1
        self.versions[slot] = version
        name = f"{self.part.number}.{slot}" + (f" after {version} updates" if version else "")
        self.names[slot] = name
        roles: dict[str, Any] = {"role": ()}
        if slot in self.leaves and not version:
            number = self.leaves[slot]
            roles = {"role": ("input",)} | ({"leaf": number} if number < CROSSING else {})
        elif slot in self.offsets:
            roles = {"role": ("temporary",), "offset": self.offsets[slot]}
        where = {"segment": self.part.number, "device": self.part.device, "slot": slot}
        value = _of_slot(self.part.program.slots[slot])
        self.graph.add_node(name, type="buffer", **where, **value, **roles)
        return name

    def finish(self) -> None:
        """Mark the contents that are results."""
        for slot in dict.fromkeys(self.part.program.results):
            node = self.graph.nodes[self.current(slot)]
            results = tuple(i for i, s in self.part.results if s == slot)
            if slot in self.part.leaving.values():
                node["role"] += ("sent",)
            if results:
                node["role"] += ("result",)
                node["results"] = results
            if results and slot in self.part.donors:
                node["donors"] = self.part.donors[slot]


# ---- attributes ------------------------------------------------------------------------------


def _empty(name: str, title: str, cluster: str) -> networkx.MultiDiGraph:
    """A graph without nodes. cluster: the attribute that groups nodes in drawings."""
    import networkx

    return networkx.MultiDiGraph(name=name, title=title, cluster=cluster)


def _value(shape: Sequence[int], dtype: DType) -> dict[str, Any]:
    size = math.prod(shape) * dtype.itemsize
    return {"shape": tuple(shape), "dtype": dtype.name, "bytes": size}


def _attrs(node: Node) -> str:
    """The attrs of a node as text, without those that repeat its shape and dtype."""
    if node.op.kind is Kind.CONSTANT:
        return str(constant_value(node))
    own = (node.shape, node.dtype)
    attrs = zip(node.op.params, node.attrs)
    return ", ".join(f"{k}={v}" for k, v in attrs if not any(v is o or v == o for o in own))


def _of_slot(slot: Slot) -> dict[str, Any]:
    return _value(slot.shape, slot.dtype)


def _described(part: Part, name: str, step: Step) -> dict[str, Any]:
    """The attributes of a launch."""
    kernel = step.kernel
    notes = notes_of(step.nodes)
    found = {
        "name": kernel.name,
        "order": int(name.split()[0]),
        "segment": part.number,
        "device": part.device,
        "ops": tuple(op for op, _, _ in notes),
        "lines": tuple(dict.fromkeys(format_location((f, n)) for _, f, n in notes)),
        "launches": kernel.count * launch_count(kernel.body) if isinstance(kernel, Loop) else 1,
        "bytes_read": slot_bytes(part.program, step.inputs),
        "bytes_written": slot_bytes(part.program, step.outputs),
        "cost": _cost(step),
    }
    if part.target is not None:
        found["seconds"] = _seconds(step, part.target)
    return found


def _cost(step: Step) -> float:
    """The cost of all launches of a step."""
    if isinstance(step.kernel, Loop):
        return step.kernel.count * sum(map(_cost, step.kernel.body.steps))
    return step.cost


def _seconds(step: Step, target: Target) -> float:
    """The predicted time of a step on a GPU, without users' kernels."""
    kernel = step.kernel
    if isinstance(kernel, Loop):
        return kernel.count * sum(_seconds(s, target) for s in kernel.body.steps)
    if not isinstance(kernel, (Kernel, Bundle)):
        return 0.0
    return predict(kernel, default_schedule(kernel, target), target).seconds
