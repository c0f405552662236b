"""Anchors: the nodes that can be in memory between kernels, where a graph may be cut.

One kernel computes an anchor. Every fold, contraction and scatter is one; so are results, operands
of contractions, and values that would cost more to compute twice than to keep. All other nodes are
computed wherever they are read. Fusion then decides which anchors share a kernel.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from tilewright.ir import ops
from tilewright.ir.dtype import NARROW, float32
from tilewright.ir.node import Node, reachable
from tilewright.ir.op import Kind
from tilewright.ir.ops.attention import attention_args
from tilewright.ir.ops.binary import add
from tilewright.ir.ops.generate import DRAWS, scalar

from ..kernel import index as ix
from ..kernel.domain import Place
from ..kernel.index import Axis
from ..legalize.channels_last import held
from ..legalize.digits import is_of_digits
from ..legalize.writes import reads_elsewhere
from ..lower import movement
from ..lower.contraction import contraction
from ..lower.places import Places, Reading
from ..ops import CHANNELS_LAST, flat, grouped_scatter, initial, of_digits, overwrite, pair, part
from ..target import Target

# The nodes between two anchors can make a kernel's text explode. A kernel computes at most
# MOST_NODES of them, and as many again at further places, each node at MOST_PLACES or fewer.
MOST_NODES, MOST_PLACES = 200, 16
# The most arithmetic that may be done twice: on tensors, and on single numbers.
MOST_COST, MOST_SCALAR_COST = 100, 400
# The least that an element of a table costs which is read at many points.
DEAR_TABLE = 20
# The points of a row that a thread has in a kernel that folds other axes: for them it computes what
# the row has in common once.
TOGETHER = 4
# The most that a contraction's operand may cost: it is computed again for every tile.
MOST_FACTOR_COST = 2
# The part of a tensor that is thin, one in so many elements, and how often it is read then.
THIN = 16


@dataclass
class Cut:
    """The anchors of a graph (operands first), and the anchors and leaves that each one reads.

    pairs: whether its complex numbers are pairs of real ones.
    """

    anchors: list[Node] = field(default_factory=list)
    reads: dict[Node, tuple[Node, ...]] = field(default_factory=dict)
    pairs: bool = False


def is_buffer(node: Node) -> bool:
    return node.op.kind is Kind.LEAF and node.op is not scalar


def memory(node: Node) -> Node:
    """The node whose memory holds `node`. A reshape is held by the memory of its operand."""
    while node.op is ops.reshape_op:
        node = node.operands[0]
    return node


def is_fold(node: Node) -> bool:
    """Whether a reduction or scan has more than one element to fold."""
    if node.op.kind is Kind.REDUCE:
        axes: tuple[int, ...] = node.attrs[0]
        return math.prod(node.operands[0].shape[a] for a in axes) > 1
    if node.op.kind is not Kind.SCAN:
        return False
    axis: int = node.attrs[0]
    return node.shape[axis] > 1


def is_dot(node: Node) -> bool:
    return node.op.kind is Kind.CONTRACTION and math.prod(contraction(node).summed) > 1


def is_sum(node: Node) -> bool:
    """Whether each element of a node is computed from many others."""
    return is_fold(node) or is_dot(node)


def adds_sum(node: Node) -> bool:
    """Whether a node is a fold or contraction plus something of the same shape."""
    same = all(o.shape == node.shape for o in node.operands)
    return node.op is add and same and any(map(is_sum, node.operands))


def cut(roots: Sequence[Node], target: Target) -> Cut:
    return _Cutter(roots, target).cut()


class _Cutter:
    def __init__(self, roots: Sequence[Node], target: Target):
        self.target = target
        self.nodes = reachable(roots)
        self.bit = {n: 1 << i for i, n in enumerate(self.nodes)}
        self.leaves = {n for n in self.nodes if is_buffer(n)}
        self.realized: set[Node] = set()
        self.paged: set[Node] = set()
        self.anchors = {memory(r) for r in roots} - self.leaves
        self.windowed = {_moved(n) for n in self.nodes if n.op is ops.windows_op}
        self.expanded = _expanded(self.nodes)
        self.spread = _spread(self.nodes) if target.columns else {}
        self.wide = {_moved(n) for n in self.nodes if n.op is ops.expand_op}
        for node in self.nodes:
            self._require(node)
        self._bound_places()
        self.fixed = set(self.anchors)

    def cut(self) -> Cut:
        # A value's readers are known once the nodes above it are cut: a second round sees more.
        for _ in range(2):
            readers = self._readers()
            self.anchors = set(self.fixed)
            cones = self._cones(readers)
        pairs = any(n.op is pair or n.op is part for n in self.nodes)
        found = Cut([n for n in self.nodes if n in self.anchors], pairs=pairs)
        mask = 0
        for node in self.realized:
            mask |= self.bit[node]
        for anchor in found.anchors:
            reach = 0
            for operand in anchor.operands:
                reach |= cones[operand]
            found.reads[anchor] = tuple(self._members(reach & mask))
        return found

    def _require(self, node: Node) -> None:
        """Adds the anchors that `node` requires."""
        kind = node.op.kind
        if kind in (Kind.LOOP, Kind.HOST):
            # What computes it reads memory and nothing else.
            self.anchors.add(node)
            self.anchors.update({memory(o) for o in node.operands} - self.leaves)
        elif node.op is flat:
            self.anchors.update({memory(node.operands[0])} - self.leaves)
        elif kind is Kind.EXTERNAL:
            self.anchors.add(node)
            tensors = node.operands[: node.attrs[1]]
            self.anchors.update({memory(o) for o in tensors} - self.leaves)
        elif is_fold(node) or kind is Kind.SCATTER or node.op is initial:
            self.anchors.add(node)
            if node.op is overwrite and reads_elsewhere(node, memory(node.operands[0].operands[0])):
                # The value is computed before anything is overwritten.
                self.anchors.update({memory(node.operands[1])} - self.leaves)
            if node.op is grouped_scatter:
                # Each program reads positions again and again, to see where groups begin and end.
                self.anchors.update({memory(i) for i in node.operands[2:]} - self.leaves)
        elif kind is Kind.CONTRACTION:
            self.anchors.add(node)
            terms = math.prod(contraction(node).domain.shape)
            for operand in node.operands:
                self._require_factor(operand, terms // max(math.prod(operand.shape), 1))
            if node.op in CHANNELS_LAST:
                self.anchors.update({memory(o) for o in held(node)} - self.leaves)
            if self._is_turned(node):
                self.anchors.add(node.operands[1])
        elif adds_sum(node):
            # In a chain of sums only the total is kept; each sum is added to it when it is made.
            self.anchors.update(filter(adds_sum, node.operands))
        elif kind is Kind.GATHER:
            self._require_table(node)
        elif kind is Kind.ATTENTION:
            self.anchors.add(node)
            a = attention_args(*node.operands, *node.attrs)
            for operand in (a.q, a.k, a.v, *a.spans, *a.rows):
                walked = operand is a.k or operand is a.v
                source = self._pages(operand) if walked else operand
                self._require_factor(source, a.q.shape[-2])
            # Templates hold tiles of these, which have two sides each.
            self.anchors.update(o for o in (a.q, a.k, a.v, *a.rows[2:]) if not self._is_matrix(o))

    def _require_table(self, gather: Node) -> None:
        """Adds the thin part of a larger tensor, as a column, that is read many times: there each
        element is in a line of the cache by itself."""
        table = memory(gather.operands[0])
        source, size = _moved(table), math.prod(table.shape)
        is_thin = source in self.leaves and THIN * size <= math.prod(source.shape)
        if is_thin and math.prod(gather.shape) >= THIN * size:
            self.anchors.add(table)

    def _pages(self, operand: Node) -> Node:
        """What the keys or values of attention are read from: if they are pages that a table names,
        the pages. The table stays in memory, and a kernel looks up each row of its tiles."""
        node = _moved(operand)
        if not self.target.pages or node.op is not ops.gather or len(node.operands) != 2:
            return operand
        pages, table = node.operands
        if node.attrs[0] != 0 or pages.rank < 2 or not is_buffer(_moved(pages)):
            return operand
        self.anchors.update({memory(table)} - self.leaves)
        self.paged.add(node)
        return pages

    def _require_factor(self, operand: Node, uses: int) -> None:
        """Adds the anchors that let a contraction read its operand from memory, through movement.
        Next to no arithmetic may lie between, and only on a leaf (the cast of a weight); a computed
        value is kept after its arithmetic. So is one in a narrow type for tensor cores, which read
        it from memory, if many tiles would convert it again: `uses` terms read each element."""
        node, top, cost = operand, None, 0
        limit = self.target.convert_limit
        fed = limit is not None and uses > limit and operand.dtype in NARROW
        most = 0 if fed or operand.dtype.itemsize == 1 else MOST_FACTOR_COST
        while node not in self.leaves and node not in self.anchors:
            if node.op.kind is Kind.MOVEMENT and node.op is not ops.cat_op:
                node = node.operands[0]
                continue
            if node.op is of_digits:  # which are in memory; the number is made of them again
                self.anchors.update(o for o in node.operands if o not in self.leaves)
                return
            top = top or node
            varying = [o for o in node.operands if not _is_number(o)]
            cost += node.op.cost
            if (
                node.op.kind is not Kind.ELEMENTWISE
                or len(varying) != 1
                or cost > most
                or varying[0].shape != node.shape
            ):
                if node.op.kind is not Kind.CONSTANT and node.op is not scalar:
                    self.anchors.add(top)
                return
            node = varying[0]
        if top is not None and node in self.anchors:
            self.anchors.add(top)

    def _is_turned(self, node: Node) -> bool:
        """Whether the second factor of a product is turned in memory first, as a weight is whose
        rows are terms of sums. Threads without tensor cores read neighbouring columns at a time:
        rows that begin 64 bytes apart in shared memory share banks, so that an H100 takes twice as
        long for the product."""
        least = self.target.turned_factors
        if not least or node.op is not ops.matmul or node.operands[1].dtype is not float32:
            return False
        turned = node.operands[1]
        if is_of_digits(turned):
            return False
        rows = math.prod(node.shape[:-1]) // math.prod(turned.shape[:-2])
        return (
            turned.op is ops.permute_op
            and turned.attrs[0][-1] == turned.rank - 2
            and rows >= least
            and not self.target.rounds(False)
        )

    def _is_matrix(self, node: Node) -> bool:
        """Whether the elements of a node are distinct along its last two dimensions: not a number,
        nor a row or column that is expanded."""
        sides = [Axis("row", node.shape[-2]), Axis("column", node.shape[-1])]
        place: Place = (*(ix.ZERO for _ in node.shape[:-2]), *map(ix.of, sides))
        while node not in self.leaves and node not in self.anchors:
            if node.op.kind is Kind.MOVEMENT and movement.is_map(node):
                place = movement.source(node, place)
                node = node.operands[0]
                continue
            varying = [o for o in node.operands if not _is_number(o)]
            if node.op.kind is not Kind.ELEMENTWISE or [o.shape for o in varying] != [node.shape]:
                break
            node = varying[0]
        return {axis for index in place for axis in index.axes()} == set(sides)

    def _readers(self) -> dict[Node, int]:
        """For each node the anchors that compute it or read it, as bits."""
        readers = dict.fromkeys(self.nodes, 0)
        for node in reversed(self.nodes):
            seen = self.bit[node] if node in self.anchors else readers[node]
            for operand in node.operands:
                readers[operand] |= seen
        return readers

    def _cones(self, readers: dict[Node, int]) -> dict[Node, int]:
        """For each node the nodes that computing it takes, down to anchors and leaves, as bits.

        On the way, nodes become anchors if several anchors read them and they are not cheap, or if
        computing them takes too much.
        """
        cones: dict[Node, int] = {}
        self.realized = self.anchors | self.leaves
        for node in self.nodes:
            cone = self.bit[node]
            if node not in self.realized:
                for operand in node.operands:
                    cone |= cones[operand]
                if self._is_kept(node, cone, readers[node].bit_count()):
                    self.anchors.add(node)
                    self.realized.add(node)
                    cone = self.bit[node]
            cones[node] = cone
        return cones

    def _is_kept(self, node: Node, cone: int, readers: int) -> bool:
        """Whether a node is better kept in memory than computed wherever it is read."""
        if node in self.paged:
            return False
        if node.op.kind is Kind.ELEMENTWISE and (
            cone.bit_count() > MOST_NODES
            or self._is_repeated(node, cone)
            or self._is_table(node, cone)
        ):
            return True
        return readers > 1 and _can_be_shared(node) and not self._is_cheap(node, cone, readers)

    def _is_repeated(self, node: Node, cone: int) -> bool:
        """Whether overlapping windows, or the many folds that read an element, read the elements of
        a node so often that it is dear to compute them each time."""
        times = self.expanded.get(node, 0)
        if node not in self.windowed and not times:
            return False
        cost, _ = self._effort(node, cone)
        if node in self.windowed and cost * self.target.op_cost > 2 * node.dtype.itemsize:
            return True
        elements = math.prod(node.shape)
        arithmetic = cost * self.target.op_cost * elements * times
        return arithmetic > 2 * node.dtype.itemsize * elements + self.target.launch_cost

    def _is_table(self, node: Node, cone: int) -> bool:
        """Whether a node is expanded to so many points that it is dear to compute it at each, as
        angles of rotations by place are."""
        times = self.spread.get(node, 1)
        if times == 1 or node not in self.wide:
            return False
        cost, _ = self._effort(node, cone)
        elements = math.prod(node.shape)
        arithmetic = cost * self.target.op_cost * elements * times
        return cost >= DEAR_TABLE and arithmetic > self.target.launch_cost

    def _is_cheap(self, node: Node, cone: int, readers: int) -> bool:
        """Whether computing a node for each reader moves no more bytes than keeping it.

        A kept node is written once, and read by all readers but the kernel that computes it.
        """
        elements = math.prod(node.shape)
        cost, loaded = self._effort(node, cone)
        if elements <= 1:
            return cost <= MOST_SCALAR_COST
        if cost > MOST_COST:
            return False
        # A kernel over other rows computes the statistics of a row again for each of its points.
        times = max(self.spread.get(node, 1) // TOGETHER, 1)
        arithmetic = cost * self.target.op_cost * elements * times
        again = (readers - 1) * (loaded + arithmetic)
        kept = readers * node.dtype.itemsize * elements
        return again <= kept + self.target.launch_cost / 16

    def _effort(self, node: Node, cone: int) -> tuple[int, int]:
        """(arithmetic for an element, bytes loaded) that computing a node takes."""
        elements = math.prod(node.shape)
        cost = loaded = 0
        for member in self._members(cone):
            if member in self.realized and member is not node:
                loaded += min(math.prod(member.shape), elements) * member.dtype.itemsize
            elif member.op.kind in (Kind.ELEMENTWISE, Kind.GENERATE):
                cost += member.op.cost
            elif member.op.kind is Kind.GATHER:
                cost += 4
        return cost, loaded

    def _bound_places(self) -> None:
        """Make anchors of nodes that a kernel would compute at too many places. Below an anchor
        places count from one again, so nothing multiplies along a chain."""
        places = Places()
        for node in reversed(self.nodes):
            if node in self.anchors:
                self._bound_below(node, places)

    def _bound_below(self, anchor: Node, places: Places) -> None:
        found: dict[Node, set[Reading]] = {}
        queue: list[tuple[int, Node]] = []  # the last one first: all that read it came before

        def read(node: Node, at: Reading) -> None:
            for operand, place in places.operands(node, at):
                if operand in self.leaves or operand in self.anchors:
                    continue
                if operand not in found:
                    found[operand] = set()
                    heapq.heappush(queue, (-operand.seq, operand))
                found[operand].add(place)

        read(anchor, places.every(anchor))
        again = 0
        while queue:
            _, node = heapq.heappop(queue)
            readings = found.pop(node)
            if len(readings) > 1 and (_can_be_shared(node) or node.op is ops.cat_op):
                more = again + len(readings) - 1
                if len(readings) > MOST_PLACES or more > MOST_NODES:
                    self.anchors.add(node)
                    continue
                again = more
            for at in readings:
                read(node, at)

    def _members(self, bits: int) -> list[Node]:
        found = []
        while bits:
            low = bits & -bits
            found.append(self.nodes[low.bit_length() - 1])
            bits ^= low
        return found


def _expanded(nodes: Sequence[Node]) -> dict[Node, int]:
    """For each node that is expanded before it is folded: how many folds read an element of it, as
    those of a matrix's rows read the vector that they are multiplied with."""
    found: dict[Node, int] = {}
    for fold in nodes:
        if not is_fold(fold) or fold.op.kind is not Kind.REDUCE:
            continue
        (top,), (axes, *_) = fold.operands, fold.attrs
        stack, seen = [top], {top}
        while stack:
            node = stack.pop()
            inner = node.operands[0] if node.op is ops.expand_op else node
            missing = top.rank - inner.rank
            times = math.prod(
                size
                for axis, size in enumerate(top.shape)
                if axis not in axes and (axis < missing or inner.shape[axis - missing] == 1)
            )
            if times > 1:
                source = _moved(inner)
                found[source] = max(found.get(source, 1), times)
            elif node.op.kind is Kind.ELEMENTWISE:
                more = [o for o in node.operands if o not in seen]
                seen.update(more)
                stack += more
    return found


def _moved(node: Node) -> Node:
    """The node whose elements a movement rearranges."""
    while node.op.kind is Kind.MOVEMENT and movement.is_map(node):
        node = node.operands[0]
    return node


def _spread(nodes: Sequence[Node]) -> dict[Node, int]:
    """For nodes that are expanded, such as the statistics of rows: at how many points each of their
    elements is read. `nodes`: operands first."""
    times: dict[Node, int] = {}
    for node in reversed(nodes):
        moves = node.op is ops.expand_op or node.op is ops.reshape_op
        if not moves and node.op.kind is not Kind.ELEMENTWISE:
            continue
        points = math.prod(node.shape) * (times.get(node, 1) if moves else 1)
        for x in node.operands:
            times[x] = max(times.get(x, 1), points // max(math.prod(x.shape), 1))
    return times


def _is_number(node: Node) -> bool:
    """Whether a node is one number that no buffer holds."""
    while node.op is ops.expand_op or node.op is ops.reshape_op:
        node = node.operands[0]
    return node.op.kind is Kind.CONSTANT or node.op is scalar


def _can_be_shared(node: Node) -> bool:
    return node.op.kind in (Kind.ELEMENTWISE, Kind.GATHER) or node.op in DRAWS
