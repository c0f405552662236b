"""The parts of a graph that a backend computes, as large as they can be."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Sequence
from typing import Any

from ...graph_module import GraphModule
from ...node import Node
from ...targets import qualified_name
from ..operator_support import OperatorSupportBase
from ..utils.fuser_utils import fuse_by_partitions, is_one_call

__all__ = ["CapabilityBasedPartitioner", "Partition"]


class Partition:
    """A set of nodes with a number."""

    def __init__(
        self, id: int | None = None, nodes: Iterable[Node] | None = None, node_orders: Any = None
    ):
        self.id = id
        self.nodes: dict[Node, None] = dict.fromkeys(nodes or ())

    def add_node(self, node: Node, node_order: int | None = None) -> None:
        self.nodes[node] = None

    def remove_node(self, node: Node) -> None:
        del self.nodes[node]

    def size(self) -> int:
        return len(self.nodes)

    def __repr__(self) -> str:
        return str(list(self.nodes))


class CapabilityBasedPartitioner:
    """Groups the nodes that `operator_support` supports, and puts groups into modules.

    allows_single_node_partition: whether one computing node makes a group. non_compute_ops: full
    names of functions that don't count as computing. skip_horizontal_fusion: whether nodes join
    only groups that read them.
    """

    def __init__(
        self,
        graph_module: GraphModule,
        operator_support: OperatorSupportBase,
        allows_single_node_partition: bool = False,
        non_compute_ops: Sequence[str] | None = None,
        allowed_single_node_partition_ops: Sequence[str] | None = None,
        skip_horizontal_fusion: bool = False,
    ):
        self.graph_module, self.operator_support = graph_module, operator_support
        self.allows_single_node_partition = allows_single_node_partition
        self.non_compute_ops = set(non_compute_ops or ())
        self.allowed_single_node_partition_ops = set(allowed_single_node_partition_ops or ())
        self.skip_horizontal_fusion = skip_horizontal_fusion

    def propose_partitions(self) -> list[Partition]:
        """Groups of supported nodes. Each can be one call: nothing outside of a group depends on
        some of its nodes while others depend on it."""
        modules = dict(self.graph_module.named_modules())
        groups: list[set[Node]] = []
        for node in reversed(list(self.graph_module.graph.nodes)):
            if node.op in ("placeholder", "output") or not (
                self.operator_support.is_node_supported(modules, node)
            ):
                continue
            own = {node}
            for other in list(groups):
                reads = any(u in other for n in own for u in n.users)
                if (reads or not self.skip_horizontal_fusion) and is_one_call(own | other, groups):
                    own |= other
                    groups.remove(other)
            groups.insert(0, own)
        place = {n: i for i, n in enumerate(self.graph_module.graph.nodes)}
        kept = [g for g in groups if self._is_worth_it(g)]
        for group in kept:  # what is taken out of a result stays with it
            for node in list(group):
                group.update(u for u in node.users if u.target is operator.getitem)
        return [Partition(i, sorted(g, key=place.__getitem__)) for i, g in enumerate(kept)]

    def _is_worth_it(self, group: set[Node]) -> bool:
        if self.allows_single_node_partition:
            return True
        names = [qualified_name(n.target) for n in group if not isinstance(n.target, str)]
        if any(name in self.allowed_single_node_partition_ops for name in names):
            return True
        calls = sum(name not in self.non_compute_ops for name in names)
        return calls + sum(n.op in ("call_module", "call_method") for n in group) > 1

    def fuse_partitions(
        self, partitions: Iterable[Partition], prefix: str = "fused_"
    ) -> GraphModule:
        """Put each partition into a module."""
        return fuse_by_partitions(self.graph_module, [list(p.nodes) for p in partitions], prefix)

    def partition_and_fuse(self, prefix: str = "fused_") -> GraphModule:
        return self.fuse_partitions(self.propose_partitions(), prefix)
