"""Which nodes a backend computes."""

from __future__ import annotations

import abc
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ...nn import Module
from ..node import Node
from .tools_common import CALLABLE_NODE_OPS, get_node_target

__all__ = [
    "OpSupports",
    "OperatorSupport",
    "OperatorSupportBase",
    "any_chain",
    "chain",
    "create_op_support",
]

IsNodeSupported = Callable[[Mapping[str, Module], Node], bool]
SupportedArgumentDTypes = tuple[Sequence[Sequence[Any]], dict[str, Sequence[Any]]] | None
SupportDict = Mapping[str, SupportedArgumentDTypes]


class OperatorSupportBase(abc.ABC):
    """Tells whether a backend computes a node."""

    @abc.abstractmethod
    def is_node_supported(self, submodules: Mapping[str, Module], node: Node) -> bool: ...


class OperatorSupport(OperatorSupportBase):
    """By the names of `get_node_target`: the dtypes of the arguments that each may have, by place
    and by name; None for any. The dtypes are those that a ShapeProp noted."""

    def __init__(self, support_dict: SupportDict | None = None):
        self._support_dict = support_dict or {}

    def is_node_supported(self, submodules: Mapping[str, Module], node: Node) -> bool:
        if node.op not in CALLABLE_NODE_OPS:
            return True
        target = get_node_target(submodules, node)
        if target not in self._support_dict:
            return False
        allowed = self._support_dict[target]
        if allowed is None:
            return True
        by_place, by_name = allowed
        pairs = [(node.args[i], kinds) for i, kinds in enumerate(by_place) if i < len(node.args)]
        pairs += [(node.kwargs[k], kinds) for k, kinds in by_name.items() if k in node.kwargs]
        return all(_dtype(each) in kinds for each, kinds in pairs if isinstance(each, Node))


def _dtype(node: Node) -> Any:
    return getattr(node.meta.get("tensor_meta"), "dtype", None)


class _Function(OperatorSupportBase):
    def __init__(self, decides: IsNodeSupported):
        self._decides = decides

    def is_node_supported(self, submodules: Mapping[str, Module], node: Node) -> bool:
        return self._decides(submodules, node)


def create_op_support(is_node_supported: IsNodeSupported) -> OperatorSupportBase:
    return _Function(is_node_supported)


def chain(*op_support: OperatorSupportBase) -> OperatorSupportBase:
    """What all of them support."""
    return _Function(lambda m, n: all(s.is_node_supported(m, n) for s in op_support))


def any_chain(*op_support: OperatorSupportBase) -> OperatorSupportBase:
    """What any of them supports."""
    return _Function(lambda m, n: any(s.is_node_supported(m, n) for s in op_support))


class OpSupports:
    """Supports to chain with others."""

    @classmethod
    def decline_if_input_dtype(cls, dtype: Any) -> OperatorSupportBase:
        return _Function(lambda _, n: all(_dtype(each) is not dtype for each in n.all_input_nodes))

    @classmethod
    def decline_if_node_in_names(cls, disallow_set: set[str]) -> OperatorSupportBase:
        return _Function(lambda _, n: n.name not in disallow_set)
