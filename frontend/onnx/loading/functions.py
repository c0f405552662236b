"""Calls of functions, replaced by their bodies.

A file may define functions of its own. ONNX defines many operators as functions, too: those for
which the table has no form are replaced by that definition.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Sequence
from typing import Any

from ..errors import OnnxLoaderError
from .table import find, standard

LARGEST = 1 << 20
"""The most nodes to which a file's functions may unfold."""

Name = tuple[str, str]
"""A function's domain and name."""


def inlined(proto: Any) -> Any:
    """The model without calls of functions."""
    if proto.functions:
        _check_growth(proto)
        from onnx.inliner import inline_local_functions

        proto = inline_local_functions(proto)
        if any((n.domain, n.op_type) in _local(proto) for n in _nodes(proto.graph.node)):
            proto = inline_local_functions(proto, True)  # functions of another operator set
    for _ in range(8):  # a body may call functions
        opsets = {standard(o.domain): int(o.version) for o in proto.opset_import}
        names = {
            (n.domain, n.op_type)
            for n in _nodes(proto.graph.node)
            if find(n.op_type, opsets.get(standard(n.domain), 1), standard(n.domain)) is None
        }
        wanted = sorted(name for name in names if _has_body(*name, opsets))
        if not wanted or not _can_inline():
            break
        try:
            proto = _inline(proto, wanted)
        except RuntimeError:  # a type that isn't known: the operators are named as missing
            break
    return proto


def _inline(proto: Any, names: Sequence[Name]) -> Any:
    """Replace the calls of ONNX's own functions. Weights stay outside: they may be larger than what
    a message can hold."""
    import onnx
    from onnx.inliner import inline_selected_functions

    small = onnx.ModelProto(ir_version=proto.ir_version, opset_import=proto.opset_import)
    whole, graph = proto.graph, small.graph
    graph.name = whole.name
    for field in ("node", "input", "output", "value_info"):
        getattr(graph, field).extend(getattr(whole, field))
    given = {i.name for i in whole.input}
    graph.input.extend(
        onnx.helper.make_tensor_value_info(i.name, i.data_type, list(i.dims))
        for i in whole.initializer
        if i.name not in given
    )
    # Bodies that depend on types need those of all values.
    small = onnx.shape_inference.infer_shapes(small)
    small = inline_selected_functions(small, list(names), inline_schema_functions=True)
    graph = small.graph
    graph.initializer.extend(whole.initializer)
    graph.sparse_initializer.extend(whole.sparse_initializer)
    graph.ClearField("input")
    graph.input.extend(whole.input)
    return small


def _can_inline() -> bool:
    """Whether this version of onnx replaces the calls of its own functions."""
    from onnx.inliner import inline_selected_functions

    return "inline_schema_functions" in inspect.signature(inline_selected_functions).parameters


def _has_body(domain: str, name: str, opsets: dict[str, int]) -> bool:
    import onnx

    version = opsets.get(standard(domain), 1)
    try:
        schema = onnx.defs.get_schema(name, version, domain)
    except Exception:  # onnx's own error for an unknown operator
        return False
    return bool(schema.has_function or schema.has_context_dependent_function)


def _local(proto: Any) -> set[Name]:
    return {(f.domain, f.name) for f in proto.functions}


def _nodes(nodes: Sequence[Any]) -> Iterator[Any]:
    """The nodes, with those of their graphs."""
    for node in nodes:
        yield node
        for attribute in node.attribute:
            for graph in (attribute.g, *attribute.graphs):
                yield from _nodes(graph.node)


def _check_growth(proto: Any) -> None:
    """Refuse functions that call themselves, or that unfold to far too many nodes."""
    bodies = {(f.domain, f.name): f.node for f in proto.functions}
    sizes: dict[Name, int] = {}

    def size(nodes: Sequence[Any], path: tuple[Name, ...]) -> int:
        total = 0
        for node in _nodes(nodes):
            name = (node.domain, node.op_type)
            total += 1
            if name in bodies:
                if name in path:
                    raise OnnxLoaderError(f"load: the function {name[1]!r} calls itself")
                if name not in sizes:
                    sizes[name] = size(bodies[name], (*path, name))
                total += sizes[name]
        return total

    if size(proto.graph.node, ()) > LARGEST:
        raise OnnxLoaderError(
            f"load: the functions of the file unfold to more than {LARGEST} nodes"
        )
