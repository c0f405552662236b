"""The graph as MLIR, dialect `tw`: nodes to operations and back.

    %0 = "tw.mul"(%arg0, %arg1) : (tensor<2x3xf32>, tensor<f32>) -> tensor<2x3xf32> loc(…)

A graph is a `func.func`. Its arguments are the leaves; `{tw.leaf = 0 : i64}` or
`{tw.scalar = 0 : i64}` gives their place in the run. The attributes of an operation are those of
the op record. Two more describe the recording: `tw.device` names a node's own device, `tw.no_grad`
marks a node that was recorded without gradient although an operand requires one.
"""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Mapping, Sequence
from typing import Any

from .. import ops as _ops  # noqa: F401  fills REGISTRY
from .. import recurrence as _recurrence  # noqa: F401  and so do loops
from ..dtype import BY_MLIR, DType
from ..node import Node, grad_mode, intern, reachable
from ..op import REGISTRY, Kind, Op
from .lexer import MLIRError, Position, Source
from .parser import parse
from .syntax import (
    Attribute,
    Block,
    BlockArgument,
    FileLocation,
    FunctionType,
    Integer,
    Location,
    Operation,
    Type,
    Unit,
    file_and_line,
)
from .values import (
    constant_attribute,
    from_attribute,
    from_constant_attribute,
    from_tensor_type,
    tensor_type,
    to_attribute,
)

_PREFIX = "tw."
_DEVICE = "tw.device"
_NO_GRAD = "tw.no_grad"


def print_graph(roots: Sequence[Node], name: str = "main") -> str:
    """The graph that computes `roots`, as a module with the function `name` that returns them."""
    return f"{graph_module(roots, name)}\n"


def parse_graph(text: str, filename: str = "<mlir>") -> list[Node]:
    """The nodes that a printed graph returns.

    Nodes are interned: the text of a graph that lives in this process gives the same nodes. New
    nodes get the location that the text states. Raises `MLIRError` for text that is no graph.
    """
    start = Position(Source(text, filename), 0)
    return _read_function(_only_function(parse(text, filename), start))


# Printing


def graph_module(roots: Sequence[Node], name: str = "main") -> Operation:
    """The module that `print_graph` prints."""
    nodes = reachable(roots)
    names = node_names(nodes)
    leaves = _leaves(nodes)
    body = Block(arguments=[BlockArgument(names[n], _type(n), _location(n)) for n in leaves])
    body.operations += (_operation(n, names) for n in nodes if n.op.kind is not Kind.LEAF)
    types = tuple(map(_type, roots))
    returned = Operation(
        "func.return", operands=[names[r] for r in roots], types=FunctionType(types, ())
    )
    body.operations.append(returned)
    properties: dict[str, Attribute] = {
        "sym_name": name,
        "function_type": FunctionType(tuple(map(_type, leaves)), types),
    }
    if leaves:
        properties["arg_attrs"] = tuple(map(_leaf_attributes, leaves))
    function = Operation("func.func", properties=properties, regions=[[body]])
    return Operation("builtin.module", regions=[[Block([function])]])


def node_names(nodes: Sequence[Node]) -> dict[Node, str]:
    """The names of nodes in the text: arg0, … for leaves, 0, … for all others, in order."""
    others = (n for n in nodes if n.op.kind is not Kind.LEAF)
    return {leaf: f"arg{i}" for i, leaf in enumerate(_leaves(nodes))} | {
        node: str(i) for i, node in enumerate(others)
    }


def _leaves(nodes: Sequence[Node]) -> list[Node]:
    return sorted((n for n in nodes if n.op.kind is Kind.LEAF), key=_leaf_order)


def _leaf_order(leaf: Node) -> tuple[str, int, int]:
    return leaf.op.name, leaf.attrs[0], leaf.seq


def _type(node: Node) -> Type:
    return tensor_type(node.shape, node.dtype)


def _location(node: Node) -> Location:
    return FileLocation(*node.loc)


def _leaf_attributes(leaf: Node) -> dict[str, Attribute]:
    # The argument's type holds the shape and the dtype.
    assert leaf.op.params[0] == "index" and set(leaf.op.params) <= {"index", "shape", "dtype"}
    place: dict[str, Attribute] = {_PREFIX + leaf.op.name: to_attribute(leaf.attrs[0])}
    return place | _recording(leaf)


def _recording(node: Node) -> dict[str, Attribute]:
    """The attributes that tell how a node was recorded, where its operands don't."""
    grad, device = node.instruction.recorded
    entries: dict[str, Attribute] = {}
    if device is not None:
        entries[_DEVICE] = device
    if not grad:
        entries[_NO_GRAD] = Unit()
    return entries


def _operation(node: Node, names: Mapping[Node, str]) -> Operation:
    op = node.op
    attributes: dict[str, Attribute]
    if op.kind is Kind.CONSTANT:
        attributes = {"value": constant_attribute(*node.attrs)}
    else:
        attributes = {
            key: to_attribute(value) for key, value in zip(op.params, node.attrs, strict=True)
        }
    return Operation(
        _PREFIX + op.name,
        results=[names[node]],
        operands=[names[o] for o in node.operands],
        attributes=attributes | _recording(node),
        types=FunctionType(tuple(map(_type, node.operands)), (_type(node),)),
        loc=_location(node),
    )


# Reading


def _only_function(operations: Sequence[Operation], start: Position) -> Operation:
    """The one `func.func` among parsed operations or inside of their module."""
    while len(operations) == 1 and operations[0].name == "builtin.module":
        (module,) = operations
        start = module.where or start
        operations = [op for region in module.regions for b in region for op in b.operations]
    if len(operations) == 1 and operations[0].name == "func.func":
        return operations[0]
    others = [each for each in operations if each.name != "func.func"] or operations[1:]
    where = others[0].where if others else None
    found = ", ".join(f'"{op.name}"' for op in operations) or "none"
    (where or start).fail('one "func.func" that holds the graph', found)


def _read_function(function: Operation) -> list[Node]:
    where = _place(function)
    blocks = [block for region in function.regions for block in region]
    if len(blocks) != 1:
        where.fail("a function of one block", f"{len(blocks)} blocks")
    (block,) = blocks
    nodes = _read_leaves(function, block)
    for operation in block.operations:
        if operation.name == "func.return":
            if operation is not block.operations[-1]:
                _place(operation).fail(
                    '"func.return" at the end of the function', "operations after it"
                )
            _check_function_type(function, block, operation)
            return [nodes[name] for name in operation.operands]
        nodes[_result_name(operation)] = _read_node(operation, nodes)
    where.fail('a function that ends with "func.return"', "none")


def _place(read: Operation | BlockArgument) -> Position:
    assert read.where is not None, "operations that were read know where"
    return read.where


def _check_function_type(function: Operation, block: Block, returned: Operation) -> None:
    stated = {**function.attributes, **function.properties}.get("function_type")
    actual = FunctionType(tuple(a.type for a in block.arguments), returned.types.inputs)
    if stated != actual:
        got = str(stated) if isinstance(stated, FunctionType) else "none"
        _place(function).fail(f"function_type = {actual}, as arguments and return say", got)


def _read_leaves(function: Operation, block: Block) -> dict[str, Node]:
    listed = {**function.attributes, **function.properties}.get("arg_attrs", ())
    count = len(block.arguments)
    if not isinstance(listed, tuple) or len(listed) != count:
        got = str(len(listed)) if isinstance(listed, tuple) else "something else"
        _place(function).fail(f"an array arg_attrs of {count} dictionaries", got)
    nodes = {}
    for argument, attributes in zip(block.arguments, listed, strict=True):
        if not isinstance(attributes, Mapping):
            attributes = {}
        nodes[argument.name] = _read_leaf(argument, attributes)
    return nodes


def _read_leaf(argument: BlockArgument, attributes: Mapping[str, Attribute]) -> Node:
    where = _place(argument)
    records = {_PREFIX + op.name: op for op in REGISTRY.values() if op.kind is Kind.LEAF}
    kinds = [key for key in attributes if key in records]
    if len(kinds) != 1:
        one = " or ".join(f"{key} = 0" for key in records)
        got = "none" if not kinds else " and ".join(kinds)
        where.fail(f"in arg_attrs the place of %{argument.name} in the run, {one}", got)
    index = attributes[kinds[0]]
    if not isinstance(index, Integer):
        where.fail(f"an integer {kinds[0]} for %{argument.name}", type(index).__name__)
    _no_others(attributes, {*kinds, _DEVICE, _NO_GRAD}, where)
    op = records[kinds[0]]
    shape, dtype = _aval(argument.type, where)
    known = {"index": index.value, "shape": shape, "dtype": dtype}
    attrs = tuple(known[param] for param in op.params)
    return _intern(op, (), attrs, attributes, argument.type, argument.loc, where)


def _result_name(op: Operation) -> str:
    if len(op.results) != 1:
        _place(op).fail("an operation with one result", f"{len(op.results)} results")
    return op.results[0]


def _read_node(operation: Operation, nodes: Mapping[str, Node]) -> Node:
    where = _place(operation)
    record = _record(operation.name, where)
    if operation.regions:
        where.fail(f"{operation.name} without regions", f"{len(operation.regions)} of them")
    operands = tuple(nodes[name] for name in operation.operands)
    _check_arity(record, len(operands), where)
    attributes = {**operation.attributes, **operation.properties}
    attrs = _read_attrs(record, attributes, where)
    result, loc = operation.types.results[0], operation.loc
    return _intern(record, operands, attrs, attributes, result, loc, where)


def _record(name: str, where: Position) -> Op:
    record = REGISTRY.get(name.removeprefix(_PREFIX)) if name.startswith(_PREFIX) else None
    if record is not None and record.kind is not Kind.LEAF:
        return record
    known = [_PREFIX + op.name for op in REGISTRY.values() if op.kind is not Kind.LEAF]
    close = difflib.get_close_matches(name, known, n=1)
    hint = f' (did you mean "{close[0]}"?)' if close else ""
    if record is not None:
        hint = " (leaves are arguments of the function)"
    where.fail(f"an operation of dialect tw{hint}", f'"{name}"')


def _check_arity(op: Op, count: int, where: Position) -> None:
    """Checked here, because the op's rule would only name its own arguments."""
    taken = inspect.signature(op.infer).parameters.values()
    if any(p.kind is inspect.Parameter.VAR_POSITIONAL for p in taken):
        return
    wanted = len(taken) - len(op.params)
    if count != wanted:
        where.fail(f"{wanted} operand{'s' * (wanted != 1)} of {_PREFIX}{op.name}", str(count))


def _read_attrs(op: Op, attributes: Mapping[str, Attribute], where: Position) -> tuple[Any, ...]:
    params = ("value",) if op.kind is Kind.CONSTANT else op.params
    missing = [param for param in params if param not in attributes]
    if missing:
        got = ", ".join(attributes) or "none"
        where.fail(f"the attribute {missing[0]} of {_PREFIX}{op.name}", got)
    _no_others(attributes, {*params, _DEVICE, _NO_GRAD}, where)
    values = []
    for param in params:
        try:
            if op.kind is Kind.CONSTANT:
                return from_constant_attribute(attributes[param])
            values.append(from_attribute(attributes[param]))
        except TypeError as error:
            where.fail(f"a value for the attribute {param}", str(error))
    return tuple(values)


def _no_others(attributes: Mapping[str, Attribute], known: set[str], where: Position) -> None:
    unknown = [key for key in attributes if key not in known]
    if unknown:
        where.fail(f"no attributes but {', '.join(sorted(known))}", unknown[0])


def _aval(type: Type, where: Position) -> tuple[tuple[int, ...], DType]:
    try:
        return from_tensor_type(type)
    except TypeError:
        where.fail(f"a tensor with known sizes, of one of {', '.join(BY_MLIR)}", str(type))


def _intern(
    op: Op,
    operands: tuple[Node, ...],
    attrs: tuple[Any, ...],
    attributes: Mapping[str, Attribute],
    stated: Type,
    loc: Location | None,
    where: Position,
) -> Node:
    """The node, recorded as the `tw.` attributes say. If its op rejects it, the text is wrong."""
    device = attributes.get(_DEVICE)
    if device is not None and not isinstance(device, str):
        where.fail(f"a string {_DEVICE}", type(device).__name__)
    # Without a line of a program, the node's location is its line in the text.
    line = file_and_line(loc) or (where.source.filename, where.line)
    with grad_mode(_NO_GRAD not in attributes):
        try:
            node = intern(op, operands, attrs, device, line)
        except Exception as error:  # a rule may meet attrs that only a hand-written text has
            got = f"{type(error).__name__}: {error}"
            raise MLIRError(where, f"operands and attributes that {op.name} takes", got) from error
    if stated != tensor_type(node.shape, node.dtype):
        actual = tensor_type(node.shape, node.dtype)
        where.fail(f"{actual}, the type of this {_PREFIX}{op.name}", str(stated))
    return node
