"""Twins: groups of one form, lowered once. Such are the layers of a model, the steps of a loop, the
same model in another plan.

A *form* is the part of a graph that lowering sees for a set of anchors: the nodes down to memory,
by number. Equal forms give equal kernels, but for the names of buffers, so kernels are made over
buffers that are named by number too.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Container, Hashable, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from tilewright.ir.node import Node
from tilewright.ir.op import Kind

from ..kernel import Buffer, Kernel
from ..kernel.canonical import Note, canonical
from ..kernel.domain import Domain
from ..kernel.structure import structure
from ..lower import CannotFuse
from ..ops import initial
from ..target import Target

LIMIT = 20_000
"""The most forms that are remembered; beyond that all are forgotten."""


class Form:
    """The nodes that a kernel of `anchors` computes and reads, and the edges between them.

    memory: the nodes that are in memory, the kernel's own anchors among them.
    outputs: the anchors that it stores.
    pairs: whether a complex number in memory is a pair of real ones for the kernel.
    """

    def __init__(
        self,
        anchors: Sequence[Node],
        outputs: Sequence[Node],
        memory: Container[Node],
        pairs: bool = False,
    ) -> None:
        self.pairs = pairs
        self.anchors = tuple(anchors)
        self.outputs = tuple(outputs)
        self.number: dict[Node, int] = {}
        self.loaded: dict[Node, None] = {}
        text = array("q")
        own = set(anchors)
        stack = list(reversed(anchors))
        while stack:
            node = stack[-1]
            if node in self.number:
                stack.pop()
                continue
            if node not in own and node in memory:
                stack.pop()
                self.loaded[node] = None
                self.number[node] = len(self.number)
                text.extend((-1, known((node.shape, node.dtype))))
                continue
            pending = [o for o in node.operands if o not in self.number]
            if pending:
                stack.extend(reversed(pending))
                continue
            stack.pop()
            text.extend((len(node.operands), _kind(node)))
            text.extend([self.number[o] for o in node.operands])
            self.number[node] = len(self.number)
        text.append(-2)
        text.extend([self.number[a] for a in anchors])
        text.append(-2)
        text.extend([self.number[o] for o in outputs])
        self.key = text.tobytes()

    @cached_property
    def nodes(self) -> tuple[Node, ...]:
        return tuple(self.number)

    def buffer(self, node: Node) -> Buffer:
        """The buffer of a node, named by its number."""
        if self.pairs and node.dtype.is_complex:
            count = 2 * math.prod(node.shape)
            return Buffer(f"m{self.number[node]}", node.dtype.to_real(), count)
        return Buffer(f"m{self.number[node]}", node.dtype, math.prod(node.shape))

    def source(self, node: Node) -> Buffer | None:
        """The buffer from which lowering loads a node; None if the kernel computes it."""
        return self.buffer(node) if node in self.loaded else None


@dataclass(eq=False)
class Template:
    """The kernel of a form, for all groups that have the form.

    nodes: the nodes it computes, by number; a node that only lowering made stands for itself.
    better: whether it takes less time than the kernels of two forms, by their keys.
    """

    kind: str
    kernel: Kernel
    domain: Domain
    nodes: tuple[int | Node, ...]
    cost: float
    better: dict[tuple[bytes, bytes], bool] = field(default_factory=dict)
    _named: dict[tuple[str, tuple[Note, ...]], tuple[Kernel, dict[Buffer, Buffer]]] = field(
        default_factory=dict
    )

    def canonical(self, name: str, notes: tuple[Note, ...]) -> tuple[Kernel, dict[Buffer, Buffer]]:
        """The kernel to compile, one object for all that share it; see kernel/canonical.py."""
        found = self._named.get((name, notes))
        if found is None:
            found = self._named[name, notes] = canonical(self.kernel, name, notes)
        return found

    @cached_property
    def structure(self) -> tuple[str, tuple[int, ...]]:
        """The key that members of a bundle share: all of a kernel but its sizes and buffers."""
        kernel, _ = canonical(self.kernel, "", ())
        return structure(kernel), tuple(s.slot for s in kernel.scalars)


@dataclass(frozen=True)
class Refusal:
    """The reason why no kernel computes a form, and the number of the node it is about."""

    number: int | Node
    reason: str

    def error(self, form: Form) -> CannotFuse:
        node = self.number if isinstance(self.number, Node) else form.nodes[self.number]
        return CannotFuse(node, self.reason)


Outcome = Template | Refusal | float
"""The result of lowering a form. A number is the cost of a kernel that was too dear."""

_ids: dict[Hashable, int] = {}
_outcomes: dict[Target, dict[bytes, Outcome]] = {}
_next = 0


def outcomes(target: Target) -> dict[bytes, Outcome]:
    """The outcomes of forms, by their keys."""
    found = _outcomes.setdefault(target, {})
    if len(found) > LIMIT:
        clear()
    return found


def clear() -> None:
    """Forget all forms."""
    _ids.clear()
    for known in _outcomes.values():
        known.clear()


def _kind(node: Node) -> int:
    """A number for all that lowering sees of a node, besides its operands."""
    found: int | None = node.memo.get("form")
    if found is None:
        # The attr of `initial` only tells copies apart; it has no meaning here.
        attrs = () if node.op is initial else node.attrs
        # A position that is data is reported with its line.
        loc = node.loc if node.op.kind in (Kind.GATHER, Kind.SCATTER, Kind.CHECK) else None
        found = node.memo["form"] = known((node.op, attrs, node.shape, node.dtype, loc))
    return found


def known(thing: Hashable) -> int:
    """One number for equal things; a number is never used again."""
    global _next
    found = _ids.get(thing)
    if found is None:
        found = _ids[thing] = _next
        _next += 1
    return found
