"""The last rewrites before a graph is cut into kernels: of ops that a target has no kernel for."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from tilewright.ir import ops
from tilewright.ir.node import Node, grad_mode, intern, reachable
from tilewright.ir.op import Kind
from tilewright.ir.ops.external import external, outcomes
from tilewright.ir.ops.grouped import grouped_matmul, grouped_weight_grad, has_trivial_size
from tilewright.ir.ops.scaled import matmul_by_blocks
from tilewright.ir.passes.autodiff import decomposed
from tilewright.ir.passes.legalize import decompose_composites
from tilewright.ir.passes.simplify import RULES
from tilewright.ir.rewrite import Rule, rewrite

from ..ops import initial
from ..pairs import split_complex
from ..target import Target
from .channels_last import turn_convolutions
from .digits import multiply_digits
from .factors import by_library
from .grouping import group_updates
from .interleave import InterleaveStrides
from .sorting import sort_first, sort_leading, sort_words
from .split import SplitFolds, SplitProducts, SplitScans, folded_rows
from .split_keys import SplitKeys
from .sums import SumDepthwise, SumVectors
from .templates import has_template
from .writes import write_in_place


def legalize(roots: Sequence[Node], target: Target, inner: Sequence[Node] = ()) -> list[Node]:
    """`roots` over ops that this target has kernels for, then the replacements of `inner`: nodes
    below the roots that a caller asks about. They change nothing of the roots."""
    count, nodes = len(roots), [*roots, *inner]
    if not target.host_memory and any(n.op.kind is Kind.HOST for n in reachable(nodes)):
        # Before complex numbers are split, as routines take them whole.
        nodes = rewrite(nodes, [by_library, decompose_composites])
    nodes = split_complex(nodes, target)
    if target.split_keys:
        nodes = rewrite(nodes, [SplitKeys(target)])
    roots = nodes[:count]
    if any(_has_no_kernel(n, target) for n in reachable(roots)):
        nodes = rewrite(nodes, [Decompose(target), decompose_composites, *RULES])
    forms: list[Rule] = [InterleaveStrides(target), SumDepthwise(target), SumVectors(target)]
    nodes = rewrite(turn_products(nodes[:count], nodes[count:]), forms)
    nodes = turn_convolutions(nodes[:count], target, nodes[count:])
    nodes = write_in_place(nodes[:count], target, nodes[count:])
    nodes = multiply_digits(nodes[:count], target, nodes[count:])
    rules: list[Rule] = [
        *([] if target.native_sort else [group_updates]),
        give_memory,
        SplitFolds(target, folded_rows(reachable(nodes))),
        SplitScans(target),
        SplitProducts(target),
    ]
    nodes = rewrite(nodes, [sort_leading if target.native_sort else sort_first])
    if not target.native_sort:
        rules += [sort_words]
    return rewrite(nodes, rules)


@dataclass(frozen=True)
class Decompose:
    """Decomposes attention, and products in groups or with scales of blocks, if the target has no
    kernel for them."""

    target: Target

    def __call__(self, node: Node) -> Node | None:
        return decomposed(node) if _has_no_kernel(node, self.target) else None


def _has_no_kernel(node: Node, target: Target) -> bool:
    if node.op.kind is Kind.ATTENTION:
        return not has_template(node, target)
    if node.op is matmul_by_blocks:
        return not target.block_scales
    return node.op in (grouped_matmul, grouped_weight_grad) and has_trivial_size(node)


def turn_products(roots: Sequence[Node], inner: Sequence[Node] = ()) -> list[Node]:
    """(a @ b)^T is b^T @ a^T, where nothing else reads a @ b. Gives `roots`, then `inner`.

    So the gradient of a weight is in memory as the weight is, and both are updated alike.
    """
    nodes = reachable(roots)
    readers = Counter(o for n in nodes for o in n.operands)
    kept = set(roots)
    turned: dict[Node, Node] = {}
    with grad_mode(False):
        for node in nodes:
            product = node.operands[0] if node.op is ops.permute_op else node
            if (
                product is not node
                and product.op in (ops.matmul, ops.matmul_fast, ops.matmul_wide)
                and readers[product] == 1
                and product not in kept
                and node.attrs[0] == (*range(node.rank - 2), node.rank - 1, node.rank - 2)
            ):
                a, b = (_transposed(turned[o]) for o in product.operands)
                turned[node] = intern(product.op, (b, a), loc=product.loc)
            elif any(turned[o] is not o for o in node.operands):
                operands = tuple(turned[o] for o in node.operands)
                turned[node] = intern(node.op, operands, node.attrs, loc=node.loc)
            else:
                turned[node] = node
    return [turned.get(n, n) for n in (*roots, *inner)]


def _transposed(x: Node) -> Node:
    order = (*range(x.rank - 2), x.rank - 1, x.rank - 2)
    undone = x.op is ops.permute_op and x.attrs[0] == order
    return x.operands[0] if undone else ops.permute(x, order)


def give_memory(node: Node) -> Node | None:
    """Gives a scatter memory of its own, which first holds its base; likewise an external kernel
    and the memory it writes to."""
    if node.op is external:
        return _give_external(node)
    if node.op.kind is not Kind.SCATTER or node.operands[0].op is initial:
        return None
    base, *rest = node.operands
    copy = intern(initial, (base,), (node.seq,), loc=node.loc)
    return node.op(copy, *rest, *node.attrs)


def _give_external(node: Node) -> Node | None:
    _, tensors, written, _ = node.attrs
    copies = {
        place: after.seq
        for place, after in zip(written, outcomes(node), strict=True)
        if isinstance(place, int) and node.operands[place].op is not initial
    }
    for place, operand in enumerate(node.operands[:tensors]):
        if operand.op is ops.scalar:  # a number of the run, which has no memory yet
            copies.setdefault(place, node.seq)
    if not copies:
        return None
    operands = list(node.operands)
    for place, number in copies.items():
        operands[place] = intern(initial, (operands[place],), (number,), loc=node.loc)
    return node.op(*operands, *node.attrs)
