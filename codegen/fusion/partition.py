"""Fusion: which anchors of a graph share a kernel.

Each anchor starts as a group of its own, then neighbours merge greedily: a producer with its
consumer, or two readers of one buffer. Those that share most memory merge first. A merge is tried
by lowering the union. It stands if that works, if the groups stay free of cycles, and if the cost
model says it doesn't take longer than the two kernels.
"""

from __future__ import annotations

import heapq
import math
from bisect import bisect_left
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from tilewright.ir import ops
from tilewright.ir.dtype import NARROW, float32
from tilewright.ir.node import Node
from tilewright.ir.op import Kind
from tilewright.ir.ops.attention import attention_query_grad
from tilewright.ir.ops.external import external

from ..kernel import Buffer, Dot, Kernel, Reduce
from ..kernel.analysis import analyzed
from ..kernel.columns import columns, crossing
from ..kernel.domain import Domain
from ..kernel.index import Axis
from ..kernel.roles import roles
from ..lower import CannotFuse, Lowering, stored_base
from ..lower.attention import attention_base, lower_attention
from ..lower.contraction import contraction
from ..lower.places import most_ways
from ..lower.scatter import lower_update
from ..ops import DIGITS, leading, ordered
from ..target import Target
from .anchors import MOST_PLACES, Cut, adds_sum, is_dot, is_fold, is_sum
from .cost import gains, kernel_cost
from .twins import Form, Refusal, Template, outcomes

# How many readers of one buffer, the nearest ones, are tried as siblings of a group.
MOST_SIBLINGS = 4
# How many readers of a buffer are considered as siblings, on either side of a group.
FAR = 32
# Groups that are independent, or that both fold rows, merge if that saves a share of 1 / WORTH of
# the bytes they move: one kernel needs all buffers of both in memory at once.
WORTH = 32
# A kernel folds a contraction's rows only in pieces of at least so many columns, if it has more.
LEAST_COLUMNS = 64
# The types whose products are made in tiles that may have all columns.
IN_TILES = frozenset({float32, *NARROW})
# The most values a kernel may compute: with more, compilers take too long.
MOST_VALUES = 600


class TooDear(Exception):
    """A kernel costs more than those it would replace."""

    def __init__(self, cost: float):
        super().__init__(cost)
        self.cost = cost


@dataclass(eq=False)
class Group:
    """Anchors that one kernel computes.

    template: the kernel, shared by the groups of one form.
    nodes: all nodes that it computes. outputs: the anchors that it stores.
    kind: map, row (folds and scans), dot, update, sort or tiled (attention); loop, external and
        host, which have no kernel of their own.
    order: the place of its last anchor in the program.
    """

    index: int
    anchors: tuple[Node, ...]
    template: Template
    form: Form
    nodes: tuple[Node, ...]
    outputs: tuple[Node, ...]
    reads: dict[Node, None] = field(default_factory=dict)
    before: int = 0  # the groups it depends on, as bits
    is_state: bool = False  # kept for a multi-tensor update
    kind: str = field(init=False)
    domain: Domain = field(init=False)
    cost: float = field(init=False)
    points: int = field(init=False)
    elements: int = field(init=False)
    order: int = field(init=False)

    def __post_init__(self) -> None:
        self.kind, self.domain = self.template.kind, self.template.domain
        self.cost, self.points = self.template.cost, self.domain.points
        self.elements, self.order = self.points * self.domain.row, self.anchors[-1].seq


class Partition:
    """The groups of a graph, by index.

    begun: whether each anchor begins with a group; otherwise there are none yet.
    """

    def __init__(
        self,
        found: Cut,
        results: Iterable[Node],
        leaves: Iterable[Node],
        target: Target,
        begun: bool = True,
    ):
        self.target = target
        self.reads = found.reads
        self.pairs = not target.complex_numbers or found.pairs
        self.results = set(results)
        self.readers: dict[Node, list[Node]] = {}
        for anchor in found.anchors:
            for read in self.reads[anchor]:
                self.readers.setdefault(read, []).append(anchor)
        self.memory = {  # the nodes that are in memory between kernels, and their bytes
            n: math.prod(n.shape) * n.dtype.itemsize for n in (*leaves, *found.anchors)
        }
        self.groups: dict[int, Group] = {}
        self.group_of: dict[Node, Group] = {}
        self.reasons: dict[tuple[Node, Node], str] = {}
        self._outcomes = outcomes(target)
        self._count = 0
        for anchors in self._together(found.anchors) if begun else ():
            if any(math.prod(a.shape) for a in anchors):
                self._begin(anchors)

    def _begin(self, anchors: tuple[Node, ...]) -> None:
        """Begin a group with `anchors`, or one with each, if no kernel holds all of them."""
        try:
            self.add(anchors)
        except CannotFuse:
            if len(anchors) == 1:
                raise
            for each in anchors:
                self._begin((each,))

    def add(self, anchors: tuple[Node, ...]) -> Group:
        """Add the group of these anchors, all of whose producers are there. CannotFuse if no single
        kernel computes them."""
        group = self._lowered(anchors)
        self._add(group)
        return group

    def _together(self, anchors: Sequence[Node]) -> list[tuple[Node, ...]]:
        """The groups to begin with. Anchors share one if they are records of one attention, which
        share its tiles; or results of one launch of the user's, or of one routine; or a fold or
        contraction and the sum it is part of. Any other anchor is alone."""
        groups: dict[Hashable, list[Node]] = {}
        for anchor in anchors:
            base = attention_base(anchor)
            key = anchor if base is None else self._attention(base)
            if anchor.op is external or anchor.op.kind is Kind.HOST:
                key = anchor.op, anchor.operands, anchor.attrs[:-1]
            if adds_sum(anchor):
                added = max(filter(is_sum, anchor.operands), key=lambda n: n.seq)
                if added in groups and self.readers[added] == [anchor]:
                    groups[key] = groups.pop(added)
            groups.setdefault(key, []).append(anchor)
        return [tuple(group) for group in groups.values()]

    def _attention(self, base: Node) -> Hashable:
        """A key, the same for all records of attention that one kernel can compute."""
        apart = self.target.gradient_passes and base.op is attention_query_grad
        return base.operands, base.attrs, apart

    # Lowering a set of anchors.

    def _lowered(self, anchors: tuple[Node, ...], limit: float = math.inf) -> Group:
        """The group of these anchors. Raises CannotFuse if no single kernel computes them, TooDear
        if the kernel costs more than `limit`."""
        own = set(anchors)
        outputs = tuple(a for a in anchors if self._is_output(a, own))
        form = Form(anchors, outputs, self.memory, self.pairs)
        outcome = self._outcomes.get(form.key)
        if outcome is None or (isinstance(outcome, float) and outcome <= limit):
            try:
                outcome = self._template(form)
            except CannotFuse as error:
                outcome = Refusal(form.number.get(error.node, error.node), error.reason)
            self._outcomes[form.key] = outcome
        if isinstance(outcome, Refusal):
            raise outcome.error(form)
        cost = outcome if isinstance(outcome, float) else outcome.cost
        if isinstance(outcome, float) or cost > limit:
            self._outcomes[form.key] = cost  # the kernel isn't kept
            raise TooDear(cost)
        nodes = tuple(n if isinstance(n, Node) else form.nodes[n] for n in outcome.nodes)
        return Group(-1, anchors, outcome, form, nodes, outputs)

    def _template(self, form: Form) -> Template:
        """A kernel for the anchors of a form."""
        anchors, outputs, source = form.anchors, form.outputs, form.source
        last, rounds = anchors[-1], self.target.rounds_halves
        if last.op.kind in (Kind.LOOP, Kind.EXTERNAL, Kind.HOST):
            lowering = Lowering(Domain(tuple(last.shape)), source)
            lowering.nodes[last] = None
            return self._made(last.op.kind.value, Kernel("", (), (), ()), lowering, form)
        if last.op.kind is Kind.SCATTER:
            kernel, lowering = lower_update(last, form.buffer(last), source, rounds)
            return self._made("update", kernel, lowering, form)
        if attention_base(last) is not None:
            kernel, lowering = lower_attention(outputs, form.buffer, source, rounds)
            return self._made("tiled", kernel, lowering, form)
        # Not the error itself: its traceback would keep this frame and its callers' buffers alive.
        failure = last, "no iteration space fits"
        kind = kind_of(anchors)
        for domain in domains(anchors, outputs, kind, source, self.target):
            lowering = Lowering(domain, source, rounds, MOST_PLACES if len(anchors) > 1 else None)
            try:
                stores = tuple(s for o in outputs for s in lowering.store(o, form.buffer(o)))
            except CannotFuse as error:
                failure = error.node, error.reason
                continue
            kernel = Kernel("", *axes_of(domain), stores)
            if domain.columns and not _folds_products(kernel):
                failure = last, "folds something else than a contraction's rows"
                continue
            if domain.crossed and columns(kernel) is None:
                failure = last, "needs a fold of columns before the last row is there"
                continue
            if len(anchors) > 1:
                self._check_size(kernel, last)
                _check_contractions(kernel, last)
            return self._made(kind, kernel, lowering, form)
        raise CannotFuse(*failure)

    def _check_size(self, kernel: Kernel, node: Node) -> None:
        if len(kernel.inputs) + len(kernel.outputs) > self.target.fuse_limit:
            raise CannotFuse(node, f"more than {self.target.fuse_limit} buffers")
        if len(kernel.values) > MOST_VALUES:
            raise CannotFuse(node, f"more than {MOST_VALUES} values")
        if most_ways(kernel, MOST_PLACES) > MOST_PLACES:
            raise CannotFuse(node, f"would be read in more than {MOST_PLACES} ways")

    def _made(self, kind: str, kernel: Kernel, lowering: Lowering, form: Form) -> Template:
        cost = kernel_cost(kernel, lowering.domain, self.target)
        nodes = tuple(form.number.get(n, n) for n in lowering.nodes)
        return Template(kind, kernel, lowering.domain, nodes, cost)

    def _is_output(self, anchor: Node, own: set[Node]) -> bool:
        return anchor in self.results or any(r not in own for r in self.readers.get(anchor, ()))

    # The graph of groups.

    def _add(self, group: Group) -> None:
        group.index = self._count
        self._count += 1
        own = set(group.anchors)
        for anchor in group.anchors:
            for read in self.reads[anchor]:
                if read not in own:
                    group.reads[read] = None
        for earlier in self.producers(group):
            group.before |= earlier.before | 1 << earlier.index
        self.groups[group.index] = group
        for anchor in group.anchors:
            self.group_of[anchor] = group

    def producers(self, group: Group) -> list[Group]:
        """The groups that `group` reads from."""
        found = (self.group_of.get(read) for read in group.reads)
        return list(dict.fromkeys(g for g in found if g is not None))

    def consumers(self, group: Group) -> list[Group]:
        """The groups that read from `group`."""
        readers = (r for o in group.outputs for r in self.readers.get(o, ()))
        found = (self.group_of.get(r) for r in readers)
        return list(dict.fromkeys(g for g in found if g is not None and g is not group))

    def siblings(self, group: Group) -> list[Group]:
        """The groups with as many elements that read one of the buffers `group` reads. For small
        groups, where launches count most, also those that read another output of its producer."""
        found: dict[Group, None] = {}
        for read in group.reads:
            found.update(dict.fromkeys(self._near(group, self.readers.get(read, ()))))
        if self._is_small(group):
            for producer in self.producers(group):
                if len(producer.outputs) > 1:
                    each = {r for o in producer.outputs for r in self.readers.get(o, ())}
                    readers = sorted(each, key=lambda n: n.seq)
                    found.update(dict.fromkeys(self._near(group, readers)))
        return list(found)

    def _near(self, group: Group, readers: Sequence[Node]) -> list[Group]:
        """The groups of `readers` with as many elements as `group`, the nearest in the program."""
        near = {}
        here = bisect_left(readers, group.order, key=lambda n: n.seq)
        for reader in readers[max(here - FAR, 0) : here + FAR]:
            other = self.group_of.get(reader)
            if other is not None and other is not group and other.elements == group.elements:
                near[other.index] = other
        found = sorted(near.values(), key=lambda g: (abs(g.order - group.order), g.index))
        return found[:MOST_SIBLINGS]

    def makes_cycle(self, a: Group, b: Group) -> bool:
        """Whether one of two groups depends on the other through a third one."""
        for first, second in ((a, b), (b, a)):
            if not second.before >> first.index & 1:
                continue
            for between in self.producers(second):
                if between is not first and between.before >> first.index & 1:
                    return True
        return False

    def unite(self, a: Group, b: Group, merged: Group) -> None:
        """Puts `merged` in the place of two groups."""
        del self.groups[a.index], self.groups[b.index]
        self._add(merged)
        old = 1 << a.index | 1 << b.index
        merged.before &= ~old
        new = merged.before | 1 << merged.index
        for other in self.groups.values():
            if other is not merged and other.before & old:
                other.before = other.before & ~old | new

    # Merging.

    def merge(self, state_only: bool = False) -> None:
        """Merges groups until no merge pays. `state_only`: merges parameter updates alone."""
        queue: list[tuple[int, int, int, int, int]] = []
        for group in list(self.groups.values()):
            self._propose(group, queue, state_only, later_only=True)
        while queue:
            *_, i, j = heapq.heappop(queue)
            a, b = self.groups.get(i), self.groups.get(j)
            if a is None or b is None:
                continue
            merged = self._try(a, b)
            if merged is not None:
                merged.is_state = state_only
                self.unite(a, b, merged)
                self._propose(merged, queue, state_only)

    def _propose(
        self,
        group: Group,
        queue: list[tuple[int, int, int, int, int]],
        state_only: bool,
        later_only: bool = False,
    ) -> None:
        """Queues the merges of `group` with its neighbours, and those of its small readers with
        each other."""
        readers = self.consumers(group)
        near: list[Group] = []
        if group.is_state is state_only:
            near += [] if later_only else self.producers(group)
            near += readers
            near += (g for g in self.siblings(group) if not later_only or g.index > group.index)
        pairs = [(group, other) for other in dict.fromkeys(near)]
        pairs += (p for p in pairwise(readers) if self._is_small(p[0]) and _alike(*p))
        for a, b in pairs:
            stays = {"update", "sort", "tiled", "loop", "external", "host"} & {a.kind, b.kind}
            if stays or a.is_state is not state_only or b.is_state is not state_only:
                continue
            later = a.before >> b.index & 1
            if later or (not b.before >> a.index & 1 and b.order < a.order):
                a, b = b, a
            self._propose_pair(a, b, queue)

    def _is_small(self, group: Group) -> bool:
        """Whether a group costs mostly its launch."""
        return group.elements * 8 <= self.target.launch_cost

    def _propose_pair(
        self, a: Group, b: Group, queue: list[tuple[int, int, int, int, int]]
    ) -> None:
        """Queues the merge of a with b, which doesn't come before a."""
        own = {*a.anchors, *b.anchors}
        saved = 0
        for read in b.reads:
            size = self.memory[read]
            if read in a.reads:
                saved += size
            elif read in own:
                saved += size if self._is_output(read, own) else 2 * size
        if not b.before >> a.index & 1 or a.kind == b.kind == "row":
            moved = sum(self.memory[n] for g in (a, b) for n in (*g.reads, *g.outputs))
            saved = saved if saved * WORTH >= moved else 0
        if saved or self._is_small(a):
            heapq.heappush(queue, (-saved, a.order, b.order, a.index, b.index))

    def _try(self, a: Group, b: Group) -> Group | None:
        """The union of two groups if it is a better kernel; otherwise the reason is kept."""
        reason = self._mismatch(a, b)
        if reason is None and self.makes_cycle(a, b):
            reason = "would depend on itself through a third kernel"
        if reason is None:
            anchors = tuple(sorted((*a.anchors, *b.anchors), key=lambda n: n.seq))
            try:
                merged = self._lowered(anchors, limit=a.cost + b.cost)
                if self._gains(merged, a, b):
                    return merged
                reason = "takes longer in tiles that hold whole rows"
            except CannotFuse as error:
                reason = str(error)
            except TooDear as error:
                reason = f"would move {_bytes(error.cost)} instead of {_bytes(a.cost + b.cost)}"
        for anchor in b.anchors:
            for read in self.reads[anchor]:
                if read in a.anchors:
                    self.reasons[read, anchor] = reason
        return None

    def _gains(self, merged: Group, a: Group, b: Group) -> bool:
        kernel, better = merged.template.kernel, merged.template.better
        if not kernel.columns:
            return True
        key = a.form.key, b.form.key
        if key not in better:
            better[key] = gains(kernel, (a.template.kernel, b.template.kernel), self.target)
        return better[key]

    def _mismatch(self, a: Group, b: Group) -> str | None:
        """The reason why two groups can't share a kernel, if their sizes show one."""
        kinds = {a.kind, b.kind}
        if kinds == {"dot"}:
            return "a kernel computes one contraction"
        if makes_digits_again(a) or makes_digits_again(b):
            anchors = (*a.anchors, *b.anchors)
            of = {(n.operands, n.attrs) if n.op in DIGITS else None for n in anchors}
            if len(of) > 1 or None in of:
                return "digits that are made again wait for their product"
        dot = a if a.kind == "dot" else b if b.kind == "dot" else None
        if dot is not None:
            other = b if dot is a else a
            inside = {r for d in dot.anchors if is_dot(d) for r in self.reads[d]}
            if any(anchor in inside for anchor in other.anchors):
                return "a contraction reads its operands from memory"
            if other.kind == "row" and not self._tiles_hold(dot, other):
                return "a contraction's tiles hold no such rows to fold"
            fits = other.elements in (dot.points, dot.domain.lines)
            return None if fits else "has another number of elements"
        own = {*a.anchors, *b.anchors}
        if a.kind == "map" and not any(self._is_output(o, own) for o in a.anchors):
            return None  # nothing of it is left in memory, so any shape will do
        if kinds == {"row"}:
            if (a.points, a.elements) == (b.points, b.elements):
                return None
            crossed = any(crossing(x.domain, y.domain, self.target) for x, y in ((a, b), (b, a)))
            return None if crossed else "folds rows of another size"
        if kinds == {"map"}:
            return None if a.elements == b.elements else "has another number of elements"
        row, rest = (a, b) if a.kind == "row" else (b, a)
        return None if row.domain.holds(rest.elements) else "has another number of elements"

    def _tiles_hold(self, dot: Group, row: Group) -> bool:
        """Whether a contraction's tiles may hold whole rows of its result, which `row` folds."""
        types = {a.operands[0].dtype for a in dot.anchors if is_dot(a)}
        return (
            row.domain.row <= self.target.product_rows
            and types <= IN_TILES
            and bool(row.before >> dot.index & 1)
        )

    def tie(self, batch: list[Group], group: Group) -> bool:
        """Adds `group` to a batch of groups that are launched together, unless one depends on the
        other."""
        together = sum(1 << g.index for g in batch)
        if group.before & together or batch[0].before >> group.index & 1:
            return False
        batch.append(group)
        together |= 1 << group.index
        before = batch[0].before | group.before
        for member in batch:
            member.before = before
        for other in self.groups.values():
            if other.before & together:
                other.before |= together | before
        return True


def _check_contractions(kernel: Kernel, node: Node) -> None:
    """Tiles hold one product. Read at two places, as in y + y.T, a contraction would be two."""
    found = [v for v in kernel.values if isinstance(v, Dot)]
    if len(found) > 1:
        analysis = analyzed(kernel)
        if len({roles(kernel, analysis, dot) for dot in found}) > 1:
            raise CannotFuse(node, "reads a contraction at two places")


def makes_digits_again(group: Group) -> bool:
    """Whether a group makes digits that were made for an earlier product, too. In its kernel or its
    launch they would be made early, and lie in memory meanwhile."""
    return any(n.op in DIGITS and n.attrs[0] for n in group.anchors)


def _alike(a: Group, b: Group) -> bool:
    return a.kind == b.kind and (a.points, a.elements) == (b.points, b.elements)


def kind_of(anchors: Sequence[Node]) -> str:
    if any(map(is_sort, anchors)):
        return "sort"
    if any(is_dot(a) for a in anchors):
        return "dot"
    return "row" if any(is_fold(a) for a in anchors) else "map"


def is_sort(node: Node) -> bool:
    """Whether a node needs a kernel of its own that brings elements in order."""
    merges = node.op is ordered and node.attrs[1]
    return is_fold(node) and (node.op in (ops.argsort_op, leading) or bool(merges))


def axes_of(domain: Domain) -> tuple[tuple[Axis, ...], tuple[Axis, ...]]:
    """The parallel and the reduction axes of a kernel over a domain."""
    if domain.crossed:
        return domain.parts, (*domain.walked, *domain.reduction)
    return domain.down, (*domain.across, *domain.reduction)


def domains(
    anchors: Sequence[Node],
    outputs: Sequence[Node],
    kind: str,
    source: Callable[[Node], Buffer | None],
    target: Target,
) -> list[Domain]:
    """The iteration spaces to try for a kernel, the likeliest first."""
    if kind == "dot":
        domain = contraction(next(filter(is_dot, anchors))).domain
        folds = [a for a in anchors if is_fold(a) and a.op.kind is Kind.REDUCE]
        return _folding(domain, folds[0]) if folds else [domain]
    if kind == "map":
        shapes = (tuple(stored_base(o, source).shape) for o in outputs)
        return [Domain(max(shapes, key=len))]
    found: dict[Domain, None] = {}
    for fold in anchors:
        if is_fold(fold):
            axes = fold.attrs[0]
            reduced = axes if fold.op.kind is Kind.REDUCE else (axes,)
            found[Domain(tuple(fold.operands[0].shape), tuple(reduced))] = None
    # A finer shape is reached from a coarser one by divisions, the other way without.
    fine = sorted(found, key=lambda d: -len(d.shape))
    both = (crossing(rows, down, target) for rows in fine for down in fine)
    return list(dict.fromkeys(filter(None, both)))[:2] or fine[:2]


def _folding(domain: Domain, fold: Node) -> list[Domain]:
    """The iteration space of a contraction that has the rows of this fold, if there is one. Short
    rows are folded from memory: a program would have few columns, and read all of the other
    operand."""
    count = math.prod(fold.operands[0].shape[axis] for axis in fold.attrs[0])
    columns = domain.shape[-len(domain.reduced) - 1]
    found = domain.folding(count) if count >= min(columns, LEAST_COLUMNS) else None
    return [] if found is None else [found]


def _folds_products(kernel: Kernel) -> bool:
    """Whether every fold of a kernel is over results of its contractions."""
    made: set[int] = set()
    for value in kernel.values:
        comes = isinstance(value, Dot) or any(id(v) in made for v in value.operands())
        if isinstance(value, Reduce) and not comes:
            return False
        if comes:
            made.add(id(value))
    return bool(kernel.columns)


def _bytes(count: float) -> str:
    for unit in ("B", "KB", "MB"):
        if count < 1024:
            return f"{count:.3g} {unit}"
        count /= 1024
    return f"{count:.3g} GB"
